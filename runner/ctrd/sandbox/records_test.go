package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/metatest"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/record"
)

// givenUp is a remover that records which sandboxes it was given.
type givenUp []string

func (g *givenUp) GiveUp(id string) { *g = append(*g, id) }

func (g *givenUp) FinishUID(context.Context, string) error { return nil }

// newManager returns a Manager without sandboxes, what it gives up, and a context with its namespace.
func newManager(t *testing.T) (*Manager, *givenUp, context.Context) {
	t.Helper()
	c, ctx := metatest.New(t)
	log, index := slog.New(slog.DiscardHandler), record.NewIndex()
	d := layout.Dirs{Root: t.TempDir(), State: t.TempDir()}
	given := &givenUp{}
	return &Manager{
		Records: &record.Store{Client: c, Dirs: d, Index: index, ShimPath: "/shim", Log: log}, Index: index, Dirs: d,
		Network: &Network{Dirs: d, Adds: NewSetups()}, Removal: given, Log: log,
	}, given, ctx
}

// add records a sandbox of the pod web.
func (r *Manager) add(ctx context.Context, t *testing.T, id string, edit func(*record.Sandbox)) *record.Sandbox {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	rec := &record.Sandbox{
		ID: id, CreatedAt: time.Now(), Pod: &manifests.Pod{Object: pod},
		Meta: record.SandboxMeta{Owner: r.Dirs.Root, Key: manifests.Key{Namespace: "default", Name: "web"}, UID: "uid-" + id, State: record.Active},
	}
	edit(rec)
	if err := r.Records.StoreSandbox(ctx, rec); err != nil {
		t.Fatal(err)
	}
	r.Index.PutSandbox(rec)
	return rec
}

