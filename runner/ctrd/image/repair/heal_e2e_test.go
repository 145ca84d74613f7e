//go:build e2e

package repair_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/ctrdtest"
	"monopod/e2e/testimages"
	"monopod/manifests"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/notice"
)

// toldEvents is a runner.Recorder that keeps messages.
type toldEvents struct {
	mu  sync.Mutex
	all []string
}

// Event implements runner.Recorder.
func (e *toldEvents) Event(_ corev1.ObjectReference, _, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, reason+" "+message)
}

func (e *toldEvents) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.all, "\n")
}

// shutdownFile is the file in which an agent records how its run ended.
const shutdownFile = "shutdown.json"

// wentDown simulates a power cut for the next start.
func wentDown(t *testing.T, w *ctrdtest.World) {
	t.Helper()
	ctrdtest.Check(t, os.WriteFile(filepath.Join(w.Dir, "root", shutdownFile), []byte(`{"boot": "another", "clean": false}`), 0o600))
}

// filesBelow returns the regular files below a directory of the containerd root, the largest first.
func filesBelow(t *testing.T, w *ctrdtest.World, dir string) (paths []string) {
	t.Helper()
	largest := int64(-1)
	err := filepath.WalkDir(filepath.Join(w.Dir, "root", "containerd", dir), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Size() > largest {
			largest, paths = st.Size(), append([]string{path}, paths...)
		} else {
			paths = append(paths, path)
		}
		return err
	})
	ctrdtest.Check(t, err)
	return paths
}

const (
	blobFiles     = "io.containerd.content.v1.content/blobs"
	snapshotFiles = "io.containerd.snapshotter.v1.overlayfs/snapshots"
)

func zero(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, os.Chmod(path, 0o644))
	ctrdtest.Check(t, os.WriteFile(path, make([]byte, st.Size()), 0o644))
}

