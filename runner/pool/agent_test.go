package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

func servers(n int) []*manifests.Pod {
	var pods []*manifests.Pod
	for i := range n {
		pods = append(pods, testPod(fmt.Sprintf("p%03d", i), testContainer("a", runtimetest.ScriptServe)))
	}
	return pods
}

func TestAgentRestartChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pods := servers(30)
		r.update(pods...)
		r.journal()
		began := time.Now()
		r.restart()
		r.update(pods...)
		r.expect("restart", "")
		for _, s := range r.pool.Pods() {
			if s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
				t.Errorf("%s: %s, %s", s.Key(), s.Pod.Status.Phase, s.Why)
			}
		}
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("adopting took %s", d)
		}
	})
}

func TestExitWhileAgentIsDownIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
		r.update(pod)
		r.stop()
		if err := r.fake.Exit(key("web"), "a", 9); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Hour)
		r.restart()
		r.update(pod)
		c := r.status("web").Pod.Status.ContainerStatuses[0]
		if c.State.Running == nil || c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 9 {
			t.Errorf("status %+v", c)
		}
		if !strings.Contains(r.log.String(), `msg="container exited" pod=default/web container=a exitCode=9`) {
			t.Errorf("the exit was not logged")
		}
	})
}

// TestAgentMayDieAfterAnyAction repeats the life of a pod; each time the agent dies one action later.
func TestAgentMayDieAfterAnyAction(t *testing.T) {
	first := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptSlowStop))
	edit := edited(first, func(p *corev1.Pod) { p.Spec.Containers[1].Image = "busybox:2" })
	replaced := edited(edit, func(p *corev1.Pod) { p.Spec.Hostname = "other" })
	life := [][]*manifests.Pod{{first}, {edit}, {replaced}, {}}
	for kill := 1; ; kill++ {
		died := false
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.fake.NetworkDelay = 20 * time.Millisecond
			r.fake.KillAfter(kill)
			r.start()
			for i, pods := range life {
				r.update(pods...)
				r.pass(5 * time.Second)
				select {
				case <-r.fake.Died():
					died = true
					r.restart()
					r.update(pods...)
					r.pass(90 * time.Second)
				default:
				}
				for _, want := range pods {
					actions, _ := plan.Plan(time.Now(), want, plan.Observed{PodState: r.fake.State(key("web"))})
					if st := r.fake.State(key("web")); len(actions) > 0 || len(st.Containers) != 2 {
						t.Errorf("killed after %d actions, in step %d: %+v, to do: %v", kill, i, st, actions)
					}
				}
			}
			if st := r.fake.State(key("web")); st.Sandbox != nil || len(st.Containers) > 0 {
				t.Errorf("killed after %d actions: left over %+v", kill, st)
			}
		})
		if !died {
			if kill < 20 {
				t.Errorf("the life had only %d actions", kill-1)
			}
			return
		}
	}
}

func TestUndesiredPodIsKeptUntilItsSourceIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.journal()
		r.restart()
		crash := func(what string) {
			t.Helper()
			r.pass(11 * time.Minute) // resets the back-off
			if err := r.fake.Exit(key("web"), "a", 1); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Minute)
			r.expect(what, `
				EnsureImage a
				CreateContainer a (exited with 1, restart policy Always)
				StartContainer a (exited with 1, restart policy Always)
				RemoveContainer a (restarted)`)
		}
		r.pass(time.Second)
		r.expect("before anything is known", "")
		r.pass(2 * time.Second)
		crash("nothing known for a while")
		r.pool.Update(model.Desired{Reported: map[string]bool{"http": true}})
		r.settle()
		crash("its source not read")
		if w := r.status("web").Why; !strings.Contains(w, "has not been read") {
			t.Errorf("why: %s", w)
		}
		r.pool.Update(model.Desired{Reported: everySource(), Unknown: map[string][]string{"file": {"/m/other.yaml"}}})
		r.settle()
		r.expect("its source read", `
			StopContainer a (pod removed)
			RemoveContainer a (pod removed)
			RemoveSandbox (pod removed)`)
		if n := len(r.pool.Pods()); n != 0 {
			t.Errorf("%d pods left", n)
		}
	})
}

