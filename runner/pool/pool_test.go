package pool_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/runtimetest"
)

// rig is a pool on a fake, inside a synctest bubble.
type rig struct {
	t    *testing.T
	fake *runtimetest.Fake
	// runtime replaces the fake if it is set.
	runtime runner.Runtime
	pool    *pool.Pool
	cancel  context.CancelFunc
	done    chan struct{}
	log     *syncBuffer
	cfg     pool.Config
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, fake: runtimetest.NewFake(), log: &syncBuffer{}}
	r.cfg = pool.Config{
		Log:      slog.New(slog.NewTextHandler(r.log, nil)),
		NodeName: "node", NodeIPs: func() []string { return []string{"192.0.2.1"} },
	}
	t.Cleanup(func() {
		r.stop()
		for _, o := range r.fake.Overlaps() {
			t.Errorf("two actions at once: %s", o)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

func (r *rig) start() *rig {
	var rt runner.Runtime = r.fake
	if r.runtime != nil {
		rt = r.runtime
	}
	r.pool = pool.New(rt, r.cfg)
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		if err := r.pool.Run(ctx); err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}()
	return r
}

func (r *rig) stop() {
	if r.cancel != nil {
		r.cancel()
		<-r.done
		r.cancel = nil
	}
}

// restart stops the agent and starts the next one on the same machine.
func (r *rig) restart() {
	r.stop()
	r.fake = r.fake.Restart()
	r.start()
}

// update sets the desired pods and waits until the bubble is idle.
func (r *rig) update(pods ...*manifests.Pod) {
	r.pool.Update(model.Desired{Pods: pods, Reported: everySource()})
	r.settle()
}

func (r *rig) settle() { time.Sleep(time.Millisecond); synctest.Wait() }

// pass lets time pass.
func (r *rig) pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

// journal returns the actions applied since the last call, without the pod's key.
func (r *rig) journal() string {
	var lines []string
	for _, e := range r.fake.Journal() {
		lines = append(lines, e.Action.String())
	}
	r.fake.ClearJournal()
	return strings.Join(lines, "\n")
}

func (r *rig) expect(what, want string) {
	r.t.Helper()
	got := r.journal()
	want = strings.TrimSpace(strings.ReplaceAll(want, "\t", ""))
	if got != want {
		r.t.Errorf("%s: actions\n%s\nwant\n%s", what, got, want)
	}
}

func (r *rig) status(name string) podstatus.Status {
	r.t.Helper()
	for _, s := range r.pool.Pods() {
		if s.Pod.Name == name {
			return s
		}
	}
	r.t.Fatalf("no pod %s", name)
	return podstatus.Status{}
}

func TestPodIsCreatedAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)))
		r.expect("start", `
			CreateSandbox (pod added)
			EnsureImage a
			CreateContainer a (first start)
			StartContainer a (first start)
			EnsureImage b
			CreateContainer b (first start)
			StartContainer b (first start)`)
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" || !s.NextTry.IsZero() {
			t.Errorf("status: %s, %q, %s", s.Pod.Status.Phase, s.Why, s.NextTry)
		}
		r.update()
		r.expect("removal", `
			StopContainer a (pod removed)
			StopContainer b (pod removed)
			RemoveContainer a (pod removed)
			RemoveContainer b (pod removed)
			RemoveSandbox (pod removed)`)
		if n := len(r.pool.Pods()); n != 0 {
			t.Errorf("%d pods left", n)
		}
	})
}

func TestEditAffectsOnlyEditedContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pod := testPod("web", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptSlowStop))
		r.update(pod)
		r.journal()
		pod = edited(pod, func(p *corev1.Pod) { p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "X", Value: "1"}} })
		r.update(pod)
		r.pass(time.Second)
		r.expect("edit", `
			EnsureImage b
			CreateContainer b (definition changed)
			StopContainer b (definition changed)
			StartContainer b (ready)
			RemoveContainer b (replaced)
			RecordPod (manifest changed)`)
	})
}

func TestPodsAreSortedAndHaveOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.update(servers(5)[4], servers(5)[1], servers(5)[3])
		var got []string
		for _, s := range r.pool.Pods() {
			got = append(got, s.Pod.Name+" "+s.Origin.File)
		}
		if want := "p001 /m/p001.yaml,p003 /m/p003.yaml,p004 /m/p004.yaml"; strings.Join(got, ",") != want {
			t.Errorf("pods %v", got)
		}
	})
}

func TestPodsHaveDistinctUIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		pods := servers(20)
		r.update(pods...)
		seen := map[string]bool{}
		for _, p := range pods {
			uid := r.fake.State(p.Key()).Sandbox.UID
			if seen[uid] || len(uid) != 36 || uid[14] != '4' {
				t.Errorf("uid %q", uid)
			}
			seen[uid] = true
			if s := r.status(p.Object.Name); string(s.Pod.UID) != uid {
				t.Errorf("the status says %q, the sandbox %q", s.Pod.UID, uid)
			}
		}
	})
}

func TestBeatRespondsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		if err := r.pool.Beat(t.Context()); err != nil {
			t.Error(err)
		}
		r.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.pool.Beat(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// everySource reports all sources of the tests as read.
func everySource() map[string]bool {
	return map[string]bool{"": true, "file": true, "http": true, "applied": true, "test": true}
}