func healPod(t *testing.T, name, image string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: %s, imagePullPolicy: IfNotPresent, command: [sh, -c, "cat /second/file 2>/dev/null; ls /first 2>/dev/null; echo ran"]}]
`, name, image))
}

// runPod starts a pod, and returns what it printed.
func runPod(t *testing.T, a *ctrdtest.Agent, name, image string) string {
	t.Helper()
	pod := healPod(t, name, image)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	a.Exit(t, pod.Key())
	var out string
	ctrdtest.Within(t, 10*time.Second, "it has printed all", func() bool { out = a.LogOf(t, pod.Key()); return strings.HasSuffix(out, "ran\n") })
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	return out
}

// layered is an image with a second layer that adds a file and removes another of the first.
func layered(t *testing.T) v1.Image {
	t.Helper()
	base := testimages.Busybox(t, nil, testimages.File{Path: "first/kept", Content: []byte("x")}, testimages.File{Path: "first/gone", Content: []byte("x")})
	more := testimages.FromFiles(t, []testimages.File{
		{Path: "second/file", Content: []byte(strings.Repeat("second\n", 20000)), Mode: 0o644}, {Path: "first/.wh.gone", Content: []byte{}},
	}, nil)
	layers, err := more.Layers()
	ctrdtest.Check(t, err)
	img, err := mutate.AppendLayers(base, layers...)
	ctrdtest.Check(t, err)
	return img
}

func TestDamageOfAPowerCutIsRepaired(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	registry := testimages.Registry(t)
	pulled := registry + "/team/layered:1"
	testimages.Push(t, pulled, layered(t))
	var told *toldEvents
	open := func() *ctrdtest.Agent {
		told = &toldEvents{}
		return w.OpenWith(t, func(c *ctrd.Config) { c.Events = told })
	}
	a := open()
	want := runPod(t, a, "first", pulled)
	if !strings.Contains(want, "second\n") || !strings.Contains(want, "kept\n") || strings.Contains(want, "gone") {
		t.Fatalf("the image does not work: %.200q", want)
	}
	runPod(t, a, "first", ctrdtest.TestImage)
	a.Stop(t)
	of := func(dir, part string) string {
		t.Helper()
		for _, path := range filesBelow(t, w, dir) {
			if strings.Contains(path, part) {
				return path
			}
		}
		t.Fatal("no file", part)
		return ""
	}
	for _, c := range []struct {
		name   string
		damage func()
		told   string
	}{
		{"nothing", func() {}, ""},
		{"a program cut short", func() { ctrdtest.Check(t, os.Truncate(of(snapshotFiles, "busybox"), 0)) }, "has 0 bytes"},
		{"zeros in a file of the upper layer", func() { zero(t, of(snapshotFiles, "second/file")) }, "second/file: differs after 0 bytes"},
		{"a mark of a removed file", func() {
			var mark string
			ctrdtest.Check(t, filepath.WalkDir(filepath.Join(w.Dir, "root", "containerd", snapshotFiles), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type()&fs.ModeCharDevice != 0 {
					mark = path
				}
				return err
			}))
			ctrdtest.Check(t, os.Remove(mark))
		}, "/first/gone: is not marked as removed"},
		{"all files of all layers", func() {
			for _, path := range filesBelow(t, w, snapshotFiles) {
				ctrdtest.Check(t, os.Truncate(path, 0))
			}
		}, "files of layer"},
		{"all blobs, and a program", func() {
			for _, path := range filesBelow(t, w, blobFiles) {
				zero(t, path)
			}
			ctrdtest.Check(t, os.Truncate(of(snapshotFiles, "busybox"), 1000))
		}, "it was fetched again from the registry"},
		{"a blob that is missing", func() { ctrdtest.Check(t, os.Remove(filesBelow(t, w, blobFiles)[0])) }, "is missing: damaged; it was fetched again from"},
	} {
		c.damage()
		wentDown(t, w)
		a = open()
		if got := runPod(t, a, "again", pulled); got != want {
			t.Errorf("%s: the container says %.200q", c.name, got)
		}
		runPod(t, a, "again", ctrdtest.TestImage)
		ctrdtest.Within(t, ctrdtest.Patience, "nothing is in doubt any more", func() bool {
			b, err := os.ReadFile(filepath.Join(w.Dir, "root", shutdownFile))
			return err == nil && !strings.Contains(string(b), "doubt")
		})
		if got := told.text(); (c.told == "") != (got == "") || !strings.Contains(got, c.told) || strings.Contains(got, notice.EventImageDamaged) {
			t.Errorf("%s: told %s", c.name, got)
		}
		a.Stop(t)
	}
	a = open()
	defer a.End(t)
	if got := told.text(); got != "" {
		t.Errorf("after a stop: %s", got)
	}
}

// dropLayers removes the unpacked layers of all images, as if they had never been unpacked.
func dropLayers(t *testing.T, a *ctrdtest.Agent) {
	t.Helper()
	ctx, sn := a.NS(t.Context()), a.Client.SnapshotService(a.Config.Snapshotter)
	ctrdtest.Within(t, 10*time.Second, "no layer is left", func() bool {
		var left []string
		ctrdtest.Check(t, sn.Walk(ctx, func(_ context.Context, i snapshots.Info) error { left = append(left, i.Name); return nil }))
		for _, name := range left {
			_ = sn.Remove(ctx, name) // those with others on top later
		}
		return len(left) == 0
	})
}

// TestBlobsThatAreDamagedWithoutAPowerCutAreRepaired from the source of the image when they are used.
func TestBlobsThatAreDamagedWithoutAPowerCutAreRepaired(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	registry := testimages.Registry(t)
	pulled, other := registry+"/team/layered:1", registry+"/team/other:1"
	base := layered(t)
	testimages.Push(t, pulled, base)
	above, err := testimages.FromFiles(t, []testimages.File{{Path: "third/file", Content: []byte("x")}}, nil).Layers()
	ctrdtest.Check(t, err)
	on, err := mutate.AppendLayers(base, above...)
	ctrdtest.Check(t, err)
	testimages.Push(t, other, on)
	told := &toldEvents{}
	open := func() *ctrdtest.Agent { return w.OpenWith(t, func(c *ctrd.Config) { c.Events = told }) }
	a := open()
	defer func() { a.End(t) }()
	want := runPod(t, a, "first", pulled)
	runPod(t, a, "first", ctrdtest.TestImage)
	all := func(damage func(*testing.T, string)) {
		t.Helper()
		for _, path := range filesBelow(t, w, blobFiles) {
			damage(t, path)
		}
	}
	empty := func(t *testing.T, path string) { t.Helper(); ctrdtest.Check(t, os.Truncate(path, 0)) }
	gone := func(t *testing.T, path string) { t.Helper(); ctrdtest.Check(t, os.Remove(path)) }
	for _, c := range []struct {
		name    string
		damage  func(*testing.T, string)
		restart bool
		image   string
	}{
		{"emptied", empty, false, pulled},
		{"emptied, another image has its layers", empty, false, other},
		{"emptied", empty, true, pulled},
		{"zeros", zero, true, pulled},
		{"gone", gone, true, pulled},
	} {
		told.all = nil
		all(c.damage)
		if c.restart {
			a.Stop(t)
			a = open()
		} else {
			dropLayers(t, a)
		}
		if got := runPod(t, a, "again", c.image); got != want {
			t.Errorf("%s: the container says %.200q", c.name, got)
		}
		runPod(t, a, "again", ctrdtest.TestImage)
		got := told.text()
		for _, from := range []string{notice.EventImageRepaired + " image " + c.image, "it was fetched again from the registry", "it was fetched again from " + filepath.Join(w.Dir, "images", "busybox.tar")} {
			if !strings.Contains(got, from) {
				t.Errorf("%s: nobody is told %q, but:\n%s", c.name, from, got)
			}
		}
		if strings.Contains(got, notice.EventImageDamaged) {
			t.Errorf("%s: told\n%s", c.name, got)
		}
	}
}

func TestAnImageThatCannotBeRepairedHoldsUpItsPodsOnly(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	ok := "example.com/sound:1"
	testimages.ArchiveOf(t, filepath.Join(w.Dir, "images", "sound.tar"), testimages.Busybox(t, nil, testimages.File{Path: "other", Content: []byte("x")}), ok)
	a := w.Open(t)
	runPod(t, a, "one", ctrdtest.TestImage)
	img, err := a.ImageStore.Get(t.Context(), ctrdtest.TestImage)
	ctrdtest.Check(t, err)
	a.Stop(t)
	archive := filepath.Join(w.Dir, "images", "busybox.tar")
	ctrdtest.Check(t, os.Rename(archive, filepath.Join(w.Dir, "busybox.tar")))
	_, hex, _ := strings.Cut(img.ID, ":")
	zero(t, filepath.Join(w.Dir, "root", "containerd", blobFiles, "sha256", hex))
	wentDown(t, w)
	told := &toldEvents{}
	a = w.OpenWith(t, func(c *ctrd.Config) { c.Events = told })
	defer a.End(t)
	runPod(t, a, "two", ok)
	err = ctrdtest.StartPod(t.Context(), a, healPod(t, "three", ctrdtest.TestImage))
	if err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("started with %v", err)
	}
	if got := told.text(); !strings.Contains(got, notice.EventImageDamaged+" image "+ctrdtest.TestImage) {
		t.Errorf("told %s", got)
	}
	ctrdtest.Check(t, os.Rename(filepath.Join(w.Dir, "busybox.tar"), archive))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, healPod(t, "three", ctrdtest.TestImage).Key()))
	runPod(t, a, "four", ctrdtest.TestImage) // once the registry is back
}