func TestRunningPodIsNotReplacedWhileHigherSourceIsUnread(t *testing.T) {
	higher := manifests.Origin{Source: "file", File: "/m/a.yaml"}
	for name, lower := range map[string]manifests.Origin{
		"of another source":          {Source: "applied", File: "/applied/web.yaml"},
		"another file of one source": {Source: "file", File: "/m/b.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { keptBefore(t, higher, lower) })
		})
	}
}

// keptBefore has a pod in two sources. The one of higher precedence has been read at first and is not read after a restart.
func keptBefore(t *testing.T, higher, lower manifests.Origin) {
	first, second := testPod("web", testContainer("a", runtimetest.ScriptServe)), testPod("web", testContainer("a", runtimetest.ScriptServe))
	first.Origin, second.Origin = higher, lower
	second.Object.Spec.Containers[0].Image = "example.com/older:1"
	r := newRig(t).start()
	r.update(first)
	r.journal()
	r.restart()
	read := false
	update := func() {
		d := model.Desired{Pods: []*manifests.Pod{second}, Order: []string{"file", "applied"}, Reported: everySource()}
		if !read {
			d.Unknown = map[string][]string{"file": {higher.File}}
		}
		r.pool.Update(d)
		r.settle()
	}
	update()
	r.expect("the file has not been read", "")
	if s := r.status("web"); s.Origin != higher || !strings.Contains(s.Why, "has not been read") {
		t.Errorf("from %s: %s", s.Origin.File, s.Why)
	}
	read = true
	update()
	if got := r.journal(); !strings.Contains(got, "CreateContainer a") {
		t.Errorf("the file lacks it: actions\n%s", got)
	}
	if s := r.status("web"); s.Origin != lower || s.Why != "" {
		t.Errorf("from %s: %s", s.Origin.File, s.Why)
	}
}

func TestTheSecondPodForAPortWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		a, b := portPod("a", "80"), portPod("b", "80")
		r.update(b, a)
		s := r.status("a")
		if s.Pod.Status.Reason != runner.ReasonHostPortConflict || s.Why != "HostPortConflict: host port 80/TCP is taken by pod default/b" {
			t.Errorf("%s: %s", s.Pod.Status.Reason, s.Why)
		}
		r.update(a, b) // the order is irrelevant now: b runs
		if s := r.status("a"); s.Pod.Status.Phase != corev1.PodPending {
			t.Errorf("a is %s", s.Pod.Status.Phase)
		}
		r.restart() // a restart changes nothing
		r.update(a, b)
		if s := r.status("b"); s.Pod.Status.Phase != corev1.PodRunning || len(r.pool.Pods()) != 2 {
			t.Errorf("b is %s", s.Pod.Status.Phase)
		}
		if s := r.status("a"); s.Pod.Status.Phase != corev1.PodPending {
			t.Errorf("a is %s after a restart", s.Pod.Status.Phase)
		}
		// An edit that requests a port of another pod is not applied; the pod keeps running.
		c := portPod("c", "90")
		r.update(a, b, c)
		r.journal()
		r.update(a, b, portPod("c", "90", "80"))
		if s := r.status("c"); s.Pod.Status.Phase != corev1.PodRunning || !strings.Contains(s.Why, "taken by pod default/b; the pod continues unchanged") {
			t.Errorf("c is %s: %s", s.Pod.Status.Phase, s.Why)
		}
		r.expect("edit", "")
		// When b moves to another port, a gets it.
		moved := portPod("b", "81")
		r.update(a, moved, c)
		if s := r.status("a"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
			t.Errorf("a is %s: %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

func TestPodsBeyondTheLimitWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.MaxPods = 2
		r.start()
		pods := servers(3)
		r.update(pods...)
		if s := r.status("p002"); s.Pod.Status.Phase != corev1.PodPending || s.Pod.Status.Reason != admit.ReasonOutOfPods {
			t.Errorf("%s %s", s.Pod.Status.Phase, s.Pod.Status.Reason)
		}
		r.update(pods[1:]...)
		if s := r.status("p002"); s.Pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s %s", s.Pod.Status.Phase, s.Why)
		}
	})
}

