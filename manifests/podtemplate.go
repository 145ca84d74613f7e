package manifests

import (
	"fmt"
	"strings"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodTemplate returns the template of a workload, nil for other objects.
func PodTemplate(obj metav1.Object) *corev1.PodTemplateSpec {
	t, _, _ := TemplateOf(obj)
	return t
}

// TemplateOf returns the template of a workload, its selector, and the path of the spec they are in.
func TemplateOf(obj metav1.Object) (t *corev1.PodTemplateSpec, selector *metav1.LabelSelector, spec *field.Path) {
	spec = field.NewPath("spec")
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template, o.Spec.Selector, spec
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, o.Spec.Selector, spec
	case *corev1.ReplicationController:
		return o.Spec.Template, EqualTo(o.Spec.Selector), spec
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

// EqualTo is the selector of a ReplicationController, which is a map of labels.
func EqualTo(all map[string]string) *metav1.LabelSelector {
	if len(all) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: all}
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
