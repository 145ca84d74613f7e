package objects

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"monopod/manifests"
)

// Facts are what status comes from.
type Facts struct {
	Pods []*corev1.Pod
	// Pending are the pods that still run as an earlier manifest says.
	Pending map[manifests.Key]bool
	// Ends are Complete or Failed for Jobs, LastRuns the times of the schedule for which CronJobs began a Job; both by "namespace/name".
	Ends     map[string]string
	LastRuns map[string]time.Time
	// Revision returns the value of the label pod-template-hash for pods of a template.
	Revision func(corev1.PodTemplateSpec) string
	// Matches reports whether pods with a spec select this machine; if nil, all do.
	Matches func(*corev1.PodSpec) bool
}

// tally counts the pods of a workload.
type tally struct {
	all, active, ready, updated, succeeded, failed int32
}

func (f Facts) tally(o *manifests.Object) tally {
	var n tally
	revision := ""
	if t := manifests.PodTemplate(o.Object); t != nil && f.Revision != nil {
		revision = f.Revision(*t)
	}
	for _, pod := range f.Pods {
		if !Owns(o.Kind, o.Object, pod) {
			continue
		}
		n.all++
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			n.succeeded++
		case corev1.PodFailed:
			n.failed++
		default:
			n.active++
		}
		current := pod.Labels["pod-template-hash"] == revision || pod.Labels["controller-revision-hash"] == revision
		if current && !f.Pending[manifests.Key{Namespace: pod.Namespace, Name: pod.Name}] {
			n.updated++
		}
		if manifests.IsReady(pod) && pod.DeletionTimestamp == nil {
			n.ready++
		}
	}
	return n
}

// Show returns an object as clients see it: with its kind, more annotations as far as they have a value, the status that its pods give it,
// and without the values of a Secret. It does not change the object.
func (f Facts) Show(o *manifests.Object, more map[string]string) metav1.Object {
	copied, ok := asWritten(o).(interface{ DeepCopyObject() runtime.Object })
	if !ok {
		return o.Object
	}
	object := copied.DeepCopyObject()
	shown, ok := object.(metav1.Object)
	if !ok {
		return o.Object
	}
	if object.GetObjectKind().GroupVersionKind().Kind == "" {
		object.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(o.Kind))
	}
	notes := shown.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	for name, value := range more {
		if value != "" {
			notes[name] = value
		}
	}
	shown.SetAnnotations(notes)
	f.status(o, shown)
	return shown
}

// asWritten returns an object in the type of its kind: a ReplicationController runs as a ReplicaSet.
func asWritten(o *manifests.Object) metav1.Object {
	s, ok := o.Object.(*appsv1.ReplicaSet)
	if !ok || o.Kind != "ReplicationController" {
		return o.Object
	}
	rc := &corev1.ReplicationController{ObjectMeta: s.ObjectMeta, Spec: corev1.ReplicationControllerSpec{
		Replicas: s.Spec.Replicas, MinReadySeconds: s.Spec.MinReadySeconds, Template: &s.Spec.Template,
	}}
	if s.Spec.Selector != nil {
		rc.Spec.Selector = s.Spec.Selector.MatchLabels
	}
	rc.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(o.Kind))
	return rc
}

func (f Facts) status(o *manifests.Object, shown metav1.Object) {
	n := f.tally(o)
	id := shown.GetNamespace() + "/" + shown.GetName()
	switch s := shown.(type) {
	case *corev1.Secret:
		for k := range s.Data {
			s.Data[k] = []byte{}
		}
		s.StringData = nil
		delete(s.Annotations, corev1.LastAppliedConfigAnnotation) // kubectl puts the whole object into it
	case *appsv1.Deployment:
		s.Status = appsv1.DeploymentStatus{Replicas: n.active, UpdatedReplicas: n.updated, ReadyReplicas: n.ready, AvailableReplicas: n.ready, UnavailableReplicas: max(ptr.Deref(s.Spec.Replicas, 1)-n.ready, 0)}
		s.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: isTrue(n.ready >= ptr.Deref(s.Spec.Replicas, 1))}}
	case *appsv1.ReplicaSet:
		s.Status = appsv1.ReplicaSetStatus{Replicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready, FullyLabeledReplicas: n.active}
	case *corev1.ReplicationController:
		s.Status = corev1.ReplicationControllerStatus{Replicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready, FullyLabeledReplicas: n.active}
	case *appsv1.StatefulSet:
		s.Status = appsv1.StatefulSetStatus{Replicas: n.active, ReadyReplicas: n.ready, AvailableReplicas: n.ready, CurrentReplicas: n.active, UpdatedReplicas: n.updated}
	case *appsv1.DaemonSet:
		if f.Matches != nil && !f.Matches(&s.Spec.Template.Spec) {
			s.Status = appsv1.DaemonSetStatus{} // it is for other machines
			return
		}
		s.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: min(n.active, 1), NumberReady: min(n.ready, 1), NumberAvailable: min(n.ready, 1), UpdatedNumberScheduled: min(n.updated, 1)}
	case *batchv1.Job:
		s.Status = batchv1.JobStatus{Active: n.active, Ready: &n.ready, Succeeded: n.succeeded, Failed: n.failed}
		if end := f.Ends[id]; end != "" {
			s.Status.Active = 0
			s.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobConditionType(end), Status: corev1.ConditionTrue}}
			if batchv1.JobConditionType(end) == batchv1.JobComplete {
				s.Status.Succeeded = max(n.succeeded, completions(s))
			}
		}
	case *batchv1.CronJob:
		s.Status = batchv1.CronJobStatus{}
		for _, pod := range f.Pods {
			if Owns(o.Kind, o.Object, pod) && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				s.Status.Active = append(s.Status.Active, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name})
			}
		}
		if at := f.LastRuns[id]; !at.IsZero() {
			s.Status.LastScheduleTime = &metav1.Time{Time: at}
		}
	}
}

func isTrue(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// completions is how many pods of a Job must succeed.
func completions(j *batchv1.Job) int32 {
	if j.Spec.Completions != nil {
		return *j.Spec.Completions
	}
	return 1
}
