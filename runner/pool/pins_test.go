package pool_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/runner"
	"monopod/runner/runtimetest"
)

// losePins removes the namespaces of a running pod and stops the agent.
func losePins(r *rig, pod ...func(*corev1.Pod)) {
	r.fake.Kill()
	r.fake.LosePins()
	r.restart()
	p := testPod("web", testContainer("a", runtimetest.ScriptServe))
	for _, change := range pod {
		change(p.Object)
	}
	r.update(p)
	r.pass(20 * time.Second)
}

// Containers that run after their pins were lost are treated as in any other sandbox.
func TestPodWithoutPinsIsStillManaged(t *testing.T) {
	for name, tt := range map[string]struct {
		first, then func(*corev1.Pod)
		check       func(*testing.T, *rig, *answers)
	}{
		"a liveness probe fails": {
			func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = asking("alive") }, nil,
			func(t *testing.T, r *rig, a *answers) {
				a.set("alive", "no")
				r.pass(4 * time.Second)
				a.set("alive", "")
				r.pass(time.Minute)
				if n := kinds(r, runner.ReviveSandbox); n != 1 {
					t.Errorf("%d times restarted", n)
				}
				r.wantPhase(corev1.PodRunning)
			},
		},
		"a readiness probe fails": {
			func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = asking("ready") }, nil,
			func(t *testing.T, r *rig, a *answers) {
				a.set("ready", "no")
				r.pass(4 * time.Second)
				if h := r.fake.State(key("web")).Containers[0].Health; h.Ready || !h.Started {
					t.Errorf("recorded: %+v", h)
				}
			},
		},
		"the resources change": {
			requestCPU("10m", corev1.NotRequired), requestCPU("20m", corev1.NotRequired),
			func(t *testing.T, r *rig, _ *answers) {
				if n := kinds(r, runner.UpdateResources); n != 2 || kinds(r, runner.StopContainer) > 0 { // the container, and the pod
					t.Errorf("%d updates: %s", n, r.journal())
				}
			},
		},
		"the resources change by a restart": {
			requestCPU("10m", corev1.RestartContainer), requestCPU("20m", corev1.RestartContainer),
			func(t *testing.T, r *rig, _ *answers) {
				if n := kinds(r, runner.ReviveSandbox); n != 1 {
					t.Errorf("%d times restarted: %s", n, r.journal())
				}
			},
		},
		"nothing changes": {
			nil, nil,
			func(t *testing.T, r *rig, _ *answers) {
				if did := r.journal(); did != "" {
					t.Errorf("it did %s", did)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := probeRig(t)
				changes := []func(*corev1.Pod){}
				if tt.first != nil {
					changes = append(changes, tt.first)
				}
				r.update(edited(testPod("web", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) {
					for _, change := range changes {
						change(p)
					}
				}))
				r.pass(20 * time.Second)
				r.fake.ClearJournal()
				if tt.then != nil {
					changes = append(changes, tt.then)
				}
				losePins(r, changes...)
				tt.check(t, r, a)
			})
		})
	}
}

// requestCPU sets the CPU request and its resize policy.
func requestCPU(amount string, policy corev1.ResourceResizeRestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
		c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: policy}}
	}
}
