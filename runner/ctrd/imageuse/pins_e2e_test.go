//go:build e2e

package imageuse_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/e2e/testimages"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/podhash"
)

// collect runs containerd's garbage collection to its end.
func collect(t *testing.T, a *ctrdtest.Agent) {
	t.Helper()
	ctx := a.NS(context.Background())
	l, err := a.Client.LeasesService().Create(ctx, leases.WithRandomID())
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, a.Client.LeasesService().Delete(ctx, l, leases.SynchronousDelete))
}

// pin sets the digests that are kept.
func pin(t *testing.T, a *ctrdtest.Agent, digests ...string) {
	t.Helper()
	if gone, err := a.SyncPins(t.Context(), digests); err != nil || len(gone) != 0 {
		t.Fatalf("gone: %v, %v", gone, err)
	}
}

// isPresent reports whether containerd has the content of a digest.
func isPresent(t *testing.T, a *ctrdtest.Agent, dig string) bool {
	t.Helper()
	_, err := a.Client.ContentStore().Info(a.NS(context.Background()), digest.Digest(dig))
	if err != nil && !errdefs.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// moveTag imports another image under an archive's name, like a user who replaces a preloaded archive.
func moveTag(s *ctrdtest.Stage, w *ctrdtest.World, tag, edition string) {
	s.T.Helper()
	img := testimages.Busybox(s.T, nil, testimages.File{Path: "/edition", Content: []byte(edition), Mode: 0o644})
	testimages.ArchiveOf(s.T, filepath.Join(w.Dir, "images", strings.ReplaceAll(tag, "/", "_")+".tar"), img, tag)
	ctx, cancel := context.WithCancel(s.T.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Preload(ctx, func(err error) { ctrdtest.Check(s.T, err); cancel() }) }()
	ctrdtest.Check(s.T, <-ended)
}

// TestAPodThatIsGoneBackToRunsItsDigests moves the tags of a container and of an image volume, removes their records and collects
// garbage, without a registry.
func TestAPodThatIsGoneBackToRunsItsDigests(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	const app, data = "example.com/app:stable", "example.com/data:stable"
	moveTag(s, w, app, "app-one")
	moveTag(s, w, data, "data-one")
	seen := filepath.Join(w.Dir, "seen")
	ctrdtest.Check(t, os.Mkdir(seen, 0o755))
	load := func(edit string) *manifests.Pod {
		t.Helper()
		pods, err := decode.Pods("/x/app.yaml", fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: data, image: {reference: %q, pullPolicy: IfNotPresent}}
  - {name: seen, hostPath: {path: %q}}
  containers:
  - name: c
    image: %q
    imagePullPolicy: Always
    env: [{name: EDIT, value: %q}]
    command: [sh, -c, 'echo $(cat /edition) $(cat /data/edition) $EDIT > /seen/now; exec sleep 1000']
    volumeMounts: [{name: data, mountPath: /data}, {name: seen, mountPath: /seen}]
`, data, seen, app, edit), decode.Options{Source: "file"})
		ctrdtest.Check(t, err)
		pods[0].Object.Spec.Containers[0].ImagePullPolicy = "IfNotPresent" // the registry is gone; a rollback never contacts it
		return pods[0]
	}
	run := func(p *manifests.Pod) {
		s.Pool.Update(model.Desired{Pods: []*manifests.Pod{p}, Reported: map[string]bool{"": true, "file": true, "test": true}})
	}
	says := func(want string, of *manifests.Pod) (images map[string]string) {
		t.Helper()
		ctrdtest.Within(t, 30*time.Second, "it says "+want, func() bool {
			b, err := os.ReadFile(filepath.Join(seen, "now"))
			if err != nil || strings.TrimSpace(string(b)) != want {
				return false
			}
			all := s.Pool.Pods()
			if len(all) != 1 || all[0].Recorded == nil || podhash.Pod(all[0].Recorded.Object) != podhash.Pod(of.Object) {
				return false
			}
			images = all[0].Images
			return len(images) == 2
		})
		return images
	}
	one := load("1")
	run(one)
	first := says("app-one data-one 1", one)

	// Images in use are kept without a pin, because a new revision will record them.
	moveTag(s, w, app, "app-two")
	moveTag(s, w, data, "data-two")
	collect(t, s.Agent)
	for key, dig := range first {
		if !isPresent(t, s.Agent, dig) {
			t.Fatalf("%s of a pod that runs is gone", key)
		}
	}
	pin(t, s.Agent, first["c"], first["volume/data"])
	two := load("2")
	run(two)
	second := says("app-two data-two 2", two)
	if first["c"] == second["c"] || first["volume/data"] == second["volume/data"] {
		t.Fatalf("they are the same: %v, %v", first, second)
	}
	for _, tag := range []string{app, data} {
		ctrdtest.Check(t, s.Client.ImageService().Delete(s.NS(t.Context()), tag))
	}
	ctrdtest.Within(t, 30*time.Second, "the first containers are gone", func() bool { return s.Removal.Teardown.Pending() == 0 })
	collect(t, s.Agent)

	back := one.Object.DeepCopy()
	back.Spec.Containers[0].ImagePullPolicy = "Always" // there is no registry
	pinned := &manifests.Pod{Object: back, Origin: one.Origin, Images: first}
	run(pinned)
	if got := says("app-one data-one 1", pinned); !maps.Equal(got, first) {
		t.Errorf("it runs %v instead of %v", got, first)
	}
	collect(t, s.Agent)
	if isPresent(t, s.Agent, second["c"]) || isPresent(t, s.Agent, second["volume/data"]) {
		t.Error("what nobody wants is kept")
	}

	// After a crash the next agent keeps them until SyncPins is called.
	s.Stop()
	s.Agent.Stop(t)
	next := w.Stage(t)
	*s = *next
	ctrdtest.Check(t, os.Remove(filepath.Join(seen, "now")))
	st, err := s.Observe(t.Context(), one.Key())
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, unix.Kill(int(st.Containers[0].PID), unix.SIGKILL))
	says("app-one data-one 1", pinned)

	s.Close()
	s2 := w.Open(t)
	pin(t, s2)
	collect(t, s2)
	if isPresent(t, s2, first["c"]) || isPresent(t, s2, first["volume/data"]) {
		t.Error("what is not pinned any more is kept")
	}
	s2.End(t)
}
