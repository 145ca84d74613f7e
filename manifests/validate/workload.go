package validate

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/validate/check"
)

// Workload checks the fields of a workload outside its template: selector, replicas, strategies, and those of Jobs. Absent fields have
// their defaults. effective is the restart policy of the template after defaulting.
func Workload(obj metav1.Object, effective corev1.RestartPolicy) field.ErrorList {
	t, selector, path := manifests.TemplateOf(obj)
	c := objectsChecker{&check.Checker{}}
	if isApps(obj) {
		c.selects(path, selector, t.Labels)
		if _, ok := obj.(*appsv1.DaemonSet); !ok && !isSelector(selector) {
			c.Invalid(path.Child("selector"), selector, "invalid label selector")
		}
	}
	c.job(obj, effective, t.Spec.RestartPolicy)
	c.counts(obj)
	if isApps(obj) {
		c.strategies(obj)
		if t.Spec.ActiveDeadlineSeconds != nil {
			c.Forbidden(path.Child("template", "spec", "activeDeadlineSeconds"), "activeDeadlineSeconds is not supported in pod templates: the workload would recreate the pods")
		}
	}
	return c.Errs
}

func isApps(obj metav1.Object) bool {
	switch obj.(type) {
	case *batchv1.Job, *batchv1.CronJob:
		return false
	}
	return true
}

func isSelector(s *metav1.LabelSelector) bool {
	_, err := metav1.LabelSelectorAsSelector(s)
	return err == nil
}

// selects checks that the selector matches the labels of the template, as Kubernetes requires.
func (c objectsChecker) selects(path *field.Path, selector *metav1.LabelSelector, have map[string]string) {
	at := path.Child("selector")
	switch {
	case selector == nil:
		c.Required(at, "")
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		c.Invalid(at, selector, "an empty selector would select all pods")
		return
	default:
		c.Add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)...)
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err == nil && !s.Matches(labels.Set(have)) {
		c.Invalid(path.Child("template", "metadata", "labels"), have, "`selector` does not match template `labels`")
	}
}

// notNegative reports an error for a number below 0; nil means absent.
func notNegative[T int32 | int64](c objectsChecker, path *field.Path, n *T) {
	if n != nil && *n < 0 {
		c.Invalid(path, *n, apivalidation.IsNegativeErrorMsg)
	}
}

// counts checks how many pods a workload makes, and how many it remembers.
func (c objectsChecker) counts(obj metav1.Object) {
	spec := field.NewPath("spec")
	most := func(path *field.Path, n *int32, most int) {
		notNegative(c, path, n)
		if n != nil && int(*n) > most {
			c.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d", most))
		}
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
		notNegative(c, spec.Child("minReadySeconds"), &o.Spec.MinReadySeconds)
		notNegative(c, spec.Child("revisionHistoryLimit"), o.Spec.RevisionHistoryLimit)
		notNegative(c, spec.Child("progressDeadlineSeconds"), o.Spec.ProgressDeadlineSeconds)
		if d := o.Spec.ProgressDeadlineSeconds; d != nil && *d <= o.Spec.MinReadySeconds {
			c.Invalid(spec.Child("progressDeadlineSeconds"), *d, "must be greater than minReadySeconds")
		}
	case *appsv1.ReplicaSet:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
		notNegative(c, spec.Child("minReadySeconds"), &o.Spec.MinReadySeconds)
	case *corev1.ReplicationController:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
		notNegative(c, spec.Child("minReadySeconds"), &o.Spec.MinReadySeconds)
	case *appsv1.DaemonSet:
		notNegative(c, spec.Child("minReadySeconds"), &o.Spec.MinReadySeconds)
		notNegative(c, spec.Child("revisionHistoryLimit"), o.Spec.RevisionHistoryLimit)
	case *appsv1.StatefulSet:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
		notNegative(c, spec.Child("minReadySeconds"), &o.Spec.MinReadySeconds)
		if o.Spec.Ordinals != nil {
			most(spec.Child("ordinals", "start"), &o.Spec.Ordinals.Start, math.MaxInt32-maxReplicas)
		}
		if name := o.Spec.ServiceName; name != "" {
			c.Label(spec.Child("serviceName"), name)
		}
	case *batchv1.Job:
		c.jobCounts(spec, &o.Spec, maxCompletions)
	case *batchv1.CronJob:
		c.jobCounts(spec.Child("jobTemplate", "spec"), &o.Spec.JobTemplate.Spec, maxCronCompletions)
		most(spec.Child("successfulJobsHistoryLimit"), o.Spec.SuccessfulJobsHistoryLimit, maxHistory)
		most(spec.Child("failedJobsHistoryLimit"), o.Spec.FailedJobsHistoryLimit, maxHistory)
		notNegative(c, spec.Child("startingDeadlineSeconds"), o.Spec.StartingDeadlineSeconds)
	}
}

