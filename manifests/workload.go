package manifests

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodTemplate returns the template of a workload, nil for other objects.
func PodTemplate(obj metav1.Object) *corev1.PodTemplateSpec {
	t, _, _ := podTemplate(obj)
	return t
}

// podTemplate returns the template of a workload, its selector, and the path of the spec they are in.
func podTemplate(obj metav1.Object) (t *corev1.PodTemplateSpec, selector *metav1.LabelSelector, spec *field.Path) {
	spec = field.NewPath("spec")
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template, o.Spec.Selector, spec
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, o.Spec.Selector, spec
	case *corev1.ReplicationController:
		return o.Spec.Template, equalTo(o.Spec.Selector), spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template, o.Spec.Selector, spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template, o.Spec.Selector, spec
	case *batchv1.Job:
		return &o.Spec.Template, nil, spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, nil, spec.Child("jobTemplate", "spec")
	}
	return nil, nil, nil
}

// equalTo is the selector of a ReplicationController, which is a map of labels.
func equalTo(all map[string]string) *metav1.LabelSelector {
	if len(all) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: all}
}

// asReplicaSet turns a valid ReplicationController into the ReplicaSet that it runs as; other objects stay what they are.
func asReplicaSet(obj metav1.Object) metav1.Object {
	rc, ok := obj.(*corev1.ReplicationController)
	if !ok {
		return obj
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds, Selector: equalTo(rc.Spec.Selector), Template: *rc.Spec.Template,
		},
	}
}

// templateProblems checks the pods that a workload would make, and what it says about their number.
func (l *loader) templateProblems(obj metav1.Object, it item) (found, notes []problem) {
	t, selector, path := podTemplate(obj)
	if t == nil {
		return nil, nil
	}
	token := defuseTokenVolume(&t.Spec)
	inner := it
	inner.prefix = it.path(path.Child("template").String())
	pod := &corev1.Pod{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	pod.Name, pod.Namespace, pod.GenerateName = obj.GetName()+"-0", obj.GetNamespace(), ""
	if s, ok := obj.(*appsv1.StatefulSet); ok {
		for i := range s.Spec.VolumeClaimTemplates {
			// What becomes of the claims is checked when they are made; here the mounts need something to refer to.
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: s.Spec.VolumeClaimTemplates[i].Name})
		}
	}
	found, notes = refusals(pod, inner)
	setDefaults(pod)
	for _, e := range validatePod(pod) {
		if e.Field == "metadata.name" {
			continue // made of the workload's own, which is checked
		}
		if p := fromValidation(e, inner, &pod.Spec); !masked(p.path, found) && !explained(e, p.path, found) {
			found = append(found, p)
		}
	}
	found = append(found, l.notHere(pod, inner)...)
	c := &checker{}
	if selector != nil || isApps(obj) {
		c.selects(path.Child("selector"), selector, t.Labels)
	}
	c.job(obj, pod.Spec.RestartPolicy, t.Spec.RestartPolicy)
	c.counts(obj)
	for _, e := range c.errs {
		found = append(found, fromValidation(e, it, nil))
	}
	token.drop(&t.Spec)
	return found, append(notes, token.notes(inner)...)
}

func isApps(obj metav1.Object) bool {
	switch obj.(type) {
	case *batchv1.Job, *batchv1.CronJob:
		return false
	}
	return true
}

// selects checks that a workload would know its own pods, as Kubernetes wants.
func (c *checker) selects(path *field.Path, selector *metav1.LabelSelector, have map[string]string) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		c.required(path, "")
		return
	}
	c.add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)...)
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err == nil && !s.Matches(labels.Set(have)) {
		c.invalid(path, have, "`selector` does not match template `labels`")
	}
}

// job checks what is particular to Jobs: what of them is not carried out is refused.
func (c *checker) job(obj metav1.Object, effective, written corev1.RestartPolicy) {
	path := field.NewPath("spec")
	var spec *batchv1.JobSpec
	switch o := obj.(type) {
	case *batchv1.Job:
		spec = &o.Spec
	case *batchv1.CronJob:
		spec = &o.Spec.JobTemplate.Spec
		if _, err := CronSchedule(&o.Spec); err != nil {
			c.invalid(path.Child("schedule"), o.Spec.Schedule, err.Error())
		}
		switch o.Spec.ConcurrencyPolicy {
		case "", batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent:
		default:
			oneOf(c, path.Child("concurrencyPolicy"), o.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
		}
		path = path.Child("jobTemplate", "spec")
	default:
		if effective != corev1.RestartPolicyAlways {
			oneOf(c, path.Child("template", "spec", "restartPolicy"), effective, corev1.RestartPolicyAlways)
		}
		return
	}
	if written == "" || written == corev1.RestartPolicyAlways {
		c.add(field.Required(path.Child("template", "spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	}
	if spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion && spec.Completions == nil {
		c.required(path.Child("completions"), "when completion mode is Indexed")
	}
	for name, value := range map[string]any{
		"podFailurePolicy": spec.PodFailurePolicy, "successPolicy": spec.SuccessPolicy,
		"backoffLimitPerIndex": spec.BackoffLimitPerIndex, "maxFailedIndexes": spec.MaxFailedIndexes,
	} {
		if !reflect.ValueOf(value).IsNil() {
			c.forbidden(path.Child(name), "monopod does not carry it out")
		}
	}
}

// CronSchedule reads when a CronJob runs. Without a time zone it is the machine's.
func CronSchedule(spec *batchv1.CronJobSpec) (cron.Schedule, error) {
	text := spec.Schedule
	if strings.Contains(text, "TZ") {
		return nil, fmt.Errorf("schedule %q: use spec.timeZone instead of TZ", text)
	}
	if spec.TimeZone != nil {
		text = "CRON_TZ=" + *spec.TimeZone + " " + text
	}
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %w", spec.Schedule, err)
	}
	return s, nil
}
