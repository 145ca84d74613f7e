package validate

import (
	"fmt"
	"math"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/validate/check"
)

// counts checks how many pods a workload makes.
func (c objectsChecker) counts(obj metav1.Object) {
	spec := field.NewPath("spec")
	most := func(path *field.Path, n *int32, most int) {
		if n != nil && int(*n) > most {
			c.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d", most))
		}
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
	case *appsv1.ReplicaSet:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
	case *appsv1.StatefulSet:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
		if o.Spec.Ordinals != nil && int(o.Spec.Ordinals.Start) > math.MaxInt32-maxReplicas {
			c.Invalid(spec.Child("ordinals", "start"), o.Spec.Ordinals.Start, fmt.Sprintf("must be less than or equal to %d", math.MaxInt32-maxReplicas))
		}
	case *batchv1.Job:
		most(spec.Child("completions"), o.Spec.Completions, maxCompletions)
		most(spec.Child("parallelism"), o.Spec.Parallelism, maxReplicas)
	case *batchv1.CronJob:
		job := spec.Child("jobTemplate", "spec")
		most(job.Child("completions"), o.Spec.JobTemplate.Spec.Completions, maxCronCompletions)
		most(job.Child("parallelism"), o.Spec.JobTemplate.Spec.Parallelism, maxReplicas)
		most(spec.Child("successfulJobsHistoryLimit"), o.Spec.SuccessfulJobsHistoryLimit, maxHistory)
		most(spec.Child("failedJobsHistoryLimit"), o.Spec.FailedJobsHistoryLimit, maxHistory)
	}
}

// Workload checks the fields of a workload outside its template: selector, replicas, and those of Jobs. effective is the restart policy of
// the template after defaulting.
func Workload(obj metav1.Object, effective corev1.RestartPolicy) field.ErrorList {
	t, selector, path := manifests.TemplateOf(obj)
	c := objectsChecker{&check.Checker{}}
	if selector != nil || isApps(obj) {
		c.selects(path.Child("selector"), selector, t.Labels)
	}
	c.job(obj, effective, t.Spec.RestartPolicy)
	c.counts(obj)
	return c.Errs
}

func isApps(obj metav1.Object) bool {
	switch obj.(type) {
	case *batchv1.Job, *batchv1.CronJob:
		return false
	}
	return true
}

// selects checks that a workload would know its own pods, as Kubernetes wants.
func (c objectsChecker) selects(path *field.Path, selector *metav1.LabelSelector, have map[string]string) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		c.Required(path, "")
		return
	}
	c.Add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)...)
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err == nil && !s.Matches(labels.Set(have)) {
		c.Invalid(path, have, "`selector` does not match template `labels`")
	}
}

// job checks what is particular to Jobs: what of them is not carried out is refused.
func (c objectsChecker) job(obj metav1.Object, effective, written corev1.RestartPolicy) {
	path := field.NewPath("spec")
	var spec *batchv1.JobSpec
	switch o := obj.(type) {
	case *batchv1.Job:
		spec = &o.Spec
	case *batchv1.CronJob:
		spec = &o.Spec.JobTemplate.Spec
		if _, err := manifests.CronSchedule(&o.Spec); err != nil {
			c.Invalid(path.Child("schedule"), o.Spec.Schedule, err.Error())
		}
		switch o.Spec.ConcurrencyPolicy {
		case "", batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent:
		default:
			check.OneOf(c.Checker, path.Child("concurrencyPolicy"), o.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
		}
		path = path.Child("jobTemplate", "spec")
	default:
		if effective != corev1.RestartPolicyAlways {
			check.OneOf(c.Checker, path.Child("template", "spec", "restartPolicy"), effective, corev1.RestartPolicyAlways)
		}
		return
	}
	if written == "" || written == corev1.RestartPolicyAlways {
		c.Add(field.Required(path.Child("template", "spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	}
	if spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion && spec.Completions == nil {
		c.Required(path.Child("completions"), "when completion mode is Indexed")
	}
	for name, value := range map[string]any{
		"podFailurePolicy": spec.PodFailurePolicy, "successPolicy": spec.SuccessPolicy,
		"backoffLimitPerIndex": spec.BackoffLimitPerIndex, "maxFailedIndexes": spec.MaxFailedIndexes,
	} {
		if !reflect.ValueOf(value).IsNil() {
			c.Forbidden(path.Child(name), "monopod does not implement it")
		}
	}
}
