package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/tracing"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

// tracedTest is a pod whose start is traced.
type tracedTest struct {
	*Traces
	pod *manifests.Pod
}

func newTracedTest() tracedTest {
	tracer := tracing.New(tracing.Config{PerMillion: 1_000_000, Log: slog.New(slog.DiscardHandler)})
	return tracedTest{&Traces{tracer}, runtimetest.WithInit("web", runtimetest.NewContainer("i", runtimetest.ScriptSucceed))}
}

// traces reports whether an action is a span of the start: then its phases are spans too.
func (x tracedTest) traces(ctx context.Context, a runner.Action) bool {
	a.UID = "u"
	got, over := x.begin(ctx, x.pod.Key(), x.pod, a)
	runner.ReportPhase(got, runner.Phase{Name: runner.PhaseVolumes, Err: errors.New("no space")})
	over(nil)
	return got != ctx
}

// is tells the traces of a status of the pod.
func (x tracedTest) is(phase corev1.PodPhase, ready corev1.ConditionStatus) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}, Status: corev1.PodStatus{Phase: phase}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if phase == corev1.PodRunning {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	}
	x.Observe(pool.Change{Key: x.pod.Key(), Status: podstatus.Status{Pod: p}})
}

func TestStepsOfAStartAreTracedAndNothingElse(t *testing.T) {
	ended := &runner.Termination{StartedAt: time.Unix(1e9, 0), FinishedAt: time.Unix(1e9+1, 0), ExitCode: 1, Reason: "Error"}
	x := newTracedTest()
	x.is(corev1.PodPending, corev1.ConditionFalse)
	for _, row := range []struct {
		action runner.Action
		want   bool
	}{
		{runner.Action{Kind: runner.CheckPod}, true},
		{runner.Action{Kind: runner.CreateSandbox}, true},
		{runner.Action{Kind: runner.ReviveSandbox}, true},
		{runner.Action{Kind: runner.SetupNetwork}, true},
		{runner.Action{Kind: runner.EnsureImage, Container: "i"}, true},
		{runner.Action{Kind: runner.CreateContainer, Container: "i"}, true},
		{runner.Action{Kind: runner.StartContainer, Container: "i"}, true},
		{runner.Action{Kind: runner.FinishContainer, Container: "i", Exit: ended}, true},
		{runner.Action{Kind: runner.FinishContainer, Container: "i", Exit: &runner.Termination{}}, false}, // it never ran
		{runner.Action{Kind: runner.FinishContainer, Container: "c", Exit: ended}, false},
		{runner.Action{Kind: runner.SyncVolumes}, false},
		{runner.Action{Kind: runner.StopContainer, Container: "i"}, false},
		{runner.Action{Kind: runner.RemoveSandbox}, false},
	} {
		if got := x.traces(t.Context(), row.action); got != row.want {
			t.Errorf("%s: traced %t", row.action, got)
		}
	}
	if disabled := (tracedTest{nil, x.pod}); disabled.traces(t.Context(), runner.Action{Kind: runner.CreateSandbox}) {
		t.Error("traced though it is disabled")
	}
	(*Traces)(nil).Observe(pool.Change{}) // changes nothing, without a panic
}

func TestAStartEndsWhenThePodIsReadyOrCannotBeAnyMore(t *testing.T) {
	image := runner.Action{Kind: runner.EnsureImage, Container: "i"}
	again := runner.Action{Kind: runner.CreateSandbox, Manifest: runner.DesiredManifest}
	for name, end := range map[string]func(tracedTest){
		"ready": func(x tracedTest) {
			x.traces(t.Context(), runner.Action{Kind: runner.StartContainer, Container: "c"})
			x.is(corev1.PodRunning, corev1.ConditionTrue)
		},
		"completed": func(x tracedTest) { x.is(corev1.PodSucceeded, corev1.ConditionFalse) },
		"failed":    func(x tracedTest) { x.is(corev1.PodFailed, corev1.ConditionFalse) },
		"removed":   func(x tracedTest) { x.Observe(pool.Change{Key: x.pod.Key(), Gone: true}) },
	} {
		x := newTracedTest()
		if x.traces(t.Context(), image) {
			t.Errorf("%s: traced before anything is known of the pod", name)
		}
		x.is(corev1.PodPending, corev1.ConditionFalse)
		if !x.traces(t.Context(), image) {
			t.Errorf("%s: a new pod is not traced", name)
		}
		x.is(corev1.PodRunning, corev1.ConditionFalse) // not Ready yet
		if !x.traces(t.Context(), image) {
			t.Errorf("%s: not traced until it is Ready", name)
		}
		if end(x); x.traces(t.Context(), image) {
			t.Errorf("%s: traced after its start", name)
		}
		if !x.traces(t.Context(), again) || !x.traces(t.Context(), image) {
			t.Errorf("%s: it is not traced when it is made again", name)
		}
	}
	found := newTracedTest()
	if found.is(corev1.PodRunning, corev1.ConditionTrue); found.traces(t.Context(), image) {
		t.Error("a pod that ran before is traced")
	}
}

func TestTheFailureOfAPodIsTheErrorOfItsStart(t *testing.T) {
	for want, s := range map[string]corev1.PodStatus{
		"the pod has failed": {Message: "only the message"},
		"Evicted":            {Reason: "Evicted"},
		"Evicted: no memory": {Reason: "Evicted", Message: "no memory"},
	} {
		if got := failureOf(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
