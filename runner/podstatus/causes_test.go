package podstatus_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/probe"
)

func TestTroubleCarriesItsCause(t *testing.T) {
	port := cause.Cause{Kind: cause.HostPortPod, Pod: "default/other"}
	missing := cause.Cause{Kind: cause.MissingSecret, Container: "b", Object: cause.Object{Kind: cause.Secret, Name: "login"}}
	notFound := cause.Cause{Kind: cause.CommandNotFound, Program: "/bin/nope"}
	probed := func(in *podstatus.Input) {
		in.Desired.Object.Spec.Containers[1].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
	}
	both := []runner.Container{running("1", "a", 1), running("2", "b", 2)}
	for name, tt := range map[string]struct {
		c               statusCase
		want            cause.Cause
		final, stopping bool
	}{
		"held":        {c: statusCase{change: func(in *podstatus.Input) { in.Sandbox, in.Held = nil, &runner.Held{Reason: "x", Cause: port} }}, want: port},
		"a step":      {c: statusCase{instances: both[:1], failures: map[string]plan.Failure{"b": {Reason: "x", Cause: missing}}}, want: missing},
		"in progress": {c: statusCase{instances: []runner.Container{both[0], created("2", "b")}}, want: cause.Cause{Kind: cause.InProgress, Container: "b", Detail: "about to start"}},
		"restarted":   {c: statusCase{instances: []runner.Container{both[0], exited("2", "b", 1, 99)}}},
		"for good":    {c: statusCase{policy: "Never", instances: []runner.Container{both[0], exited("2", "b", 3, 91)}}, final: true},
		"refused": {
			c:    statusCase{instances: []runner.Container{both[0], with(exited("2", "b", 128, 99), func(c *runner.Container) { c.Exit.Cause = notFound })}},
			want: notFound,
		},
		"evicted": {
			c: statusCase{change: func(in *podstatus.Input) {
				in.Sandbox.Failed = &runner.PodFailure{Reason: runner.ReasonEvicted, Cause: cause.Cause{Kind: cause.Evicted, Resource: "memory"}, At: at(99)}
			}},
			want: cause.Cause{Kind: cause.Evicted, Resource: "memory"},
		},
		"a probe that has not succeeded": {c: statusCase{instances: both, change: probed}, want: cause.Cause{Kind: cause.ProbePending, Container: "b"}},
		"a probe that failed": {
			c: statusCase{instances: both, change: func(in *podstatus.Input) {
				in.Probes = map[string]probe.Health{"2": {Failed: &probe.Verdict{Kind: probe.Liveness, Output: "x", Fault: cause.Refused}}}
			}},
			want: cause.Cause{Kind: cause.ProbeFailed, Fault: cause.Refused, Container: "b"}, stopping: true,
		},
	} {
		got := podstatus.Of(tt.c.input("a", "b")).Trouble
		if got.Cause != tt.want || got.Final != tt.final || got.Stopping != tt.stopping {
			t.Errorf("%s: %+v, final %v, stopping %v", name, got.Cause, got.Final, got.Stopping)
		}
	}
}

func TestEachBrokenContainerIsTold(t *testing.T) {
	missing := map[string]plan.Failure{"a": {Reason: "x", Cause: cause.Cause{Kind: cause.MissingConfigMap, Container: "a"}}}
	for name, tt := range map[string]struct {
		c           statusCase
		first, more string
	}{
		"a step and an exit":            {statusCase{instances: []runner.Container{exited("2", "b", 1, 99), running("3", "c", 1)}, failures: missing}, "a", "b"},
		"two exits":                     {statusCase{instances: []runner.Container{exited("1", "a", 1, 99), running("2", "b", 1), exited("3", "c", 1, 99)}}, "a", "c"},
		"what is slow hides no failure": {statusCase{instances: []runner.Container{created("1", "a"), exited("2", "b", 1, 99), running("3", "c", 1)}}, "b", ""},
		"only slow":                     {statusCase{instances: []runner.Container{created("1", "a"), created("2", "b"), running("3", "c", 1)}}, "a", ""},
		"none":                          {statusCase{instances: []runner.Container{running("1", "a", 1), running("2", "b", 1), running("3", "c", 1)}}, "", ""},
		"an init container that others wait for": {statusCase{
			failures: map[string]plan.Failure{"init": {Reason: "x"}, "a": {Reason: "x"}},
			change: func(in *podstatus.Input) {
				in.Desired.Object.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			},
		}, "init", ""},
		"a sidecar": {statusCase{
			instances: []runner.Container{running("1", "a", 1), exited("2", "b", 1, 99), running("3", "c", 1)}, failures: map[string]plan.Failure{"init": {Reason: "x"}},
			change: func(in *podstatus.Input) {
				in.Desired.Object.Spec.InitContainers = []corev1.Container{{Name: "init", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			},
		}, "init", "b"},
	} {
		s, more := podstatus.Of(tt.c.input("a", "b", "c")), ""
		for _, t := range s.More {
			more += t.Container
		}
		if s.Trouble.Container != tt.first || more != tt.more {
			t.Errorf("%s: first %q, more %q, want %q, %q", name, s.Trouble.Container, more, tt.first, tt.more)
		}
	}
}

func TestAStatusHasAllCauses(t *testing.T) {
	missing := cause.Cause{Kind: cause.MissingSecret, Container: "a"}
	denied := cause.Cause{Kind: cause.ImageForbidden, Container: "b"}
	notFound := cause.Cause{Kind: cause.CommandNotFound, Program: "/bin/nope"}
	s := podstatus.Of(statusCase{
		instances: []runner.Container{with(exited("1", "a", 128, 99), func(c *runner.Container) { c.Exit.Cause = notFound })},
		failures:  map[string]plan.Failure{"b": {Cause: denied}, "a": {Cause: missing}},
	}.input("a", "b"))
	if len(s.Failing) != 2 || s.Failing[0] != missing || s.Failing[1] != denied {
		t.Errorf("failing steps: %+v", s.Failing)
	}
	if len(s.Refused) != 1 || s.Refused["a"] != notFound {
		t.Errorf("refused processes: %+v", s.Refused)
	}
}
