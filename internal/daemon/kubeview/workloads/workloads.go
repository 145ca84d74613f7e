// Package workloads computes the status of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs from their pods, like the
// Kubernetes controllers: `kubectl rollout status`, `kubectl wait` and Helm read it.
//
// It is pure: no clock, no state, no goroutines. It must not decide which pods run, nor modify its arguments.
package workloads

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Moment is the time for which a status is computed.
type Moment struct {
	Now time.Time
	// Since is when statuses were first remembered: the status of an older object that has none before is lost, and not new.
	Since time.Time
	// Due is when the status changes although nothing else does; zero: never. Functions of this package bring it forward.
	Due time.Time
}

func (m *Moment) wake(t time.Time) {
	if t.After(m.Now) && (m.Due.IsZero() || t.Before(m.Due)) {
		m.Due = t
	}
}

// Tally counts the pods of a workload.
type Tally struct {
	// Replicas are the pods that are neither terminated nor being removed.
	Replicas, Running, Ready, Available, Terminating int32
	// Updated are the pods of the current template.
	Updated, UpdatedReady, UpdatedAvailable int32
	// Succeeded and Failed are the terminated pods.
	Succeeded, Failed int32
	// Other is the revision of a pod with a different template; empty if there is none.
	Other string
	// From is the revision from which an update of a StatefulSet started, OfFrom is the number of its pods; empty: unknown.
	From   string
	OfFrom int32
}

// Since adds the pods of the revision from which an update started.
func (t Tally) Since(revision string, pods []*corev1.Pod) Tally {
	t.From = revision
	for _, p := range pods {
		if ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed; ended || p.DeletionTimestamp != nil || behind(p) {
			continue
		}
		if RevisionOf(p) == revision {
			t.OfFrom++
		}
	}
	return t
}

// behind reports whether the containers of a pod still belong to an earlier manifest: monopod updates pods in place, and already shows the
// labels of the new manifest.
func behind(p *corev1.Pod) bool {
	return p.Status.ObservedGeneration > 0 && p.Status.ObservedGeneration < p.Generation
}

// RevisionOf returns the revision of the template that a pod was created from.
func RevisionOf(p *corev1.Pod) string {
	if r := p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; r != "" {
		return r
	}
	return p.Labels[appsv1.ControllerRevisionHashLabelKey]
}

// Count counts pods. revision is the revision of the current template; a pod is available once it has been ready for minReady seconds.
func Count(m *Moment, pods []*corev1.Pod, revision string, minReady int32) Tally {
	var t Tally
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			t.Succeeded++
			continue
		case p.Status.Phase == corev1.PodFailed:
			t.Failed++
			continue
		case p.DeletionTimestamp != nil:
			t.Terminating++
			continue
		}
		t.Replicas++
		if p.Status.Phase == corev1.PodRunning {
			t.Running++
		}
		updated := RevisionOf(p) == revision && !behind(p)
		if updated {
			t.Updated++
		} else if !behind(p) {
			t.Other = RevisionOf(p)
		}
		since, ready := readySince(p)
		if !ready {
			continue
		}
		t.Ready++
		if updated {
			t.UpdatedReady++
		}
		if at := since.Add(time.Duration(minReady) * time.Second); minReady > 0 && at.After(m.Now) {
			m.wake(at)
			continue
		}
		t.Available++
		if updated {
			t.UpdatedAvailable++
		}
	}
	return t
}

