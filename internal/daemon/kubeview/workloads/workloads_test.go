package workloads_test

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/daemon/kubeview/workloads"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func moment(after time.Duration) *workloads.Moment {
	return &workloads.Moment{Now: start.Add(after)}
}

// pod returns a pod of a revision, which became what it is at the start.
func pod(revision, state string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: revision}}}
	p.Status.Phase = corev1.PodRunning
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(start)}
	switch state {
	case "ready":
		ready.Status = corev1.ConditionTrue
	case "leaving":
		ready.Status, p.DeletionTimestamp = corev1.ConditionTrue, &metav1.Time{Time: start}
	case "succeeded":
		p.Status.Phase = corev1.PodSucceeded
	case "failed":
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.Conditions = []corev1.PodCondition{ready}
	return p
}

func TestPodsAreCounted(t *testing.T) {
	all := []*corev1.Pod{pod("a", "ready"), pod("a", "starting"), pod("b", "ready"), pod("a", "leaving"), pod("a", "succeeded"), pod("a", "failed")}
	m := moment(0)
	got := workloads.Count(m, all, "a", 0)
	want := workloads.Tally{Replicas: 3, Running: 3, Ready: 2, Available: 2, Terminating: 1, Updated: 2, UpdatedReady: 1, UpdatedAvailable: 1, Succeeded: 1, Failed: 1, Other: "b"}
	if got != want || !m.Due.IsZero() {
		t.Errorf("%+v, due %v", got, m.Due)
	}
	m = moment(3 * time.Second)
	if got := workloads.Count(m, all, "a", 10); got.Available != 0 || got.Ready != 2 || !m.Due.Equal(start.Add(10*time.Second)) {
		t.Errorf("before they are available: %+v, due %v", got, m.Due)
	}
	m = moment(10 * time.Second)
	if got := workloads.Count(m, all, "a", 10); got.Available != 2 || !m.Due.IsZero() {
		t.Errorf("once they are available: %+v, due %v", got, m.Due)
	}
}

func deployment(replicas int32, change func(*appsv1.DeploymentSpec)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 4}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	if change != nil {
		change(&d.Spec)
	}
	return d
}