// jobCounts checks the numbers of a Job.
func (c objectsChecker) jobCounts(path *field.Path, s *batchv1.JobSpec, completions int32) {
	for _, n := range []struct {
		name  string
		value *int32
		most  int32
	}{
		{"parallelism", s.Parallelism, maxReplicas},
		{"completions", s.Completions, completions},
		{"backoffLimit", s.BackoffLimit, math.MaxInt32},
		{"ttlSecondsAfterFinished", s.TTLSecondsAfterFinished, math.MaxInt32},
	} {
		notNegative(c, path.Child(n.name), n.value)
		if n.value != nil && *n.value > n.most {
			c.Invalid(path.Child(n.name), *n.value, fmt.Sprintf("must be less than or equal to %d", n.most))
		}
	}
	notNegative(c, path.Child("activeDeadlineSeconds"), s.ActiveDeadlineSeconds)
}

// strategies checks how a workload of the group apps replaces its pods.
func (c objectsChecker) strategies(obj metav1.Object) {
	spec := field.NewPath("spec")
	switch o := obj.(type) {
	case *appsv1.Deployment:
		c.deploymentStrategy(spec.Child("strategy"), &o.Spec.Strategy)
	case *appsv1.StatefulSet:
		switch m := o.Spec.PodManagementPolicy; m {
		case "", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
		default:
			c.Invalid(spec.Child("podManagementPolicy"), m, "must be 'OrderedReady' or 'Parallel'")
		}
		c.statefulSetStrategy(spec.Child("updateStrategy"), &o.Spec.UpdateStrategy)
		if r := o.Spec.PersistentVolumeClaimRetentionPolicy; r != nil {
			at := spec.Child("persistentVolumeClaimRetentionPolicy")
			c.retention(at.Child("whenDeleted"), r.WhenDeleted)
			c.retention(at.Child("whenScaled"), r.WhenScaled)
		}
	case *appsv1.DaemonSet:
		c.daemonSetStrategy(spec.Child("updateStrategy"), &o.Spec.UpdateStrategy)
	}
}

