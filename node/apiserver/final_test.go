package apiserver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// ended is a pod whose container has ended.
func endedPod(p *corev1.Pod, code int32) *corev1.Pod {
	return with(p, func(p *corev1.Pod) {
		c := &p.Status.ContainerStatuses[0]
		c.Ready, c.State = false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.NewTime(time.Unix(5000, 0)), ContainerID: "containerd://1"}}
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = corev1.ConditionFalse, "PodCompleted"
	})
}

// leavingPod is a pod that the server wants gone.
func leavingPod(p *corev1.Pod) *corev1.Pod {
	return with(p, func(p *corev1.Pod) { p.DeletionTimestamp, p.Generation = &metav1.Time{Time: time.Unix(6000, 0)}, 3 })
}

func TestTheGenerationThatIsActedOnIsShown(t *testing.T) {
	handed := func(n int64) *corev1.Pod { return with(running("web"), func(p *corev1.Pod) { p.Generation = n }) }
	leaving := func(p *corev1.Pod) *corev1.Pod {
		return with(p, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
	}
	for name, tt := range map[string]struct {
		here, there *corev1.Pod
		want        int64
	}{
		"it is as it was made":       {handed(1), handed(1), 1},
		"its image was edited":       {handed(2), handed(2), 2},
		"it is being edited":         {handed(2), handed(3), 2},
		"it is deleted, and stops":   {leaving(handed(2)), leavingPod(handed(2)), 3},
		"it is deleted, not stopped": {handed(2), leavingPod(handed(2)), 2},
	} {
		l := mirror.BoundLocal(tt.here, tt.there, nil)
		if s := l.Pod.Status; s.ObservedGeneration != tt.want || s.Conditions[0].ObservedGeneration != tt.want {
			t.Errorf("%s: %+v", name, s)
		}
		m := mirror.Of(with(tt.there, func(p *corev1.Pod) { p.Status = l.Pod.Status; p.Status.Conditions = slices.Clone(p.Status.Conditions) }))
		if !mirror.SameStatus(l, m) {
			t.Errorf("%s: it is sent again", name)
		}
		m.Conditions[0].ObservedGeneration--
		if mirror.SameStatus(l, m) {
			t.Errorf("%s: a condition of another generation is the same", name)
		}
	}
	if doc, _, _ := boundDocument(handed(4)); doc.Generation != 4 {
		t.Errorf("the document has generation %d", doc.Generation)
	}
}

func TestAReasonThatNoKubeletHasIsNotShown(t *testing.T) {
	waits := func(reason string) *corev1.Pod {
		return with(running("web"), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}
		})
	}
	for from, want := range map[string]string{"FailedMount": "ContainerCreating", "CreatePodSandboxError": "ContainerCreating", "ErrImagePull": "ErrImagePull"} {
		p := waits(from)
		for what, l := range map[string]mirror.Local{"bound": mirror.BoundLocal(p, p, nil), "mirror": mirror.LocalOf(p, "n1")} {
			if w := l.Pod.Status.ContainerStatuses[0].State.Waiting; w.Reason != want || w.Message != "why" {
				t.Errorf("%s of a %s pod: %+v", from, what, w)
			}
		}
		if p.Status.ContainerStatuses[0].State.Waiting.Reason != from {
			t.Errorf("%s was changed here", from)
		}
	}
	p := with(waits("FailedMount"), func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "i"}} })
	if w := mirror.AsShown(p).Status.ContainerStatuses[0].State.Waiting; w.Reason != "PodInitializing" {
		t.Errorf("%+v", w)
	}
}

func TestWhatNoKubeletAdmitsHasFailed(t *testing.T) {
	windows := with(bound("windows", "yes"), func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} })
	selects := with(bound("selects", "yes"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"} })
	linux := with(bound("linux", "yes"), func(p *corev1.Pod) {
		p.Spec.OS, p.Spec.NodeSelector = &corev1.PodOS{Name: corev1.Linux}, map[string]string{corev1.LabelOSStable: "linux"}
	})
	arm := with(bound("arm", "yes"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"} })
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"s390x"}}}}
	affine := with(bound("affine", "yes"), func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
	})
	g := newGathering(t, windows, selects, linux, arm, affine, bound("sysctl", "yes"), bound("ports", "yes"))
	g.cfg.Platform = manifests.Platform{OS: "linux", Arch: "amd64"}
	check := g.cfg.Check
	g.cfg.Check = func(p *corev1.Pod) error {
		if p.Name == "sysctl" {
			return &RejectedError{mirror.ReasonSysctl, `forbidden sysctl: "kernel.msgmax" not allowlisted`}
		}
		return check(p)
	}
	pods, _, said := g.word()
	if pods != "linux ports" || len(said) != 5 {
		t.Errorf("%q, said %q", pods, said)
	}
	// The pool does not let one start: it is taken out, and is not asked to run again.
	held := with(running("ports"), func(p *corev1.Pod) {
		p.Annotations[mirror.AnnotationSource] = mirror.SourceName
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	})
	g.local.put(held)
	g.Reject(held, mirror.ReasonNodePorts, "host port 80/TCP is taken by pod default/old")
	for range 2 {
		if pods, _, _ := g.word(); pods != "linux" {
			t.Errorf("%q", pods)
		}
		g.local.drop("default/ports")
	}
	m := &mirrors{Agent: g.Agent, cache: map[manifests.Key]mirror.Local{}, tries: map[manifests.Key]mirror.Try{}, waits: map[manifests.Key]*client.Waits{}}
	for uid, want := range map[types.UID]string{
		"uid-of-windows": "Failed PodOSNotSupported Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
		"uid-of-selects": "Failed PodOSSelectorNodeLabelDoesNotMatch Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		"uid-of-arm":     "Failed NodeAffinity Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: it requires kubernetes.io/arch=arm64, but this machine has amd64",
		"uid-of-affine":  "Failed NodeAffinity Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: no term of its node affinity matches a machine with linux/amd64",
		"uid-of-sysctl":  `Failed SysctlForbidden Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted`,
		"uid-of-ports":   "Failed NodePorts Pod was rejected: host port 80/TCP is taken by pod default/old",
	} {
		if s := m.view().Refused[uid].Pod.Status; fmt.Sprint(s.Phase, " ", s.Reason, " ", s.Message) != want {
			t.Errorf("%s: %+v", uid, s)
		}
	}
}