func readySince(p *corev1.Pod) (time.Time, bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// maxUnavailable is how many pods of an available Deployment may be unavailable.
func maxUnavailable(s *appsv1.DeploymentSpec) int32 {
	replicas := ptr.Deref(s.Replicas, 1)
	if s.Strategy.Type == appsv1.RecreateDeploymentStrategyType || replicas == 0 {
		return 0
	}
	surge, missing := intstr.FromString("25%"), intstr.FromString("25%")
	if r := s.Strategy.RollingUpdate; r != nil {
		if r.MaxSurge != nil {
			surge = *r.MaxSurge
		}
		if r.MaxUnavailable != nil {
			missing = *r.MaxUnavailable
		}
	}
	more, err1 := intstr.GetScaledValueFromIntOrPercent(&surge, int(replicas), true)
	less, err2 := intstr.GetScaledValueFromIntOrPercent(&missing, int(replicas), false)
	if err1 != nil || err2 != nil {
		return 0
	}
	if more == 0 && less == 0 {
		less = 1 // otherwise no pod could ever be replaced
	}
	return min(int32(less), replicas)
}

// Deployment returns the status of a Deployment. replicaSet is the name of the current ReplicaSet, before the last status.
func Deployment(m *Moment, d *appsv1.Deployment, t Tally, replicaSet string, before *appsv1.DeploymentStatus) appsv1.DeploymentStatus {
	want := ptr.Deref(d.Spec.Replicas, 1)
	s := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: t.Replicas, UpdatedReplicas: t.Updated, ReadyReplicas: t.Ready, AvailableReplicas: t.Available,
		UnavailableReplicas: max(want-t.Available, 0), TerminatingReplicas: &t.Terminating,
	}
	available := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.",
	}
	if t.Available < want-maxUnavailable(&d.Spec) {
		available.Status, available.Reason, available.Message = corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
	}
	s.Conditions = []appsv1.DeploymentCondition{stamped(m, available, before)}
	s.Conditions = append(s.Conditions, progress(m, d, &s, replicaSet, before))
	return s
}

// ReplicaFailure returns the condition of a Deployment of which a pod cannot be created, for a reason.
func ReplicaFailure(m *Moment, why string, before *appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	return stamped(m, appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: why,
	}, before)
}

// Reasons of the condition Progressing around a pause, which is no time without progress.
const (
	reasonPaused  = "DeploymentPaused"
	reasonResumed = "DeploymentResumed"
)

// paused returns the condition Progressing of a paused Deployment, which was old. A pause does not hide that a deadline was exceeded.
func paused(m *Moment, old *appsv1.DeploymentCondition, before *appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	if old != nil && old.Reason == "ProgressDeadlineExceeded" {
		return *old
	}
	return stamped(m, appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionUnknown, Reason: reasonPaused, Message: "Deployment is paused",
	}, before)
}

// resumes reports whether a Deployment has been resumed, and has made no progress since.
func resumes(old *appsv1.DeploymentCondition, before, s *appsv1.DeploymentStatus) bool {
	return old != nil && (old.Reason == reasonPaused || old.Reason == reasonResumed && !moved(before, s))
}

// progress returns the condition Progressing.
func progress(m *Moment, d *appsv1.Deployment, s *appsv1.DeploymentStatus, replicaSet string, before *appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	c := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue}
	deadline := int32(600)
	if d.Spec.ProgressDeadlineSeconds != nil {
		deadline = *d.Spec.ProgressDeadlineSeconds
	}
	want, old := ptr.Deref(d.Spec.Replicas, 1), conditionOf(before, appsv1.DeploymentProgressing)
	if d.Spec.Paused {
		return paused(m, old, before)
	}
	settled := old != nil && old.Reason == "NewReplicaSetAvailable" && s.Replicas == s.UpdatedReplicas && before.ObservedGeneration == s.ObservedGeneration
	if before == nil && d.CreationTimestamp.Time.Before(m.Since) {
		settled = s.Replicas == s.UpdatedReplicas // when it was rolled out is not known, so it has no deadline
	}
	if settled || s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want {
		c.Reason, c.Message = "NewReplicaSetAvailable", "ReplicaSet \""+replicaSet+"\" has successfully progressed."
		return stamped(m, c, before)
	}
	since := m.Now
	if old != nil && old.Reason != reasonPaused && old.Reason != "NewReplicaSetAvailable" && !moved(before, s) {
		since = old.LastUpdateTime.Time
	}
	end := since.Add(time.Duration(deadline) * time.Second)
	if deadline < 1<<31-1 && !end.After(m.Now) {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ProgressDeadlineExceeded", "ReplicaSet \""+replicaSet+"\" has timed out progressing."
		return stamped(m, c, before)
	}
	if deadline < 1<<31-1 {
		m.wake(end)
	}
	if resumes(old, before, s) {
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, reasonResumed, "Deployment is resumed"
		return stamped(m, c, before)
	}
	c.Reason, c.Message = "ReplicaSetUpdated", "ReplicaSet \""+replicaSet+"\" is progressing."
	c = stamped(m, c, before)
	c.LastUpdateTime = metav1.NewTime(since)
	return c
}

