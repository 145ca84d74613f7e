//go:build e2e

package ctrd

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

	"monopod/e2e/testimages"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/podhash"
)

// collect runs containerd's garbage collection to its end.
func (a *agent) collect(t *testing.T) {
	t.Helper()
	ctx := a.ns(context.Background())
	l, err := a.client.LeasesService().Create(ctx, leases.WithRandomID())
	check(t, err)
	check(t, a.client.LeasesService().Delete(ctx, l, leases.SynchronousDelete))
}

// pin sets the digests that are kept.
func (a *agent) pin(t *testing.T, digests ...string) {
	t.Helper()
	if gone, err := a.SyncPins(t.Context(), digests); err != nil || len(gone) != 0 {
		t.Fatalf("gone: %v, %v", gone, err)
	}
}

// present reports whether containerd has the content of a digest.
func (a *agent) present(t *testing.T, dig string) bool {
	t.Helper()
	_, err := a.client.ContentStore().Info(a.ns(context.Background()), digest.Digest(dig))
	if err != nil && !errdefs.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// moveTag imports another image under an archive's name, like a user who replaces a preloaded archive.
func (s *stage) moveTag(w *world, tag, edition string) {
	s.t.Helper()
	img := testimages.Busybox(s.t, nil, testimages.File{Path: "/edition", Content: []byte(edition), Mode: 0o644})
	testimages.ArchiveOf(s.t, filepath.Join(w.dir, "images", strings.ReplaceAll(tag, "/", "_")+".tar"), img, tag)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Preload(ctx, func(err error) { check(s.t, err); cancel() }) }()
	check(s.t, <-ended)
}

// TestAPodThatIsGoneBackToRunsItsDigests moves the tags of a container and of an image volume, removes their records and collects
// garbage, without a registry.
func TestAPodThatIsGoneBackToRunsItsDigests(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	const app, data = "example.com/app:stable", "example.com/data:stable"
	s.moveTag(w, app, "app-one")
	s.moveTag(w, data, "data-one")
	seen := filepath.Join(w.dir, "seen")
	check(t, os.Mkdir(seen, 0o755))
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
		check(t, err)
		pods[0].Object.Spec.Containers[0].ImagePullPolicy = "IfNotPresent" // the registry is gone; a rollback never contacts it
		return pods[0]
	}
	run := func(p *manifests.Pod) {
		s.pool.Update(model.Desired{Pods: []*manifests.Pod{p}, Reported: map[string]bool{"": true, "file": true, "test": true}})
	}
	says := func(want string, of *manifests.Pod) (images map[string]string) {
		t.Helper()
		within(t, 30*time.Second, "it says "+want, func() bool {
			b, err := os.ReadFile(filepath.Join(seen, "now"))
			if err != nil || strings.TrimSpace(string(b)) != want {
				return false
			}
			all := s.pool.Pods()
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
	s.moveTag(w, app, "app-two")
	s.moveTag(w, data, "data-two")
	s.collect(t)
	for key, dig := range first {
		if !s.present(t, dig) {
			t.Fatalf("%s of a pod that runs is gone", key)
		}
	}
	s.pin(t, first["c"], first["volume/data"])
	two := load("2")
	run(two)
	second := says("app-two data-two 2", two)
	if first["c"] == second["c"] || first["volume/data"] == second["volume/data"] {
		t.Fatalf("they are the same: %v, %v", first, second)
	}
	for _, tag := range []string{app, data} {
		check(t, s.client.ImageService().Delete(s.ns(t.Context()), tag))
	}
	within(t, 30*time.Second, "the first containers are gone", func() bool { return s.removal.Teardown.Pending() == 0 })
	s.collect(t)

	back := one.Object.DeepCopy()
	back.Spec.Containers[0].ImagePullPolicy = "Always" // there is no registry
	pinned := &manifests.Pod{Object: back, Origin: one.Origin, Images: first}
	run(pinned)
	if got := says("app-one data-one 1", pinned); !maps.Equal(got, first) {
		t.Errorf("it runs %v instead of %v", got, first)
	}
	s.collect(t)
	if s.present(t, second["c"]) || s.present(t, second["volume/data"]) {
		t.Error("what nobody wants is kept")
	}

	// After a crash the next agent keeps them until SyncPins is called.
	s.stop()
	s.agent.stop(t)
	next := w.stage(t)
	*s = *next
	check(t, os.Remove(filepath.Join(seen, "now")))
	st, err := s.Observe(t.Context(), one.Key())
	check(t, err)
	check(t, unix.Kill(int(st.Containers[0].PID), unix.SIGKILL))
	says("app-one data-one 1", pinned)

	s.close()
	s2 := w.open(t)
	s2.pin(t)
	s2.collect(t)
	if s2.present(t, first["c"]) || s2.present(t, first["volume/data"]) {
		t.Error("what is not pinned any more is kept")
	}
	s2.end(t)
}