// A pod that was started before it was left out keeps running: nothing stops a running pod.
func TestAPodThatRunsIsNotRejected(t *testing.T) {
	g := newGathering(t, bound("a", "yes"))
	runs := with(running("a"), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationSource] = mirror.SourceName })
	g.local.put(runs)
	g.Reject(runs, mirror.ReasonNodePorts, "x")
	if pods, _, said := g.word(); pods != "a" || len(said) > 0 {
		t.Errorf("%q %q", pods, said)
	}
	file := running("b")
	g.Reject(file, mirror.ReasonNodePorts, "x")
	if len(g.store.rejected) > 0 {
		t.Error("a pod of a file is rejected")
	}
}

func TestConditionsOfReadinessGatesAreHandedOver(t *testing.T) {
	gated := func(version string, status corev1.ConditionStatus) *corev1.Pod {
		return with(bound("a", "yes"), func(p *corev1.Pod) {
			p.ResourceVersion = version
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/y"}, {ConditionType: "x/z"}}
			p.Status.Conditions = []corev1.PodCondition{{Type: "x/y", Status: status}, {Type: "other", Status: corev1.ConditionTrue}}
		})
	}
	g := newGathering(t, gated("1", corev1.ConditionFalse), bound("b", "yes"))
	var told []map[types.UID][]corev1.PodCondition
	g.cfg.Conditions = func(all map[types.UID][]corev1.PodCondition) { told = append(told, all) }
	g.word()
	g.word()
	if len(told) != 1 || len(told[0]) != 1 || len(told[0]["uid-of-a"]) != 1 || told[0]["uid-of-a"][0].Status != corev1.ConditionFalse {
		t.Fatalf("%+v", told)
	}
	<-g.store.bound
	g.store.seePod(gated("2", corev1.ConditionTrue), false)
	select {
	case <-g.store.bound:
	default:
		t.Error("nobody looks at a condition that has changed")
	}
	g.word()
	if len(told) != 2 || told[1]["uid-of-a"][0].Status != corev1.ConditionTrue {
		t.Errorf("%+v", told)
	}
}

func TestTheEndOfAPodIsKeptUntilTheServerHasIt(t *testing.T) {
	server := with(bound("a", "yes"), func(p *corev1.Pod) { p.ResourceVersion = "1" })
	g := newGathering(t, server)
	m := &mirrors{Agent: g.Agent, cache: map[manifests.Key]mirror.Local{}, tries: map[manifests.Key]mirror.Try{}, waits: map[manifests.Key]*client.Waits{}}
	last := with(endedPod(running("a"), 3), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationSource] = mirror.SourceName })
	g.Gone(last)
	g.Gone(running("of-a-file"))
	if v := m.view(); len(v.Ended) > 0 || len(g.store.ends) != 1 {
		t.Errorf("%+v, %+v", v.Ended, g.store.ends)
	}
	g.store.seePod(with(leavingPod(server), func(p *corev1.Pod) { p.ResourceVersion = "2" }), false)
	if l := m.view().Ended[server.UID]; l.Pod == nil || l.Pod.Status.Phase != corev1.PodFailed || l.Pod.Status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
		t.Errorf("%+v", l)
	}
	g.local.put(last)
	if v := m.view(); len(v.Ended) > 0 {
		t.Error("it is here")
	}
	g.local.drop("default/a")
	g.store.seePod(with(leavingPod(server), func(p *corev1.Pod) { p.ResourceVersion = "3" }), true)
	if m.view(); len(g.store.ends) > 0 {
		t.Error("it is kept for ever")
	}
}

// Events are about the pod itself, also when the server forgot it while the agent did not run.
func TestEventsOfABoundPodThatIsGoneAreNotOfAMirror(t *testing.T) {
	g := newGathering(t)
	g.local.put(with(running("old"), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationSource] = mirror.SourceName }), running("mine"))
	m := &mirrors{Agent: g.Agent, cache: map[manifests.Key]mirror.Local{}, tries: map[manifests.Key]mirror.Try{}, waits: map[manifests.Key]*client.Waits{}}
	m.view()
	g.local.drop("default/old")
	o := newOutbox(g.Agent, nil)
	event := func(name string) *corev1.Event {
		return o.shown(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name + ".1"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: name, UID: types.UID("uid-of-" + name)}})
	}
	if e := event("old"); e.InvolvedObject.Name != "old" || e.Name != "old.1" {
		t.Errorf("%+v", e)
	}
	if e := event("mine"); e.InvolvedObject.Name != "mine-n1" {
		t.Errorf("%+v", e)
	}
}