// counting counts the actions that run concurrently.
type counting struct {
	runner.Runtime
	mu        sync.Mutex
	now, most int
	count     func(runner.Action) bool
}

func (c *counting) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if c.count(a) {
		c.mu.Lock()
		c.now++
		c.most = max(c.most, c.now)
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.now--
			c.mu.Unlock()
		}()
	}
	return c.Runtime.Apply(ctx, key, pod, a)
}

func TestOnlySomePodsStartAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(runner.Action) time.Duration { return 10 * time.Millisecond }
		c := &counting{Runtime: r.fake, count: func(a runner.Action) bool {
			return a.Kind == runner.CreateSandbox || a.Kind == runner.CreateContainer || a.Kind == runner.StartContainer
		}}
		r.runtime = c
		r.start()
		r.update(servers(30)...)
		r.pass(10 * time.Second)
		if c.most != 4 {
			t.Errorf("%d at the same time, want 4", c.most)
		}
		// Pods that have begun to start complete their start before others begin.
		created, started := map[manifests.Key]int{}, map[manifests.Key]int{}
		for i, e := range r.fake.Journal() {
			switch e.Action.Kind {
			case runner.CreateSandbox:
				created[e.Key] = i
			case runner.StartContainer:
				started[e.Key] = i
			}
		}
		for k, at := range created {
			if started[k]-at > 4*4 {
				t.Errorf("%s: %d actions between its sandbox and its start", k, started[k]-at)
			}
		}
	})
}

func TestStoppingDoesNotWaitForStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		old := testPod("old", testContainer("a", runtimetest.ScriptServe))
		r.update(old)
		r.stop()
		r.fake.NetworkDelay = time.Minute
		r.start()
		r.update(append(servers(8), old)...)
		r.update(servers(8)...)
		r.pass(time.Second)
		if st := r.fake.State(key("old")); st.Sandbox != nil {
			t.Errorf("the old pod waits for the new ones: %+v", st)
		}
	})
}

func TestWatchReportsEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("x", testContainer("a", runtimetest.ScriptServe)))
		ctx, cancel := context.WithCancel(t.Context())
		var (
			got []string
			mu  sync.Mutex
		)
		stopped := make(chan error, 1)
		go func() {
			stopped <- r.pool.Watch(ctx, func(c pool.Change) error {
				mu.Lock()
				defer mu.Unlock()
				line := fmt.Sprintf("%s %s gone=%t", c.Key.Name, c.Status.Pod.Status.Phase, c.Gone)
				if n := len(got); n == 0 || got[n-1] != line {
					got = append(got, line)
				}
				return nil
			})
		}()
		r.settle()
		r.update(testPod("y", testContainer("a", runtimetest.ScriptServe)))
		r.pass(time.Minute)
		mu.Lock()
		text := strings.Join(got, "\n")
		mu.Unlock()
		for _, want := range []string{"x Running gone=false", "y Running gone=false", "gone=true"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Watch: %v", err)
		}
		enough := errors.New("enough")
		if err := r.pool.Watch(t.Context(), func(pool.Change) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("Watch returned %v", err)
		}
	})
}