// condition returns "status reason" of a condition.
func condition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func TestConditionsOfDeployments(t *testing.T) {
	recreate := func(s *appsv1.DeploymentSpec) { s.Strategy.Type = appsv1.RecreateDeploymentStrategyType }
	rolling := func(surge, missing string) func(*appsv1.DeploymentSpec) {
		return func(s *appsv1.DeploymentSpec) {
			x, y := intstr.Parse(surge), intstr.Parse(missing)
			s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &x, MaxUnavailable: &y}
		}
	}
	const up, down = "True MinimumReplicasAvailable", "False MinimumReplicasUnavailable"
	const done, moves = "True NewReplicaSetAvailable", "True ReplicaSetUpdated"
	for name, c := range map[string]struct {
		d                      *appsv1.Deployment
		t                      workloads.Tally
		available, progressing string
		unavailable            int32
	}{
		"no pods yet":                {deployment(1, nil), workloads.Tally{}, down, moves, 1},
		"no pods are wanted":         {deployment(0, nil), workloads.Tally{}, up, done, 0},
		"all are available":          {deployment(2, nil), workloads.Tally{Replicas: 2, Ready: 2, Available: 2, Updated: 2}, up, done, 0},
		"a quarter is missing":       {deployment(4, nil), workloads.Tally{Replicas: 4, Ready: 3, Available: 3, Updated: 4}, up, moves, 1},
		"half is missing":            {deployment(4, nil), workloads.Tally{Replicas: 4, Ready: 2, Available: 2, Updated: 4}, down, moves, 2},
		"one is missing, recreate":   {deployment(4, recreate), workloads.Tally{Replicas: 4, Ready: 3, Available: 3, Updated: 4}, down, moves, 1},
		"one is missing, two may be": {deployment(4, rolling("0", "2")), workloads.Tally{Replicas: 4, Ready: 2, Available: 2, Updated: 4}, up, moves, 2},
		"neither more nor less":      {deployment(1, rolling("0", "0%")), workloads.Tally{Replicas: 1, Updated: 1}, up, moves, 1},
		"an old one is left":         {deployment(2, nil), workloads.Tally{Replicas: 3, Ready: 3, Available: 3, Updated: 2}, up, moves, 0},
		"one is not updated":         {deployment(2, nil), workloads.Tally{Replicas: 2, Ready: 2, Available: 2, Updated: 1, Other: "b"}, up, moves, 0},
		"it is paused":               {deployment(2, func(s *appsv1.DeploymentSpec) { s.Paused = true }), workloads.Tally{}, down, "Unknown DeploymentPaused", 2},
	} {
		s := workloads.Deployment(moment(0), c.d, c.t, "web-a", nil)
		if got := condition(&s, appsv1.DeploymentAvailable); got != c.available {
			t.Errorf("%s: Available is %s", name, got)
		}
		if got := condition(&s, appsv1.DeploymentProgressing); got != c.progressing {
			t.Errorf("%s: Progressing is %s", name, got)
		}
		if s.ObservedGeneration != 4 || s.UnavailableReplicas != c.unavailable || s.UpdatedReplicas != c.t.Updated {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestTimesOfConditions: a status that has not changed is the same at another time, and transitions keep the time of theirs.
func TestTimesOfConditions(t *testing.T) {
	d := deployment(2, nil)
	starting := workloads.Tally{Replicas: 2, Updated: 2}
	first := workloads.Deployment(moment(0), d, starting, "web-a", nil)
	if again := workloads.Deployment(moment(time.Minute), d, starting, "web-a", &first); !reflect.DeepEqual(first, again) {
		t.Errorf("%+v\n%+v", first, again)
	}
	one := workloads.Deployment(moment(time.Minute), d, workloads.Tally{Replicas: 2, Updated: 2, Ready: 1, Available: 1}, "web-a", &first)
	if c := one.Conditions[1]; !c.LastUpdateTime.Time.Equal(start.Add(time.Minute)) || !c.LastTransitionTime.Time.Equal(start) {
		t.Errorf("progress does not count: %+v", c)
	}
	all := workloads.Tally{Replicas: 2, Updated: 2, Ready: 2, Available: 2}
	done := workloads.Deployment(moment(2*time.Minute), d, all, "web-a", &one)
	if c := done.Conditions[0]; c.Status != "True" || !c.LastTransitionTime.Time.Equal(start.Add(2*time.Minute)) {
		t.Errorf("%+v", c)
	}
	// A pod that is lost later is no rollout.
	lost := workloads.Deployment(moment(time.Hour), d, workloads.Tally{Replicas: 2, Updated: 2, Ready: 1, Available: 1}, "web-a", &done)
	if got := condition(&lost, appsv1.DeploymentProgressing); got != "True NewReplicaSetAvailable" {
		t.Errorf("after a rollout: %s", got)
	}
	d.Generation++
	next := workloads.Deployment(moment(time.Hour), d, workloads.Tally{Replicas: 2, Ready: 2, Available: 2, Other: "a"}, "web-b", &done)
	if got := condition(&next, appsv1.DeploymentProgressing); got != "True ReplicaSetUpdated" {
		t.Errorf("another template: %s", got)
	}
}

func TestProgressDeadline(t *testing.T) {
	d := deployment(1, func(s *appsv1.DeploymentSpec) { s.ProgressDeadlineSeconds = new(int32(30)) })
	m, tally := moment(0), workloads.Tally{Replicas: 1, Updated: 1}
	s := workloads.Deployment(m, d, tally, "web-a", nil)
	if !m.Due.Equal(start.Add(30 * time.Second)) {
		t.Errorf("due %v", m.Due)
	}
	m = moment(29 * time.Second)
	s = workloads.Deployment(m, d, tally, "web-a", &s)
	if got := condition(&s, appsv1.DeploymentProgressing); got != "True ReplicaSetUpdated" || !m.Due.Equal(start.Add(30*time.Second)) {
		t.Errorf("%s, due %v", got, m.Due)
	}
	m = moment(30 * time.Second)
	late := workloads.Deployment(m, d, tally, "web-a", &s)
	if got := condition(&late, appsv1.DeploymentProgressing); got != "False ProgressDeadlineExceeded" || !m.Due.IsZero() {
		t.Errorf("%s, due %v", got, m.Due)
	}
	later := workloads.Deployment(moment(time.Hour), d, tally, "web-a", &late)
	if got := condition(&later, appsv1.DeploymentProgressing); got != "False ProgressDeadlineExceeded" {
		t.Errorf("later: %s", got)
	}
}

func TestStatusOfOtherReplicas(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web", Generation: 2}
	tally := workloads.Tally{Replicas: 3, Ready: 2, Available: 1, Updated: 2, Other: "old"}
	if s := workloads.ReplicaSet(&appsv1.ReplicaSet{ObjectMeta: meta}, tally); s.Replicas != 3 || s.ReadyReplicas != 2 || s.AvailableReplicas != 1 || s.ObservedGeneration != 2 {
		t.Errorf("ReplicaSet: %+v", s)
	}
	if s := workloads.Controller(&corev1.ReplicationController{ObjectMeta: meta}, tally); s.Replicas != 3 || s.ReadyReplicas != 2 || s.ObservedGeneration != 2 {
		t.Errorf("ReplicationController: %+v", s)
	}
	s := workloads.StatefulSet(&appsv1.StatefulSet{ObjectMeta: meta}, tally, "new")
	if s.UpdateRevision != "web-new" || s.CurrentRevision != "web-old" || s.CurrentReplicas != 1 || s.UpdatedReplicas != 2 || s.ObservedGeneration != 2 {
		t.Errorf("StatefulSet: %+v", s)
	}
	tally.Other, tally.Updated = "", 3
	if s := workloads.StatefulSet(&appsv1.StatefulSet{ObjectMeta: meta}, tally, "new"); s.CurrentRevision != s.UpdateRevision || s.CurrentReplicas != 3 {
		t.Errorf("StatefulSet, updated: %+v", s)
	}
	running := workloads.Tally{Replicas: 1, Running: 1, Ready: 1, Available: 1, Updated: 1}
	for _, tt := range []struct {
		tally       workloads.Tally
		unavailable int32
	}{{workloads.Tally{}, 1}, {running, 0}, {workloads.Tally{Replicas: 1, Updated: 1}, 1}} {
		s := workloads.DaemonSet(&appsv1.DaemonSet{ObjectMeta: meta}, tt.tally, true)
		if s.DesiredNumberScheduled != 1 || s.NumberUnavailable != tt.unavailable || s.NumberAvailable != 1-tt.unavailable || s.UpdatedNumberScheduled != tt.tally.Updated || s.ObservedGeneration != 2 {
			t.Errorf("DaemonSet: %+v", s)
		}
	}
	for i, elsewhere := range []workloads.Tally{{}, {Replicas: 1, Updated: 1}, running} { // its pod waits, or its node had other labels
		want := appsv1.DaemonSetStatus{ObservedGeneration: 2, NumberMisscheduled: elsewhere.Running}
		if s := workloads.DaemonSet(&appsv1.DaemonSet{ObjectMeta: meta}, elsewhere, false); !reflect.DeepEqual(s, want) {
			t.Errorf("DaemonSet for other nodes, %d: %+v", i, s)
		}
	}
}

// TestALostStatusIsNoFailedRollout: after a restart it is not known when a Deployment was rolled out.
func TestALostStatusIsNoFailedRollout(t *testing.T) {
	d := deployment(1, func(s *appsv1.DeploymentSpec) { s.ProgressDeadlineSeconds = new(int32(30)) })
	for _, c := range []struct {
		name    string
		created time.Time
		tally   workloads.Tally
		want    string
	}{
		{"older, its pod is not ready", start.Add(-time.Hour), workloads.Tally{Replicas: 1, Updated: 1}, "True NewReplicaSetAvailable"},
		{"older, its pod is not made yet", start.Add(-time.Hour), workloads.Tally{}, "True NewReplicaSetAvailable"},
		{"older, and still with an old pod", start.Add(-time.Hour), workloads.Tally{Replicas: 1}, "False ProgressDeadlineExceeded"},
		{"made since", start, workloads.Tally{Replicas: 1, Updated: 1}, "False ProgressDeadlineExceeded"},
	} {
		d.CreationTimestamp = metav1.NewTime(c.created)
		first := workloads.Deployment(&workloads.Moment{Now: start, Since: start}, d, c.tally, "web-1", nil)
		later := workloads.Deployment(&workloads.Moment{Now: start.Add(time.Hour), Since: start}, d, c.tally, "web-1", &first)
		if got := condition(&later, appsv1.DeploymentProgressing); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestRevisionsInTheStatusOfAStatefulSet: an update has ended once all pods are of the new revision and ready.
func TestRevisionsInTheStatusOfAStatefulSet(t *testing.T) {
	pods := func(revisions ...string) (all []*corev1.Pod) {
		for _, r := range revisions {
			p := &corev1.Pod{}
			p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: r}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			all = append(all, p)
		}
		return all
	}
	for name, c := range map[string]struct {
		strategy appsv1.StatefulSetUpdateStrategyType
		from     string
		pods     []*corev1.Pod
		current  string
		of       int32
	}{
		"no update":               {"", "new", pods("new", "new", "new"), "web-new", 3},
		"nothing is updated yet":  {"", "old", pods("old", "old", "old"), "web-old", 3},
		"one is updated":          {"", "old", pods("old", "old", "new"), "web-old", 2},
		"all are updated":         {"", "old", pods("new", "new", "new"), "web-new", 3},
		"one is missing":          {"", "old", pods("new", "new"), "web-old", 0},
		"all are updated by hand": {appsv1.OnDeleteStatefulSetStrategyType, "old", pods("new", "new", "new"), "web-old", 0},
	} {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: c.strategy}}}
		got := workloads.StatefulSet(s, workloads.Count(moment(0), c.pods, "new", 0).Since(c.from, c.pods), "new")
		if got.CurrentRevision != c.current || got.CurrentReplicas != c.of || got.UpdateRevision != "web-new" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAPauseIsNoTimeWithoutProgress: the deadline counts from when a Deployment was resumed.
func TestAPauseIsNoTimeWithoutProgress(t *testing.T) {
	d := deployment(2, nil)
	waits := workloads.Tally{Replicas: 2, Updated: 1, Other: "b"}
	at := func(after time.Duration, paused bool, tally workloads.Tally, before *appsv1.DeploymentStatus, want string) *appsv1.DeploymentStatus {
		t.Helper()
		d.Spec.Paused = paused
		s := workloads.Deployment(moment(after), d, tally, "web-a", before)
		if got := condition(&s, appsv1.DeploymentProgressing); got != want {
			t.Errorf("after %v: %s, want %s", after, got, want)
		}
		return &s
	}
	s := at(0, false, waits, nil, "True ReplicaSetUpdated")
	s = at(time.Minute, true, waits, s, "Unknown DeploymentPaused")
	s = at(time.Hour, false, waits, s, "Unknown DeploymentResumed")
	s = at(time.Hour+time.Minute, false, waits, s, "Unknown DeploymentResumed")
	moved := at(time.Hour+time.Minute, false, workloads.Tally{Replicas: 2, Updated: 2}, s, "True ReplicaSetUpdated")
	at(time.Hour+2*time.Minute, false, workloads.Tally{Replicas: 2, Updated: 2, Ready: 2, Available: 2}, moved, "True NewReplicaSetAvailable")
	s = at(time.Hour+11*time.Minute, false, waits, s, "False ProgressDeadlineExceeded")
	at(2*time.Hour, true, waits, s, "False ProgressDeadlineExceeded")
}
