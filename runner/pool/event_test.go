package pool_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// diary records events, each once with its count.
type diary struct {
	mu    sync.Mutex
	lines []string
	count map[string]int
	uids  map[string]bool
}

// Event implements runner.Recorder.
func (d *diary) Event(o corev1.ObjectReference, eventType, reason, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.Kind != "Pod" || o.APIVersion != "v1" || o.Namespace != "default" || o.UID == "" {
		message += fmt.Sprintf(" !! %+v", o)
	}
	d.uids[string(o.UID)] = true
	line := strings.Join([]string{eventType[:1], reason, o.Name + strings.TrimPrefix(o.FieldPath, "spec."), message}, " ")
	if strings.Contains(line, string(o.UID)) {
		line = strings.ReplaceAll(line, string(o.UID), "UID")
	}
	if d.count[line] == 0 {
		d.lines = append(d.lines, line)
	}
	d.count[line]++
}

// String returns all lines and clears the diary.
func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, line := range d.lines {
		b.WriteString(line)
		if n := d.count[line]; n > 1 {
			fmt.Fprintf(&b, " x%d", n)
		}
		b.WriteByte('\n')
	}
	d.lines, d.count = nil, map[string]int{}
	return b.String()
}

func diaryRig(t *testing.T) (*rig, *diary) {
	t.Helper()
	r, d := newRig(t), &diary{count: map[string]int{}, uids: map[string]bool{}}
	r.cfg.Events = d
	return r, d
}

func (d *diary) wants(t *testing.T, what, want string) {
	t.Helper()
	got := d.String()
	var lines strings.Builder
	for line := range strings.Lines(strings.TrimSpace(want)) {
		lines.WriteString(strings.TrimSpace(line) + "\n")
	}
	if strings.TrimSpace(got) != strings.TrimSpace(lines.String()) {
		t.Errorf("%s: events\n%swanted\n%s", what, got, lines.String())
	}
}

func TestEventsOfHealthyPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage {
				return 1500 * time.Millisecond
			}
			return 0
		}
		r.start()
		pod := edited(testPod("web", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{testContainer("init", runtimetest.ScriptSucceed)}
			p.Spec.InitContainers[0].Image = "busybox:init"
		})
		r.update(pod)
		r.pass(10 * time.Second)
		d.wants(t, "start", `
			N Pulling webinitContainers{init} Pulling image "busybox:init"
			N Pulling webcontainers{a} Pulling image "busybox:1"
			N Pulled webinitContainers{init} Successfully pulled image "busybox:init" in 1.5s (1.5s including waiting). Image size: 1048576 bytes.
			N Created webinitContainers{init} Container created
			N Started webinitContainers{init} Container started
			N Exited webinitContainers{init} Container exited with code 0 (Completed)
			N Pulled webcontainers{a} Successfully pulled image "busybox:1" in 1.5s (1.5s including waiting). Image size: 1048576 bytes.
			N Created webcontainers{a} Container created
			N Started webcontainers{a} Container started`)
		if uid := string(r.status("web").Pod.UID); len(d.uids) != 1 || !d.uids[uid] {
			t.Errorf("the pod is %s, the events were about %v", uid, d.uids)
		}
		r.restart()
		r.update(pod)
		r.pass(time.Hour)
		d.wants(t, "restart of the agent, and an hour", "")
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"x"} }))
		r.pass(10 * time.Second)
		d.wants(t, "edit", `
			N Pulled webcontainers{a} Container image "busybox:1" already present on machine and can be accessed by the pod
			N Created webcontainers{a} Container created
			N Killing webcontainers{a} Container a definition changed, will be restarted
			N Exited webcontainers{a} Container exited with code 0 (Completed)
			N Started webcontainers{a} Container started`)
		r.update()
		r.pass(10 * time.Second)
		d.wants(t, "removal", `
			N Killing webcontainers{a} Stopping container a (pod removed)
			N Exited webcontainers{a} Container exited with code 0 (Completed)`)
	})
}

func TestEventsOfCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptFail)))
		r.pass(80 * time.Second) // starts at 0, 0, 10, 30, 70
		d.wants(t, "80 seconds", `
			N Pulling webcontainers{a} Pulling image "busybox:1"
			N Pulled webcontainers{a} Successfully pulled image "busybox:1" in 0s (0s including waiting). Image size: 1048576 bytes.
			N Created webcontainers{a} Container created x5
			N Started webcontainers{a} Container started x5
			W Exited webcontainers{a} Container exited with code 3 (Error) x5
			N Pulled webcontainers{a} Container image "busybox:1" already present on machine and can be accessed by the pod x4
			W BackOff webcontainers{a} Back-off restarting failed container a in pod web_default(UID) x4`)
	})
}

func TestEventsOfFailedPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		f := &trouble{kind: runner.EnsureImage, err: &runner.StepError{
			Reason: runner.ReasonErrImagePull, Err: errors.New(`pull image "busybox:1": 404 Not Found`),
		}}
		r.fake.Fail = f.fail
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.pass(35 * time.Second) // at 0, 10, 30
		f.over()
		r.pass(time.Minute)
		d.wants(t, "until it can be pulled", `
			N Pulling webcontainers{a} Pulling image "busybox:1" x4
			W Failed webcontainers{a} Failed to pull image "busybox:1": 404 Not Found x3
			N BackOff webcontainers{a} Back-off pulling image "busybox:1" x3
			N Pulled webcontainers{a} Successfully pulled image "busybox:1" in 0s (0s including waiting). Image size: 1048576 bytes.
			N Created webcontainers{a} Container created
			N Started webcontainers{a} Container started`)
	})
}

func TestEventsOfFailedSteps(t *testing.T) {
	failsWith := func(kind runner.ActionKind, err error) func(*testing.T, *rig) {
		return func(_ *testing.T, r *rig) {
			f := &trouble{kind: kind, err: err}
			r.fake.Fail = f.fail
			r.start()
			pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
			r.update(pod)
			r.pass(100 * time.Millisecond)
			r.update()
			r.pass(100 * time.Millisecond)
		}
	}
	fails := func(kind runner.ActionKind, reason string) func(*testing.T, *rig) {
		if reason == "" {
			return failsWith(kind, errors.New("it is broken"))
		}
		return failsWith(kind, &runner.StepError{Reason: reason, Err: errors.New("it is broken")})
	}
	counted := regexp.MustCompile(` x\d+$`)
	for name, tt := range map[string]struct {
		play func(*testing.T, *rig)
		want string
	}{
		"image with policy Never": {
			fails(runner.EnsureImage, runner.ReasonErrImageNeverPull),
			`W ErrImageNeverPull webcontainers{a} it is broken`,
		},
		"name of an image": {
			fails(runner.EnsureImage, runner.ReasonInvalidImageName),
			`W InspectFailed webcontainers{a} Failed to apply default image tag "busybox:1": it is broken`,
		},
		"image that is damaged": {
			fails(runner.EnsureImage, runner.ReasonImageInspectError),
			`W InspectFailed webcontainers{a} Failed to inspect image "busybox:1": it is broken`,
		},
		"image of a volume": {
			failsWith(runner.EnsureImage, cause.Wrap(
				&runner.StepError{Reason: runner.ReasonInvalidImageName, Err: errors.New("it is broken")}, cause.Cause{Kind: cause.ImageName, Image: "Rules:1", Volume: "v"},
			)),
			`W InspectFailed webcontainers{a} Failed to apply default image tag "Rules:1": it is broken`,
		},
		"image with an unknown reason": {
			fails(runner.EnsureImage, ""),
			`W Failed webcontainers{a} Failed to pull image "busybox:1": it is broken`,
		},
		"sandbox": {
			fails(runner.CreateSandbox, ""),
			`W FailedCreatePodSandBox web Failed to create pod sandbox: it is broken`,
		},
		"network": {
			fails(runner.StartContainer, runner.ReasonCreatePodSandboxError),
			`W FailedCreatePodSandBox webcontainers{a} Failed to create pod sandbox: it is broken`,
		},
		"a port of another monopod": {
			fails(runner.StartContainer, runner.ReasonHostPortConflict),
			`W HostPortConflict webcontainers{a} it is broken`,
		},
		"volume": {
			fails(runner.CreateContainer, runner.ReasonFailedMount),
			`W FailedMount webcontainers{a} it is broken`,
		},
		"configuration": {
			fails(runner.CreateContainer, runner.ReasonCreateContainerConfigError),
			`W Failed webcontainers{a} Error: it is broken`,
		},
		"profile": {
			fails(runner.CreateContainer, runner.ReasonAppArmor),
			`W AppArmor webcontainers{a} it is broken`,
		},
		"start": {
			fails(runner.StartContainer, runner.ReasonStartError),
			`W Failed webcontainers{a} Error: it is broken`,
		},
		"signal": {
			fails(runner.StopContainer, ""),
			`W FailedKillPod webcontainers{a} error killing pod: it is broken`,
		},
		"sandbox that stays": {
			fails(runner.RemoveSandbox, ""),
			`W FailedKillPod web error killing pod: it is broken`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, d := diaryRig(t)
				tt.play(t, r)
				var warnings []string
				for line := range strings.Lines(d.String()) {
					if strings.HasPrefix(line, "W ") {
						warnings = append(warnings, strings.TrimSpace(line))
					}
				}
				if len(warnings) == 0 || counted.ReplaceAllString(strings.Join(warnings, "\n"), "") != tt.want {
					t.Errorf("warnings:\n%s\nwanted:\n%s", strings.Join(warnings, "\n"), tt.want)
				}
			})
		})
	}
}

func TestEventsOfReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		_ = d.String()
		uids := len(d.uids)
		r.fake.Reboot()
		r.restart()
		r.update(pod)
		r.pass(time.Second)
		d.wants(t, "reboot", `
			W Exited webcontainers{a} Container exited with code 255 (Unknown)
			N Pulled webcontainers{a} Container image "busybox:1" already present on machine and can be accessed by the pod
			N SandboxChanged web Pod sandbox changed, it will be killed and re-created.
			N Created webcontainers{a} Container created
			N Started webcontainers{a} Container started`)
		if len(d.uids) != uids {
			t.Errorf("events about %v", d.uids)
		}
	})
}

func TestEventsOfNewSandboxHaveItsUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		_ = d.String()
		r.update(edited(pod, func(p *corev1.Pod) { p.Spec.Hostname = "other" }))
		r.pass(time.Second)
		if got := d.String(); !strings.Contains(got, "N SandboxChanged web") || !strings.Contains(got, "N Killing webcontainers{a} Stopping container a") {
			t.Errorf("events:\n%s", got)
		}
		if uid := string(r.status("web").Pod.UID); len(d.uids) != 2 || !d.uids[uid] {
			t.Errorf("the pod is %s, the events were about %v", uid, d.uids)
		}
	})
}

func TestEventsOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		a := &answers{m: map[string]string{"r": "warming up"}}
		r.fake.OnExec = a.exec
		r.start()
		c := testContainer("a", runtimetest.ScriptServe)
		c.ReadinessProbe, c.LivenessProbe = asking("r"), asking("l")
		r.update(testPod("web", c))
		_ = d.String()
		r.pass(5500 * time.Millisecond)
		a.set("r", "")
		a.set("l", "deadlock")
		r.pass(3 * time.Second)
		got := d.String()
		for _, want := range []string{
			"W Unhealthy webcontainers{a} Readiness probe failed: warming up x",
			"W Unhealthy webcontainers{a} Liveness probe failed: deadlock x",
			"N Killing webcontainers{a} Container a failed liveness probe, will be restarted\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("there is no %q:\n%s", want, got)
			}
		}
	})
}

func TestEventsOfHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		r.fake.OnExec = scripted
		r.start()
		r.update(testPod("web", hooked(testContainer("a", runtimetest.ScriptServe), "fail", "")))
		r.pass(500 * time.Millisecond)
		if got := d.String(); !strings.Contains(got, `W FailedPostStartHook webcontainers{a} PostStartHook failed: exit code 7, output "no"`) ||
			!strings.Contains(got, "N Killing webcontainers{a} Container a failed its postStart hook, will be stopped") {
			t.Errorf("postStart:\n%s", got)
		}
		r.update(testPod("web", hooked(testContainer("a", runtimetest.ScriptServe), "", "fail")))
		r.pass(time.Minute)
		_ = d.String()
		r.update()
		r.pass(time.Second)
		if got := d.String(); !strings.Contains(got, `W FailedPreStopHook webcontainers{a} PreStopHook failed: exit code 7, output "no"`) ||
			strings.Count(got, "Killing") != 1 || strings.Contains(got, "Stopping container a (pod removed) x") {
			t.Errorf("preStop:\n%s", got)
		}
	})
}

func TestEventsOfWaitingOrFailedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		r.start()
		first, second := portPod("a", "80"), portPod("b", "80")
		r.update(first)
		_ = d.String()
		r.update(first, second)
		r.pass(time.Hour)
		d.wants(t, "a taken port", "W HostPortConflict b host port 80/TCP is taken by pod default/a")
		r.update(first)
		r.pass(time.Second)
		late := withDeadline(testPod("late", testContainer("x", runtimetest.ScriptStubborn)), 5)
		r.update(first, late)
		r.pass(time.Minute)
		if got := d.String(); !strings.Contains(got, "W DeadlineExceeded late Pod was active on the node longer than the specified deadline\n") ||
			!strings.Contains(got, "N Killing latecontainers{x} Killing container x (did not stop within 30s)") {
			t.Errorf("deadline:\n%s", got)
		}
	})
}

func TestEventsOfResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := diaryRig(t)
		f := &trouble{kind: runner.UpdateResources}
		r.fake.Fail = f.fail
		r.start()
		c := testContainer("a", runtimetest.ScriptServe)
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		pod := testPod("web", c)
		r.update(pod)
		_ = d.String()
		more := func(p *manifests.Pod, cpus string) *manifests.Pod {
			return edited(p, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse(cpus)
			})
		}
		r.update(more(pod, "2"))
		r.pass(time.Second)
		d.wants(t, "more", `
			N ResizeCompleted webcontainers{a} Pod resize completed
			N ResizeCompleted web Pod resize completed`)
		f.err = errors.New("too much")
		r.update(more(pod, "3"))
		r.pass(100 * time.Millisecond)
		d.wants(t, "too much", "W ResizeError webcontainers{a} Pod resize error: too much")
	})
}

// eavesdropper records whether the progress of images has a receiver.
type eavesdropper struct {
	runner.Runtime
	mu    sync.Mutex
	heard []bool
}

func (a *eavesdropper) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, act runner.Action) error {
	if act.Kind == runner.EnsureImage {
		a.mu.Lock()
		a.heard = append(a.heard, runner.WantsImageProgress(ctx))
		a.mu.Unlock()
	}
	return a.Runtime.Apply(ctx, key, pod, act)
}

func TestImageProgressIsReportedOnlyWithRecorder(t *testing.T) {
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := diaryRig(t)
			if !kept {
				r.cfg.Events = nil
			}
			a := &eavesdropper{Runtime: r.fake}
			r.runtime = a
			r.start()
			r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
			if len(a.heard) == 0 || slices.Contains(a.heard, !kept) {
				t.Errorf("events are kept: %t, and heard of images: %t", kept, a.heard)
			}
		})
	}
}