func TestSubscriberGetsPodRemovedBeforeWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("x", testContainer("a", runtimetest.ScriptServe)))
		r.pass(time.Second)
		r.stop()
		r.start()
		changes := r.pool.Subscribe()
		r.update()
		r.pass(time.Minute)
		gone := errors.New("gone")
		err := changes.Watch(t.Context(), func(c pool.Change) error {
			if c.Key == key("x") && c.Gone {
				return gone
			}
			return fmt.Errorf("told of %+v", c)
		})
		if !errors.Is(err, gone) {
			t.Error(err)
		}
	})
}

// TestLastStatusOfARemovedPodIsComplete: a pod that has no record, or no longer has one, is shown as before until it is gone.
func TestLastStatusOfARemovedPodIsComplete(t *testing.T) {
	for name, started := range map[string]bool{"never started": false, "was running": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.fake.Fail = func(_ manifests.Key, a runner.Action) error {
					if !started && a.Kind == runner.CreateSandbox {
						return errors.New("no network")
					}
					return nil
				}
				r.start()
				pod := testPod("web", testContainer("a", runtimetest.ScriptServe))
				pod.Object.UID, pod.Origin = "11111111-2222-3333-4444-555555555555", manifests.Origin{Source: "file", File: "/m/web.yaml", Line: 3}
				r.update(pod)
				r.pass(time.Second)
				var last podstatus.Status
				gone := errors.New("gone")
				ended := make(chan error, 1)
				go func() {
					ended <- r.pool.Watch(t.Context(), func(c pool.Change) error {
						if c.Gone {
							last = c.Status
							return gone
						}
						return nil
					})
				}()
				r.settle()
				r.pool.Graces(map[string]time.Duration{string(pod.Object.UID): 7 * time.Second})
				r.update()
				r.pass(time.Minute)
				if err := <-ended; !errors.Is(err, gone) {
					t.Fatal(err)
				}
				p := last.Pod
				if last.Origin != pod.Origin || p.UID != pod.Object.UID || len(p.Spec.Containers) != 1 || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 7 {
					t.Errorf("origin %+v, %+v, %d containers", last.Origin, p.ObjectMeta, len(p.Spec.Containers))
				}
			})
		})
	}
}

func TestStoppingAgentEndsNoPodAndNoRunningAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(runner.Action) time.Duration { return 3 * time.Second }
		r.start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe)))
		r.pass(7 * time.Second) // sandbox and image exist; the container is being created
		began := time.Now()
		r.stop()
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("stopping took %s", d)
		}
		if st := r.fake.State(key("web")); len(st.Containers) != 1 || st.Containers[0].State != runner.ContainerCreated {
			t.Errorf("state %+v", st)
		}
		r.pass(time.Hour)
		if st := r.fake.State(key("web")); st.Containers[0].State != runner.ContainerCreated {
			t.Error("something went on after the end")
		}
	})
}

func TestOnlyLatestUpdateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(runner.Action) time.Duration { return time.Millisecond }
		r.start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptStubborn))
		r.update(pod)
		r.pass(time.Second)
		first := r.fake.State(key("web")).Sandbox.UID
		for i := range 300 { // edits, 100 ms apart, while the old instance does not stop
			pod = edited(pod, func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "N", Value: fmt.Sprint(i)}} })
			r.update(pod)
			r.pass(100 * time.Millisecond)
		}
		r.pass(time.Minute)
		st := r.fake.State(key("web"))
		if len(st.Containers) != 1 || st.Containers[0].Hash != podhash.Container(pod.Object, "a") || st.Containers[0].State != runner.ContainerRunning {
			t.Errorf("state %+v", st)
		}
		if st.Sandbox.UID != first {
			t.Errorf("the uid has changed")
		}
	})
}

func TestEndOfPullIsNeverMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.EnsureImage {
				return time.Second
			}
			return 0
		}
		r.start()
		r.update(servers(500)...)
		r.pass(time.Minute)
		for _, s := range r.pool.Pods() {
			if s.Pod.Status.Phase != corev1.PodRunning {
				t.Errorf("%s is %s: %s", s.Key(), s.Pod.Status.Phase, s.Why)
			}
		}
	})
}
