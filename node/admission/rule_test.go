package admission

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/drain"
	"monopod/node/shutdown"
	"monopod/runner"
)

func testPod(name string, priority int32) *manifests.Pod {
	return &manifests.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Priority: &priority}}}
}

func TestRuleByState(t *testing.T) {
	t.Parallel()
	groups := []shutdown.Group{{Grace: 20 * time.Second}, {Priority: 2000000000, Grace: 10 * time.Second}}
	all := drain.State{Cordoned: true, Drain: &drain.Drain{Ignore: []string{"spared"}}}
	for _, tt := range []struct {
		name  string
		state State
		pod   *manifests.Pod
		wait  string // the reason, empty if the pod may start
		halt  *runner.Halt
	}{
		{name: "nothing", pod: testPod("a", 0)},
		{name: "cordon", state: State{Drain: drain.State{Cordoned: true}}, pod: testPod("a", 0), wait: "NodeUnschedulable"},
		{name: "drain", state: State{Drain: all}, pod: testPod("a", 7), wait: "Drained", halt: &runner.Halt{Reason: "Drained"}},
		{name: "drain at its level", state: State{Drain: all, Level: new(int32(7))}, pod: testPod("a", 7), wait: "Drained", halt: &runner.Halt{Reason: "Drained"}},
		{name: "drain above its level", state: State{Drain: all, Level: new(int32(5))}, pod: testPod("a", 7), wait: "Drained"},
		{name: "drain ignores the pod", state: State{Drain: all}, pod: testPod("spared", 7), wait: "NodeUnschedulable"},
		{
			name: "shutdown", state: State{Shutdown: &shutdown.Progress{Groups: groups}}, pod: testPod("a", 0), wait: "NodeShutdown",
			halt: &runner.Halt{Reason: "Terminated", Bounded: true, Grace: 20 * time.Second, Failed: true},
		},
		{name: "shutdown, critical pods later", state: State{Shutdown: &shutdown.Progress{Groups: groups}}, pod: testPod("a", 2000001000), wait: "NodeShutdown"},
		{
			name: "shutdown, critical pods now", state: State{Shutdown: shutdown.Last(groups)}, pod: testPod("a", 2000001000), wait: "NodeShutdown",
			halt: &runner.Halt{Reason: "Terminated", Bounded: true, Grace: 10 * time.Second, Failed: true},
		},
		{
			name: "shutdown before drain", state: State{Drain: all, Shutdown: &shutdown.Progress{Groups: groups}}, pod: testPod("spared", 0), wait: "NodeShutdown",
			halt: &runner.Halt{Reason: "Terminated", Bounded: true, Grace: 20 * time.Second, Failed: true},
		},
		{
			name: "hand-over before all", state: State{Drain: all, Shutdown: shutdown.Last(groups), HandedOver: true}, pod: testPod("spared", 0), wait: "HandedOver",
			halt: &runner.Halt{Reason: "HandedOver", Remove: true},
		},
	} {
		r := tt.state.Rule(tt.pod)
		if wait := r.Wait; (wait == nil) != (tt.wait == "") || wait != nil && (wait.Reason != tt.wait || wait.Message == "" || wait.Cause.Kind == "") {
			t.Errorf("%s: waits for %+v", tt.name, wait)
		}
		if r.Halt != nil {
			if r.Halt.Message == "" || r.Halt.Cause.Kind == "" {
				t.Errorf("%s: halts without a cause: %+v", tt.name, r.Halt)
			}
			h := *r.Halt
			h.Message, h.Cause = "", r.Wait.Cause
			if tt.halt != nil {
				tt.halt.Cause = r.Wait.Cause
			}
			r.Halt = &h
		}
		if (r.Halt == nil) != (tt.halt == nil) || r.Halt != nil && *r.Halt != *tt.halt {
			t.Errorf("%s: halts with %+v", tt.name, r.Halt)
		}
		if tt.state.Open() != (tt.wait == "") {
			t.Errorf("%s: open is %v", tt.name, tt.state.Open())
		}
	}
}

func TestPriorityOfCriticalClasses(t *testing.T) {
	t.Parallel()
	s := State{Drain: drain.State{Cordoned: true, Drain: &drain.Drain{}}, Level: new(int32(5))}
	for class, stops := range map[string]bool{"": true, "other": true, "system-node-critical": false, "system-cluster-critical": false} {
		p := &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: class}}}
		if got := s.Rule(p).Halt; (got != nil) != stops {
			t.Errorf("%s: %+v", class, got)
		}
	}
}

func TestStoppingPods(t *testing.T) {
	t.Parallel()
	pods := []drain.Pod{{Key: manifests.Key{Name: "a"}}, {Key: manifests.Key{Name: "b"}, Priority: 100}, {Key: manifests.Key{Name: "c"}, Stopped: true}}
	for name, tt := range map[string]struct {
		state State
		want  int
	}{
		"nothing":          {State{}, 0},
		"cordon":           {State{Drain: drain.State{Cordoned: true}}, 0},
		"drain":            {State{Drain: drain.State{Cordoned: true, Drain: &drain.Drain{}}}, 2},
		"drain, in part":   {State{Drain: drain.State{Cordoned: true, Drain: &drain.Drain{PriorityBelow: new(int32(100))}}}, 1},
		"shutdown":         {State{Shutdown: &shutdown.Progress{}}, 2},
		"another takes it": {State{HandedOver: true}, 2},
	} {
		if got := tt.state.Stopping(pods); len(got) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestPressureKeepsPodsFromStarting(t *testing.T) {
	t.Parallel()
	now := []corev1.NodeConditionType{corev1.NodeDiskPressure}
	if h := UnderPressure(testPod("a", 0), now); h == nil || h.Reason != "Evicted" || h.Message != "The node had condition: [DiskPressure]." {
		t.Errorf("%+v", h)
	}
	if h := UnderPressure(testPod("a", 0), nil); h != nil {
		t.Errorf("no pressure: %+v", h)
	}
	if h := UnderPressure(testPod("a", runner.CriticalPriority), now); h != nil {
		t.Errorf("a critical pod: %+v", h)
	}
}