// reloaded returns a sandbox as the next agent finds it.
func (r *Manager) reloaded(ctx context.Context, t *testing.T, id string) *record.Sandbox {
	t.Helper()
	next := &record.Store{Client: r.Records.Client, Dirs: r.Dirs, Index: record.NewIndex(), Log: r.Log}
	if err := next.Load(ctx, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	return next.Index.SandboxByID(id)
}

func TestARemovedSandboxIsRecordedAndTornDown(t *testing.T) {
	r, given, ctx := newManager(t)
	rec := r.add(ctx, t, "a", func(*record.Sandbox) {})
	if err := r.RemoveSandbox(ctx, rec.Meta.Key, runner.Action{KeepFiles: true, Remade: true}); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*record.Sandbox{"now": r.Index.SandboxByID("a"), "after a restart": r.reloaded(ctx, t, "a")} {
		if got == nil || got.Meta.State != record.Removing || !got.Meta.KeepFiles || !got.Meta.Remade {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if r.Index.Sandbox(rec.Meta.Key) != nil || !slices.Equal(*given, []string{"a"}) {
		t.Errorf("given up: %v", *given)
	}
	// Without a next sandbox the record that was kept for it goes.
	if err := r.RemoveSandbox(ctx, rec.Meta.Key, runner.Action{}); err != nil {
		t.Fatal(err)
	}
	if got := r.reloaded(ctx, t, "a"); got == nil || got.Meta.Remade || !slices.Equal(*given, []string{"a", "a"}) {
		t.Errorf("%+v, given up: %v", got, *given)
	}
}

// TestASandboxWhoseCreationFailedIsTornDown: its record may not exist.
func TestASandboxWhoseCreationFailedIsTornDown(t *testing.T) {
	r, given, ctx := newManager(t)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	r.DropSandbox(canceled, &record.Sandbox{ID: "new", Meta: record.SandboxMeta{State: record.Active}})
	if got := r.Index.SandboxByID("new"); got == nil || got.Meta.State != record.Removing || !slices.Equal(*given, []string{"new"}) {
		t.Errorf("%+v, given up: %v", got, *given)
	}
}

func TestTeardownsAreResumed(t *testing.T) {
	r, given, ctx := newManager(t)
	r.add(ctx, t, "older", func(*record.Sandbox) {})
	r.add(ctx, t, "newest", func(*record.Sandbox) {})
	r.add(ctx, t, "removing", func(s *record.Sandbox) { s.Meta.State = record.Removing })
	r.ResumeTeardowns(ctx)
	if slices.Sort(*given); !slices.Equal(*given, []string{"older", "removing"}) {
		t.Errorf("given up: %v", *given)
	}
	if got := r.reloaded(ctx, t, "older"); got.Meta.State != record.Removing {
		t.Errorf("the second sandbox of a pod: %+v", got.Meta)
	}
}

func TestTheFirstFailureOfAPodIsRecorded(t *testing.T) {
	r, _, ctx := newManager(t)
	key := r.add(ctx, t, "a", func(*record.Sandbox) {}).Meta.Key
	for _, reason := range []string{runner.ReasonEvicted, "Later"} {
		if err := r.FailPod(ctx, key, runner.Action{Failure: reason, Message: "the disk is full"}); err != nil {
			t.Fatal(err)
		}
	}
	got := r.reloaded(ctx, t, "a").Meta
	if got.Failed != runner.ReasonEvicted || got.FailedMessage != "the disk is full" || time.Since(got.FailedAt) > time.Minute {
		t.Errorf("%+v", got)
	}
	if err := r.FailPod(ctx, manifests.Key{Name: "gone"}, runner.Action{}); err != nil {
		t.Errorf("a pod without a sandbox: %v", err)
	}
}

func TestVolumesOfAnEvictedPodAreEmptiedOnceNothingRuns(t *testing.T) {
	r, _, ctx := newManager(t)
	for name, tt := range map[string]struct {
		failed  string
		kind    runner.ActionKind
		running bool
		emptied bool
	}{
		"evicted":              {runner.ReasonEvicted, runner.FinishContainer, false, true},
		"preempted":            {runner.ReasonPreempting, runner.FailPod, false, true},
		"a-container-runs":     {runner.ReasonEvicted, runner.FinishContainer, true, false},
		"it-failed-otherwise":  {"DeadlineExceeded", runner.FinishContainer, false, false},
		"it-has-not-failed":    {"", runner.FinishContainer, false, false},
		"after-another-action": {runner.ReasonEvicted, runner.StartContainer, false, false},
	} {
		rec := r.add(ctx, t, name, func(s *record.Sandbox) { s.Meta.UID, s.Meta.Failed = "uid", tt.failed })
		file := dirtest.Write(t, filepath.Join(r.Dirs.EmptyDir(rec.Meta.UID, "data"), "file"), 1)
		c := &record.Container{ID: "c" + name, Meta: record.ContainerMeta{Key: rec.Meta.Key, SandboxID: rec.ID, Exit: &runner.Termination{}}}
		if tt.running {
			c.Meta.Exit = nil
		}
		r.Index.PutContainer(c)
		if err := r.Applied(rec.Meta.Key, tt.kind); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(file); errors.Is(err, os.ErrNotExist) != tt.emptied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Applied(manifests.Key{Name: "gone"}, runner.FailPod); err != nil {
		t.Errorf("a pod without a sandbox: %v", err)
	}
}

func TestOnlyAnErrorOfTheNetworkIsCalledOne(t *testing.T) {
	r, _, ctx := newManager(t)
	rec := r.add(ctx, t, "a", func(*record.Sandbox) {})
	r.Network.Index = r.Index
	setup := r.Network.Adds.start(ctx, "slow", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	defer r.Network.Adds.Forget("slow")
	over, cancel := context.WithCancel(ctx)
	cancel()
	for name, tt := range map[string]struct {
		err  error
		want cause.Kind
	}{
		"interrupted":        {r.Network.WaitNetwork(ctx, rec.ID), cause.Network},
		"waits for too long": {networkError(setup.wait(over)), cause.Network},
		"no sandbox":         {r.Network.WaitNetwork(ctx, "none"), ""},
		"hosts file":         {networkError(errors.New("write hosts file: input/output error")), ""},
	} {
		if tt.err == nil || cause.Of(tt.err).Kind != tt.want {
			t.Errorf("%s: %v, cause %q, want %q", name, tt.err, cause.Of(tt.err).Kind, tt.want)
		}
	}
}

func TestWhatTheNetworkLearnsOfAPod(t *testing.T) {
	r, _, ctx := newManager(t)
	rec := r.add(ctx, t, "a", func(s *record.Sandbox) {
		s.Pod.Object.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "8M"}
		always := corev1.ContainerRestartPolicyAlways
		s.Pod.Object.Spec = corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "setup", Ports: []corev1.ContainerPort{{HostPort: 1, ContainerPort: 1}}},
				{Name: "sidecar", RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 53, ContainerPort: 5353, Protocol: corev1.ProtocolUDP}}},
			},
			Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 9}, {HostPort: 80, ContainerPort: 8080, HostIP: "127.0.0.1"}}}},
		}
	})
	got := r.Network.networkPod(rec)
	want := []network.PortMapping{{HostPort: 53, ContainerPort: 5353, Protocol: "udp"}, {HostPort: 80, ContainerPort: 8080, Protocol: "tcp", HostIP: "127.0.0.1"}}
	slices.SortFunc(got.PortMappings, func(a, b network.PortMapping) int { return int(a.HostPort - b.HostPort) })
	if !slices.Equal(got.PortMappings, want) || got.Bandwidth != (bandwidth.Limits{Ingress: 8_000_000}) || got.UID != "uid-a" || got.Pin != "" {
		t.Errorf("%+v", got)
	}
	rec.Pod.Object.Spec.HostNetwork = true
	if got := r.Network.networkPod(rec); got.Pin != filepath.Join(r.Dirs.NsDir("a"), "ipc") {
		t.Errorf("in the host network: %+v", got)
	}
}

func TestAHostPortThatIsTakenIsAConflict(t *testing.T) {
	for _, tt := range []struct {
		err    error
		reason string
		cause  cause.Cause
	}{
		{&hostports.HeldError{Pod: "default/other"}, runner.ReasonHostPortConflict, cause.Cause{Kind: cause.HostPortPod, Pod: "default/other"}},
		{&hostports.HeldError{Process: hostports.Process{Name: "nginx"}}, runner.ReasonHostPortConflict, cause.Cause{Kind: cause.HostPortProcess}},
		{errors.New("no IP addresses available"), runner.ReasonCreatePodSandboxError, cause.Cause{}},
	} {
		err := networkError(tt.err)
		if step, ok := errors.AsType[*runner.StepError](err); !ok || step.Reason != tt.reason || cause.Of(err) != tt.cause {
			t.Errorf("%v: %+v, cause %+v", tt.err, step, cause.Of(err))
		}
	}
	if err := networkError(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