// moved reports whether a Deployment has made progress.
func moved(before, now *appsv1.DeploymentStatus) bool {
	return now.ObservedGeneration != before.ObservedGeneration || now.UpdatedReplicas > before.UpdatedReplicas ||
		now.Replicas-now.UpdatedReplicas < before.Replicas-before.UpdatedReplicas || now.ReadyReplicas > before.ReadyReplicas ||
		now.AvailableReplicas > before.AvailableReplicas
}

func conditionOf(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	if s == nil {
		return nil
	}
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// stamped sets the times of a condition.
func stamped(m *Moment, c appsv1.DeploymentCondition, before *appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	now := metav1.NewTime(m.Now)
	c.LastUpdateTime, c.LastTransitionTime = now, now
	old := conditionOf(before, c.Type)
	switch {
	case old == nil:
	case old.Status == c.Status && old.Reason == c.Reason:
		c.LastUpdateTime, c.LastTransitionTime, c.Message = old.LastUpdateTime, old.LastTransitionTime, old.Message
	case old.Status == c.Status:
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

// ReplicaSet returns the status of a ReplicaSet.
func ReplicaSet(r *appsv1.ReplicaSet, t Tally) appsv1.ReplicaSetStatus {
	return appsv1.ReplicaSetStatus{
		ObservedGeneration: r.Generation, Replicas: t.Replicas, FullyLabeledReplicas: t.Replicas, ReadyReplicas: t.Ready, AvailableReplicas: t.Available,
		TerminatingReplicas: &t.Terminating,
	}
}

// Controller returns the status of a ReplicationController.
func Controller(r *corev1.ReplicationController, t Tally) corev1.ReplicationControllerStatus {
	return corev1.ReplicationControllerStatus{
		ObservedGeneration: r.Generation, Replicas: t.Replicas, FullyLabeledReplicas: t.Replicas, ReadyReplicas: t.Ready, AvailableReplicas: t.Available,
	}
}

// StatefulSet returns the status of a StatefulSet. revision is the revision of its template.
func StatefulSet(s *appsv1.StatefulSet, t Tally, revision string) appsv1.StatefulSetStatus {
	st := appsv1.StatefulSetStatus{
		ObservedGeneration: s.Generation, Replicas: t.Replicas, ReadyReplicas: t.Ready, AvailableReplicas: t.Available, UpdatedReplicas: t.Updated,
		UpdateRevision: s.Name + "-" + revision, CollisionCount: new(int32),
	}
	st.CurrentRevision, st.CurrentReplicas = st.UpdateRevision, t.Updated
	switch {
	case t.From != "":
		if t.From != revision && !complete(s, t) {
			st.CurrentRevision, st.CurrentReplicas = s.Name+"-"+t.From, t.OfFrom
		}
	case t.Other != "":
		st.CurrentRevision, st.CurrentReplicas = s.Name+"-"+t.Other, t.Replicas-t.Updated
	}
	return st
}

// complete reports whether an update of a StatefulSet has ended. Those of the strategy OnDelete never do, as in Kubernetes.
func complete(s *appsv1.StatefulSet, t Tally) bool {
	want := ptr.Deref(s.Spec.Replicas, 1)
	return s.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && t.Updated == want && t.Ready == want && t.Replicas == want
}

// DaemonSet returns the status of a DaemonSet, which has one pod on the only node, if that matches: for other nodes it wants none.
func DaemonSet(d *appsv1.DaemonSet, t Tally, matches bool) appsv1.DaemonSetStatus {
	if !matches {
		return appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, NumberMisscheduled: min(t.Running, 1)}
	}
	available := min(t.Available, 1)
	return appsv1.DaemonSetStatus{
		ObservedGeneration: d.Generation, DesiredNumberScheduled: 1, CurrentNumberScheduled: min(t.Replicas, 1), UpdatedNumberScheduled: min(t.Updated, 1),
		NumberReady: min(t.Ready, 1), NumberAvailable: available, NumberUnavailable: 1 - available,
	}
}