func (c objectsChecker) retention(path *field.Path, policy appsv1.PersistentVolumeClaimRetentionPolicyType) {
	if policy != "" {
		check.OneOf(c.Checker, path, policy, appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	}
}

func (c objectsChecker) deploymentStrategy(path *field.Path, s *appsv1.DeploymentStrategy) {
	r := s.RollingUpdate
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if r != nil {
			c.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")
		}
	case "", appsv1.RollingUpdateDeploymentStrategyType:
		if r == nil {
			return
		}
		at := path.Child("rollingUpdate")
		c.share(at.Child("maxUnavailable"), r.MaxUnavailable, 100)
		c.share(at.Child("maxSurge"), r.MaxSurge, math.MaxInt)
		if isZero(r.MaxUnavailable) && isZero(r.MaxSurge) {
			c.Invalid(at.Child("maxUnavailable"), r.MaxUnavailable, "may not be 0 when `maxSurge` is 0")
		}
	default:
		c.Add(field.NotSupported(path, s.Type, []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
}

func (c objectsChecker) statefulSetStrategy(path *field.Path, s *appsv1.StatefulSetUpdateStrategy) {
	r := s.RollingUpdate
	switch s.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if r != nil {
			c.Invalid(path.Child("rollingUpdate"), r, "only allowed for updateStrategy 'RollingUpdate'")
		}
	case "", appsv1.RollingUpdateStatefulSetStrategyType:
		if r == nil {
			return
		}
		at := path.Child("rollingUpdate")
		notNegative(c, at.Child("partition"), r.Partition)
		c.share(at.Child("maxUnavailable"), r.MaxUnavailable, 100)
		if isZero(r.MaxUnavailable) {
			c.Invalid(at.Child("maxUnavailable"), r.MaxUnavailable, "cannot be 0")
		}
	default:
		c.Invalid(path, s.Type, "must be 'RollingUpdate' or 'OnDelete'")
	}
}

func (c objectsChecker) daemonSetStrategy(path *field.Path, s *appsv1.DaemonSetUpdateStrategy) {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case "", appsv1.RollingUpdateDaemonSetStrategyType:
		r := s.RollingUpdate
		if r == nil {
			return
		}
		at := path.Child("rollingUpdate")
		c.share(at.Child("maxUnavailable"), r.MaxUnavailable, 100)
		c.share(at.Child("maxSurge"), r.MaxSurge, 100)
		surge := r.MaxSurge != nil && !isZero(r.MaxSurge)
		switch {
		case surge && r.MaxUnavailable != nil && !isZero(r.MaxUnavailable):
			c.Invalid(at.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero")
		case !surge && isZero(r.MaxUnavailable):
			c.Required(at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0")
		}
	default:
		c.Add(field.NotSupported(path, s.Type, []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
}

// share checks a number or percentage of pods.
func (c objectsChecker) share(path *field.Path, v *intstr.IntOrString, most int) {
	if v == nil {
		return
	}
	if v.Type == intstr.Int {
		notNegative(c, path, &v.IntVal)
		return
	}
	c.Invalid(path, v.StrVal, validation.IsValidPercent(v.StrVal)...)
	if n, ok := percent(v); ok && n > most {
		c.Invalid(path, v.StrVal, fmt.Sprintf("must not be greater than %d%%", most))
	}
}

// percent returns the number of a percentage.
func percent(v *intstr.IntOrString) (n int, ok bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, err == nil
}

// isZero reports whether a value is present and zero.
func isZero(v *intstr.IntOrString) bool {
	if v == nil {
		return false
	}
	if n, ok := percent(v); ok {
		return n == 0
	}
	return v.IntValue() == 0
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
		c.cronJob(path, &o.Spec)
		path = path.Child("jobTemplate", "spec")
	default:
		if effective != corev1.RestartPolicyAlways {
			check.OneOf(c.Checker, path.Child("template", "spec", "restartPolicy"), effective, corev1.RestartPolicyAlways)
		}
		return
	}
	switch at := path.Child("template", "spec", "restartPolicy"); written {
	case "", corev1.RestartPolicyAlways:
		c.Required(at, `valid values: "OnFailure", "Never"`)
	default:
		check.OneOf(c.Checker, at, written, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
	if m := spec.CompletionMode; m != nil {
		check.OneOf(c.Checker, path.Child("completionMode"), *m, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
		if *m == batchv1.IndexedCompletion && spec.Completions == nil {
			c.Required(path.Child("completions"), "when completion mode is Indexed")
		}
	}
	if p := spec.PodReplacementPolicy; p != nil && spec.PodFailurePolicy == nil {
		check.OneOf(c.Checker, path.Child("podReplacementPolicy"), *p, batchv1.Failed, batchv1.TerminatingOrFailed)
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

// cronJob checks when a CronJob runs.
func (c objectsChecker) cronJob(path *field.Path, s *batchv1.CronJobSpec) {
	zone := s.TimeZone
	if zone != nil {
		at := path.Child("timeZone")
		if *zone == "" {
			c.Invalid(at, *zone, "timeZone must be nil or non-empty string")
		} else if _, err := time.LoadLocation(*zone); err != nil {
			c.Invalid(at, *zone, err.Error())
		}
	}
	withoutZone := *s
	withoutZone.TimeZone = nil
	if s.Schedule == "" {
		c.Required(path.Child("schedule"), "")
	} else if _, err := manifests.CronSchedule(&withoutZone); err != nil {
		c.Invalid(path.Child("schedule"), s.Schedule, err.Error())
	}
	switch p := s.ConcurrencyPolicy; p {
	case "", batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent:
	default:
		check.OneOf(c.Checker, path.Child("concurrencyPolicy"), p, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	}
	if t := s.JobTemplate.Spec; t.Selector != nil {
		c.Invalid(path.Child("jobTemplate", "spec", "selector"), t.Selector, "`selector` will be auto-generated")
	}
}
