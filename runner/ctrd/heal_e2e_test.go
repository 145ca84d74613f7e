//go:build e2e

package ctrd

import (
	"context"
	"encoding/json"
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

	"monopod/e2e/testimages"
	"monopod/manifests"
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

// wentDown simulates a power cut for the next start.
func (w *world) wentDown(t *testing.T) {
	t.Helper()
	b, err := json.Marshal(shutdown{Boot: "another"})
	check(t, err)
	check(t, os.WriteFile(filepath.Join(w.dir, "root", shutdownFile), b, 0o600))
}

// files returns the regular files below a directory of the containerd root, the largest first.
func (w *world) files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	largest := int64(-1)
	err := filepath.WalkDir(filepath.Join(w.dir, "root", "containerd", dir), func(path string, d fs.DirEntry, err error) error {
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
	check(t, err)
	return paths
}

const (
	blobFiles     = "io.containerd.content.v1.content/blobs"
	snapshotFiles = "io.containerd.snapshotter.v1.overlayfs/snapshots"
)

func zero(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	check(t, err)
	check(t, os.Chmod(path, 0o644))
	check(t, os.WriteFile(path, make([]byte, st.Size()), 0o644))
}

func healPod(t *testing.T, name, image string) *manifests.Pod {
	t.Helper()
	return load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: %s, imagePullPolicy: IfNotPresent, command: [sh, -c, "cat /second/file 2>/dev/null; ls /first 2>/dev/null; echo ran"]}]
`, name, image))
}

// runs starts a pod, and returns what it printed.
func (a *agent) runs(t *testing.T, name, image string) string {
	t.Helper()
	pod := healPod(t, name, image)
	check(t, startPod(t.Context(), a, pod))
	a.exit(t, pod.Key())
	var out string
	within(t, 10*time.Second, "it has printed all", func() bool { out = a.logOf(t, pod.Key()); return strings.HasSuffix(out, "ran\n") })
	check(t, removePod(t.Context(), a, pod.Key()))
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
	check(t, err)
	img, err := mutate.AppendLayers(base, layers...)
	check(t, err)
	return img
}

func TestDamageOfAPowerCutIsRepaired(t *testing.T) {
	w := newWorld(t)
	registry := testimages.Registry(t)
	pulled := registry + "/team/layered:1"
	testimages.Push(t, pulled, layered(t))
	var told *toldEvents
	open := func() *agent {
		told = &toldEvents{}
		return w.openWith(t, func(c *Config) { c.Events = told })
	}
	a := open()
	want := a.runs(t, "first", pulled)
	if !strings.Contains(want, "second\n") || !strings.Contains(want, "kept\n") || strings.Contains(want, "gone") {
		t.Fatalf("the image does not work: %.200q", want)
	}
	a.runs(t, "first", testImage)
	a.stop(t)
	of := func(dir, part string) string {
		t.Helper()
		for _, path := range w.files(t, dir) {
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
		{"a program cut short", func() { check(t, os.Truncate(of(snapshotFiles, "busybox"), 0)) }, "has 0 bytes"},
		{"zeros in a file of the upper layer", func() { zero(t, of(snapshotFiles, "second/file")) }, "second/file: differs after 0 bytes"},
		{"a mark of a removed file", func() {
			var mark string
			check(t, filepath.WalkDir(filepath.Join(w.dir, "root", "containerd", snapshotFiles), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type()&fs.ModeCharDevice != 0 {
					mark = path
				}
				return err
			}))
			check(t, os.Remove(mark))
		}, "/first/gone: is not marked as removed"},
		{"all files of all layers", func() {
			for _, path := range w.files(t, snapshotFiles) {
				check(t, os.Truncate(path, 0))
			}
		}, "files of layer"},
		{"all blobs, and a program", func() {
			for _, path := range w.files(t, blobFiles) {
				zero(t, path)
			}
			check(t, os.Truncate(of(snapshotFiles, "busybox"), 1000))
		}, "it was fetched again from the registry"},
		{"a blob that is missing", func() { check(t, os.Remove(w.files(t, blobFiles)[0])) }, "is missing: damaged; it was fetched again from"},
	} {
		c.damage()
		w.wentDown(t)
		a = open()
		if got := a.runs(t, "again", pulled); got != want {
			t.Errorf("%s: the container says %.200q", c.name, got)
		}
		a.runs(t, "again", testImage)
		within(t, patience, "nothing is in doubt any more", func() bool {
			b, err := os.ReadFile(filepath.Join(w.dir, "root", shutdownFile))
			return err == nil && !strings.Contains(string(b), "doubt")
		})
		if got := told.text(); (c.told == "") != (got == "") || !strings.Contains(got, c.told) || strings.Contains(got, notice.EventImageDamaged) {
			t.Errorf("%s: told %s", c.name, got)
		}
		a.stop(t)
	}
	a = open()
	defer a.end(t)
	if got := told.text(); got != "" {
		t.Errorf("after a stop: %s", got)
	}
}

// dropLayers removes the unpacked layers of all images, as if they had never been unpacked.
func (a *agent) dropLayers(t *testing.T) {
	t.Helper()
	ctx, sn := a.ns(t.Context()), a.client.SnapshotService(a.cfg.Snapshotter)
	within(t, 10*time.Second, "no layer is left", func() bool {
		var left []string
		check(t, sn.Walk(ctx, func(_ context.Context, i snapshots.Info) error { left = append(left, i.Name); return nil }))
		for _, name := range left {
			_ = sn.Remove(ctx, name) // those with others on top later
		}
		return len(left) == 0
	})
}

// TestBlobsThatAreDamagedWithoutAPowerCutAreRepaired from the source of the image when they are used.
func TestBlobsThatAreDamagedWithoutAPowerCutAreRepaired(t *testing.T) {
	w := newWorld(t)
	registry := testimages.Registry(t)
	pulled, other := registry+"/team/layered:1", registry+"/team/other:1"
	base := layered(t)
	testimages.Push(t, pulled, base)
	above, err := testimages.FromFiles(t, []testimages.File{{Path: "third/file", Content: []byte("x")}}, nil).Layers()
	check(t, err)
	on, err := mutate.AppendLayers(base, above...)
	check(t, err)
	testimages.Push(t, other, on)
	told := &toldEvents{}
	open := func() *agent { return w.openWith(t, func(c *Config) { c.Events = told }) }
	a := open()
	defer func() { a.end(t) }()
	want := a.runs(t, "first", pulled)
	a.runs(t, "first", testImage)
	all := func(damage func(*testing.T, string)) {
		t.Helper()
		for _, path := range w.files(t, blobFiles) {
			damage(t, path)
		}
	}
	empty := func(t *testing.T, path string) { t.Helper(); check(t, os.Truncate(path, 0)) }
	gone := func(t *testing.T, path string) { t.Helper(); check(t, os.Remove(path)) }
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
			a.stop(t)
			a = open()
		} else {
			a.dropLayers(t)
		}
		if got := a.runs(t, "again", c.image); got != want {
			t.Errorf("%s: the container says %.200q", c.name, got)
		}
		a.runs(t, "again", testImage)
		got := told.text()
		for _, from := range []string{notice.EventImageRepaired + " image " + c.image, "it was fetched again from the registry", "it was fetched again from " + filepath.Join(w.dir, "images", "busybox.tar")} {
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
	w := newWorld(t)
	ok := "example.com/sound:1"
	testimages.ArchiveOf(t, filepath.Join(w.dir, "images", "sound.tar"), testimages.Busybox(t, nil, testimages.File{Path: "other", Content: []byte("x")}), ok)
	a := w.open(t)
	a.runs(t, "one", testImage)
	img, err := a.images.Get(t.Context(), testImage)
	check(t, err)
	a.stop(t)
	archive := filepath.Join(w.dir, "images", "busybox.tar")
	check(t, os.Rename(archive, filepath.Join(w.dir, "busybox.tar")))
	_, hex, _ := strings.Cut(img.ID, ":")
	zero(t, filepath.Join(w.dir, "root", "containerd", blobFiles, "sha256", hex))
	w.wentDown(t)
	told := &toldEvents{}
	a = w.openWith(t, func(c *Config) { c.Events = told })
	defer a.end(t)
	a.runs(t, "two", ok)
	err = startPod(t.Context(), a, healPod(t, "three", testImage))
	if err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("started with %v", err)
	}
	if got := told.text(); !strings.Contains(got, notice.EventImageDamaged+" image "+testImage) {
		t.Errorf("told %s", got)
	}
	check(t, os.Rename(filepath.Join(w.dir, "busybox.tar"), archive))
	check(t, removePod(t.Context(), a, healPod(t, "three", testImage).Key()))
	a.runs(t, "four", testImage) // once the registry is back
}
