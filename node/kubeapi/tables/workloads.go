package tables

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
)

// template has the columns of workloads about their pods.
const template = ",*Containers,*Images,*Selector"

// workloads adds the kinds that create pods.
func workloads(all map[schema.GroupVersionKind]*table) {
	apps, batch := appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion
	all[apps.WithKind("Deployment")] = show("Name,Ready,Up-to-date,Available,Age"+template, func(o *appsv1.Deployment, now time.Time) []any {
		return append([]any{
			o.Name, readyOf(o.Status.ReadyReplicas, o.Spec.Replicas), int64(o.Status.UpdatedReplicas), int64(o.Status.AvailableReplicas), created(o, now),
		}, templateOf(&o.Spec.Template, deploymentSelector(o))...)
	})
	all[apps.WithKind("ReplicaSet")] = show("Name,#Desired,#Current,#Ready,Age"+template, func(o *appsv1.ReplicaSet, now time.Time) []any {
		return append([]any{o.Name, int64(ptr.Deref(o.Spec.Replicas, 0)), int64(o.Status.Replicas), int64(o.Status.ReadyReplicas), created(o, now)},
			templateOf(&o.Spec.Template, metav1.FormatLabelSelector(o.Spec.Selector))...)
	})
	all[corev1.SchemeGroupVersion.WithKind("ReplicationController")] = show("Name,#Desired,#Current,#Ready,Age"+template,
		func(o *corev1.ReplicationController, now time.Time) []any {
			t := o.Spec.Template
			if t == nil {
				t = &corev1.PodTemplateSpec{}
			}
			return append([]any{o.Name, int64(ptr.Deref(o.Spec.Replicas, 0)), int64(o.Status.Replicas), int64(o.Status.ReadyReplicas), created(o, now)},
				templateOf(t, labels.FormatLabels(o.Spec.Selector))...)
		})
	all[apps.WithKind("StatefulSet")] = show("Name,Ready,Age,*Containers,*Images", func(o *appsv1.StatefulSet, now time.Time) []any {
		cells := append([]any{o.Name, readyOf(o.Status.ReadyReplicas, o.Spec.Replicas), created(o, now)}, templateOf(&o.Spec.Template, "")...)
		return cells[:len(cells)-1]
	})
	all[apps.WithKind("DaemonSet")] = show("Name,#Desired,#Current,#Ready,#Up-to-date,#Available,Node Selector,Age"+template,
		func(o *appsv1.DaemonSet, now time.Time) []any {
			s := &o.Status
			return append([]any{
				o.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady), int64(s.UpdatedNumberScheduled),
				int64(s.NumberAvailable), labels.FormatLabels(o.Spec.Template.Spec.NodeSelector), created(o, now),
			}, templateOf(&o.Spec.Template, metav1.FormatLabelSelector(o.Spec.Selector))...)
		})
	all[apps.WithKind("ControllerRevision")] = show("Name,Controller,Revision,Age", func(o *appsv1.ControllerRevision, now time.Time) []any {
		controller := "<none>"
		if ref := metav1.GetControllerOf(o); ref != nil {
			group := ""
			if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && gv.Group != "" {
				group = "." + gv.Group
			}
			controller = strings.ToLower(ref.Kind) + group + "/" + ref.Name
		}
		return []any{o.Name, controller, o.Revision, created(o, now)}
	})
	all[batch.WithKind("Job")] = show("Name,Status,Completions,Duration,Age"+template, func(o *batchv1.Job, now time.Time) []any {
		return append([]any{o.Name, jobStatus(o), completions(o), jobDuration(o, now), created(o, now)},
			templateOf(&o.Spec.Template, metav1.FormatLabelSelector(o.Spec.Selector))...)
	})
	all[batch.WithKind("CronJob")] = show("Name,Schedule,Timezone,?Suspend,#Active,Last Schedule,Age"+template, cronJobRow)
}

func cronJobRow(o *batchv1.CronJob, now time.Time) []any {
	zone, suspend, last := none, unset, none
	if o.Spec.TimeZone != nil {
		zone = *o.Spec.TimeZone
	}
	if s := o.Spec.Suspend; s != nil && *s {
		suspend = "True"
	} else if s != nil {
		suspend = "False"
	}
	if t := o.Status.LastScheduleTime; t != nil {
		last = since(t.Time, now)
	}
	job := &o.Spec.JobTemplate.Spec
	return append([]any{o.Name, o.Spec.Schedule, zone, suspend, int64(len(o.Status.Active)), last, created(o, now)},
		templateOf(&job.Template, metav1.FormatLabelSelector(job.Selector))...)
}

// templateOf returns the cells of the columns in template.
func templateOf(t *corev1.PodTemplateSpec, selector string) []any {
	var names, images []string
	for _, c := range t.Spec.Containers {
		names, images = append(names, c.Name), append(images, c.Image)
	}
	return []any{strings.Join(names, ","), strings.Join(images, ","), selector}
}

// deploymentSelector is empty for a Deployment that selects everything, as in kubectl; other kinds show <none>.
func deploymentSelector(o *appsv1.Deployment) string {
	s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err != nil {
		return "<invalid>"
	}
	return s.String()
}

func readyOf(ready int32, wanted *int32) string {
	return fmt.Sprintf("%d/%d", ready, ptr.Deref(wanted, 0))
}

// jobStatus returns the status of a Job from the first condition that determines it.
func jobStatus(o *batchv1.Job) string {
	is := func(t batchv1.JobConditionType) bool {
		for _, c := range o.Status.Conditions {
			if c.Type == t {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case o.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(o *batchv1.Job) string {
	switch parallelism := int64(ptr.Deref(o.Spec.Parallelism, 0)); {
	case o.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", o.Status.Succeeded, *o.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", o.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", o.Status.Succeeded)
}

func jobDuration(o *batchv1.Job, now time.Time) string {
	switch {
	case o.Status.StartTime == nil:
		return ""
	case o.Status.CompletionTime != nil:
		now = o.Status.CompletionTime.Time
	}
	return duration.HumanDuration(now.Sub(o.Status.StartTime.Time))
}
