package record

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/metatest"
)

// newStore returns a Store without records, and a context with a namespace.
func newStore(t *testing.T) (*Store, context.Context) {
	t.Helper()
	c, ctx := metatest.New(t)
	return &Store{Client: c, Dirs: layout.Dirs{Root: "/var/lib/monopod"}, Index: NewIndex(), ShimPath: "/shim", Log: slog.New(slog.DiscardHandler)}, ctx
}

// createContainer stores a record as package container does.
func (r *Store) createContainer(ctx context.Context, t *testing.T, rec *Container) {
	t.Helper()
	ext, err := rec.Extensions()
	if err != nil {
		t.Fatal(err)
	}
	created, err := r.Client.ContainerService().Create(ctx, containers.Container{
		ID: rec.ID, Labels: rec.Meta.Labels(), Extensions: ext, Runtime: containers.RuntimeInfo{Name: "/shim"}, Spec: jsonAny{"spec", []byte("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	rec.CreatedAt = created.CreatedAt
	r.Index.PutContainer(rec)
}

// reloaded returns the index of the next agent.
func (r *Store) reloaded(ctx context.Context, t *testing.T) *Index {
	t.Helper()
	next := &Store{Client: r.Client, Dirs: r.Dirs, Index: NewIndex(), Log: r.Log}
	if err := next.Load(ctx, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	return next.Index
}

// TestTheNextAgentSeesTheSameRecords applies random changes, then reads all records from containerd.
func TestTheNextAgentSeesTheSameRecords(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 11, 20, 18, 0, 0, 5, time.UTC)
	r, ctx := newStore(t)
	for n := range 4 {
		id := fmt.Sprint("sandbox-", n)
		rec := sandboxOf(id, Active)
		rec.Meta.Owner, rec.Meta.Key = r.Dirs.Root, manifests.Key{Namespace: "default", Name: id}
		if err := r.StoreSandbox(ctx, rec); err != nil {
			t.Fatal(err)
		}
		if err := r.StoreSandbox(ctx, rec); err != nil {
			t.Errorf("the second time: %v", err)
		}
		r.Index.PutSandbox(rec)
		m := fullContainer()
		m.Key, m.UID, m.SandboxID, m.Generation = rec.Meta.Key, rec.Meta.UID, id, n
		r.createContainer(ctx, t, &Container{ID: fmt.Sprint("container-", n), Meta: m})
	}
	for step := range 60 {
		n := rnd.IntN(4)
		id, rec := fmt.Sprint("sandbox-", n), r.Index.Container(fmt.Sprint("container-", n))
		var err error
		switch rnd.IntN(6) {
		case 5:
			_, err = r.UpdateSandbox(ctx, id, func(s *Sandbox) { s.Ephemeral = append(slices.Clone(s.Ephemeral), debugger(step)) }, ExtEphemeral)
		case 0:
			_, err = r.UpdateSandbox(ctx, id, func(s *Sandbox) { s.Meta.Failed, s.Meta.FailedAt, s.Meta.Evictions = "Evicted", at, step }, ExtSandbox)
		case 1:
			_, err = r.UpdateSandbox(ctx, id, func(s *Sandbox) { s.Network = NetworkResult{Ready: true, IPs: []string{fmt.Sprint(step)}} }, ExtNetwork)
		case 2:
			pod := testPod()
			pod.Object.Labels, pod.Images = map[string]string{"step": fmt.Sprint(step)}, map[string]string{"a": "sha256:1"}
			_, err = r.UpdateSandbox(ctx, id, func(s *Sandbox) { s.Pod = pod }, ExtPod, ExtOrigin)
		case 3:
			_, err = r.UpdateContainer(ctx, rec, func(m *ContainerMeta) { m.StartedAt, m.StoppingAt = at.Add(time.Duration(step)), time.Time{} })
		case 4:
			_, err = r.UpdateContainer(ctx, rec, func(m *ContainerMeta) { m.Exit = &runner.Termination{ExitCode: step, FinishedAt: at} })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	next := r.reloaded(ctx, t)
	for n := range 4 {
		s, c := fmt.Sprint("sandbox-", n), fmt.Sprint("container-", n)
		if d := cmp.Diff(r.Index.SandboxByID(s), next.SandboxByID(s)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(r.Index.Container(c), next.Container(c)); d != "" {
			t.Error(d)
		}
	}
}

func TestRecordsOfOthersAreNotRead(t *testing.T) {
	r, ctx := newStore(t)
	theirs := fullContainer()
	theirs.Owner = "/elsewhere"
	r.createContainer(ctx, t, &Container{ID: "theirs", Meta: theirs})
	if _, err := r.Client.SandboxStore().Create(ctx, sandbox.Sandbox{ID: "theirs", Runtime: sandbox.RuntimeOpts{Name: "x"}}); err != nil {
		t.Fatal(err)
	}
	next := r.reloaded(ctx, t)
	if len(next.All()) != 0 || len(next.List()) != 0 {
		t.Errorf("%d containers and %d sandboxes", len(next.All()), len(next.List()))
	}
	known, err := r.KnownContainers(ctx, nil)
	if err != nil || !known["theirs"] {
		t.Errorf("known containers: %v, %v", known, err)
	}
}

// TestADamagedSandboxIsReplaced: of its containers the agent still knows the pod, so that they are removed with it.
func TestADamagedSandboxIsReplaced(t *testing.T) {
	r, ctx := newStore(t)
	rec := sandboxOf("sb", Active)
	rec.Meta.Owner = r.Dirs.Root
	if err := r.StoreSandbox(ctx, rec); err != nil {
		t.Fatal(err)
	}
	m := fullContainer()
	m.Key, m.SandboxID = TestKey, "sb"
	r.createContainer(ctx, t, &Container{ID: "c", Meta: m})
	damaged := jsonAny{ExtSandbox, []byte("{")}
	update := sandbox.Sandbox{ID: "sb"}
	if err := update.AddExtension(ExtSandbox, damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Client.SandboxStore().Update(ctx, update, "extensions."+ExtSandbox); err != nil {
		t.Fatal(err)
	}
	next := r.reloaded(ctx, t)
	if s := next.SandboxByID("sb"); s == nil || s.Meta.State != Removing || next.Sandbox(TestKey) != nil || s.Meta.Key != TestKey {
		t.Errorf("the damaged sandbox is %+v", s)
	}
	if len(next.OfSandbox("sb")) != 1 || len(next.OfPod(TestKey)) != 1 {
		t.Error("its container is lost")
	}
}

// debugger is an ephemeral container.
func debugger(n int) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprint("debugger-", n), Image: "busybox"}, TargetContainerName: "main"}
}

// TestDamageToEphemeralContainersCostsOnlyThem: the sandbox and its other containers run on.
func TestDamageToEphemeralContainersCostsOnlyThem(t *testing.T) {
	r, ctx := newStore(t)
	rec := sandboxOf("sb", Active)
	rec.Meta.Owner, rec.Ephemeral = r.Dirs.Root, []corev1.EphemeralContainer{debugger(1)}
	if err := r.StoreSandbox(ctx, rec); err != nil {
		t.Fatal(err)
	}
	update := sandbox.Sandbox{ID: "sb"}
	if err := update.AddExtension(ExtEphemeral, jsonAny{ExtEphemeral, []byte("[{")}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Client.SandboxStore().Update(ctx, update, "extensions."+ExtEphemeral); err != nil {
		t.Fatal(err)
	}
	s := r.reloaded(ctx, t).SandboxByID("sb")
	if s == nil || s.Meta.State != Active || s.Ephemeral != nil {
		t.Fatalf("%+v", s)
	}
	rec.Ephemeral = nil
	if d := cmp.Diff(rec, s); d != "" {
		t.Error(d)
	}
	r.Index.PutSandbox(s)
	if _, err := r.UpdateSandbox(ctx, "sb", func(s *Sandbox) { s.Ephemeral = []corev1.EphemeralContainer{debugger(2)} }, ExtEphemeral); err != nil {
		t.Fatal(err)
	}
	if s := r.reloaded(ctx, t).SandboxByID("sb"); len(s.Ephemeral) != 1 || s.Ephemeral[0].Name != "debugger-2" {
		t.Errorf("added after the damage: %+v", s.Ephemeral)
	}
}

func TestChangesOfMissingRecords(t *testing.T) {
	r, ctx := newStore(t)
	gone := &Container{ID: "gone", Meta: fullContainer()}
	r.Index.PutContainer(gone)
	if _, err := r.UpdateContainer(ctx, gone, func(*ContainerMeta) {}); !errdefs.IsNotFound(err) || r.Index.Container("gone") != nil {
		t.Errorf("container: %v; in the index: %v", err, r.Index.Container("gone"))
	}
	if _, err := r.UpdateSandbox(ctx, "gone", func(*Sandbox) {}, ExtSandbox); !errdefs.IsNotFound(err) {
		t.Errorf("sandbox: %v", err)
	}
	if err := r.DeleteRecord(ctx, "gone"); err != nil {
		t.Errorf("delete: %v", err)
	}
}
