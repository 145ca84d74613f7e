package admission

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node/drain"
	"monopod/runner"
)

func TestWhichGroupAPriorityIsIn(t *testing.T) {
	t.Parallel()
	groups := []config.ShutdownGroup{{Priority: 10}, {Priority: 100}, {Priority: 2000000000}}
	for priority, want := range map[int32]int{-5: 0, 0: 0, 10: 0, 99: 0, 100: 1, 1999999999: 1, 2000000000: 2, 2000001000: 2} {
		if got := groupOf(groups, priority); got != want {
			t.Errorf("%d: group %d, want %d", priority, got, want)
		}
	}
}

func TestWhatAShutdownSaysOfAPod(t *testing.T) {
	t.Parallel()
	pod := func(priority int32) *manifests.Pod {
		return &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority}}}
	}
	e := &Ending{Groups: []config.ShutdownGroup{{Grace: 20 * time.Second}, {Priority: 2000000000, Grace: 10 * time.Second}}}
	if r := e.rule(*pod(0).Object.Spec.Priority); r.Halt == nil || r.Halt.Grace != 20*time.Second || !r.Halt.Failed || !r.Halt.Bounded || r.Wait.Reason != "NodeShutdown" {
		t.Errorf("%+v", r)
	}
	if r := e.rule(2000001000); r.Halt != nil || r.Wait == nil {
		t.Errorf("a critical pod goes first: %+v", r)
	}
	e.current = 1
	if r := e.rule(2000001000); r.Halt == nil || r.Halt.Grace != 10*time.Second {
		t.Errorf("%+v", r)
	}
	for class, want := range map[string]*runner.Halt{"": drainHalt(), "other": drainHalt(), "system-node-critical": nil, "system-cluster-critical": nil} {
		p := &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: class}}}
		if got := rule(p, drain.State{Drain: &drain.Drain{}}, new(int32(5)), nil).Halt; (got == nil) != (want == nil) {
			t.Errorf("%s: %+v", class, got)
		}
	}
}
