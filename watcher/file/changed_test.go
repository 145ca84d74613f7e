package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// manyFiles is a source that has read n files of one pod each and whose times have settled.
func manyFiles(t *testing.T, n int) (*Source, *watchertest.LineLoader) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		watchertest.Write(t, filepath.Join(dir, fmt.Sprintf("f%03d.yaml", i)), fmt.Sprintf("pod p%03d v1\n", i))
	}
	loader := &watchertest.LineLoader{Source: "file"}
	src := New(Config{Path: dir, Load: loader.Load, CheckFrequency: time.Hour})
	t.Cleanup(src.stopListening)
	if set, _ := src.scanAll(); len(set.Pods) != n {
		t.Fatalf("%d pods", len(set.Pods))
	}
	for path, in := range src.inputs { // as a tick later
		in.stable = true
		delete(src.rechecks, path)
	}
	return src, loader
}

// told waits until the source has received events for that many paths.
func told(t *testing.T, s *Source, paths int) {
	t.Helper()
	deadline := time.Now().Add(watchertest.Patience)
	for {
		s.notify.mu.Lock()
		n := len(s.notify.dirty)
		s.notify.mu.Unlock()
		if n >= paths {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("told of %d paths, want %d", n, paths)
		}
		unseen(time.Millisecond)
	}
}

func TestAnEditOfOneOfManyFilesLooksAtNoOther(t *testing.T) {
	src, loader := manyFiles(t, 100)
	listed, parsed := src.listedAt, loader.Calls.Load()
	path := filepath.Join(src.cfg.Path, "f007.yaml")
	watchertest.Replace(t, path, "pod p007 v2\n")
	told(t, src, 1)
	h := pending{dirty: map[string]bool{path: true}}
	if files, ok := src.changedFiles(time.Now(), h); !ok || len(files) != 1 || files[0].path != path {
		t.Fatalf("looks at %v, %t", files, ok)
	}
	set, _ := src.scanChanged()
	if !src.listedAt.Equal(listed) || loader.Calls.Load() != parsed+1 {
		t.Errorf("the directory was listed again: %t; %d files were parsed", !src.listedAt.Equal(listed), loader.Calls.Load()-parsed)
	}
	if len(set.Pods) != 100 || set.Pods[7].Object.Spec.Containers[0].Image != "v2" {
		t.Errorf("pods are %s", watchertest.Content(set.Pods))
	}
	// A new file is seen the same way, and has its place in the order.
	watchertest.Write(t, filepath.Join(src.cfg.Path, "f007b.yaml"), "pod new v1\npod p008 v1\n")
	told(t, src, 1)
	set, _ = src.scanChanged()
	if !src.listedAt.Equal(listed) || len(set.Pods) != 101 || set.Pods[8].Object.Name != "new" || set.Pods[9].Origin.File != filepath.Join(src.cfg.Path, "f007b.yaml") {
		t.Errorf("listed %t, pods are %s", !src.listedAt.Equal(listed), watchertest.Content(set.Pods))
	}
	if r := watchertest.ReportOn(set, filepath.Join(src.cfg.Path, "f008.yaml")); r.State != model.InputConflict {
		t.Errorf("the pod of two files is %+v", r)
	}
}

func TestOfFilesThatChangeAsOneNoneIsLookedAtAlone(t *testing.T) {
	src, _ := manyFiles(t, 3)
	src.cfg.Whole = &sync.Mutex{}
	for _, name := range []string{"f000.yaml", "f001.yaml"} {
		watchertest.Replace(t, filepath.Join(src.cfg.Path, name), "pod p"+name[1:4]+" v2\n")
	}
	first := pending{dirty: map[string]bool{filepath.Join(src.cfg.Path, "f000.yaml"): true}} // the event of the other one is on its way
	if files, ok := src.changedFiles(time.Now(), first); ok {
		t.Errorf("looks at %v", files)
	}
}

func TestWhatAGlanceCannotJudgeMakesTheDirectoryBeListed(t *testing.T) {
	for what, do := range map[string]func(dir string) error{
		"a file goes": func(dir string) error { return os.Remove(filepath.Join(dir, "f001.yaml")) },
		"a file gets a name": func(dir string) error {
			return os.Rename(filepath.Join(dir, "f001.yaml"), filepath.Join(dir, "g.yaml"))
		},
		"a link comes":          func(dir string) error { return os.Symlink("f001.yaml", filepath.Join(dir, "link.yaml")) },
		"a directory comes":     func(dir string) error { return os.Mkdir(filepath.Join(dir, "d.yaml"), 0o755) },
		"a foreign file comes":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "README"), nil, 0o644) },
		"the directory changes": func(dir string) error { return os.Chmod(dir, 0o711) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			src, _ := manyFiles(t, 3)
			listed := src.listedAt
			watchertest.Must(t, do(src.cfg.Path))
			told(t, src, 1)
			if src.scanChanged(); src.listedAt.Equal(listed) {
				t.Error("it was not listed")
			}
		})
	}
	src, _ := manyFiles(t, 3)
	for what, prepare := range map[string]func(){
		"events were lost":     func() { src.notify.wake(func() { src.notify.lost = true }) },
		"there was no event":   func() {},
		"it was long ago":      func() { src.listedAt = time.Now().Add(-2 * time.Hour) },
		"another place":        func() { src.location.id.ino++ },
		"there are no watches": src.stopListening,
	} {
		src.scanAll()
		watchertest.Replace(t, filepath.Join(src.cfg.Path, "f001.yaml"), "pod p001 "+what[:5]+"\n")
		told(t, src, 1)
		if what == "there was no event" {
			src.notify.take()
		}
		prepare()
		listed := src.listedAt
		if src.scanChanged(); src.listedAt.Equal(listed) {
			t.Errorf("%s: it was not listed", what)
		}
	}
}

func TestAFileThatIsNotSettledIsReadAgainAlsoWhenAnotherChanges(t *testing.T) {
	src, loader := manyFiles(t, 3)
	one, other := filepath.Join(src.cfg.Path, "f000.yaml"), filepath.Join(src.cfg.Path, "f001.yaml")
	in := src.inputs[one]
	in.stable, src.rechecks[one] = false, in // it was read in the tick of its change
	in.sum[0]++                              // and changed again within that
	watchertest.Replace(t, other, "pod p001 v2\n")
	told(t, src, 1)
	parsed := loader.Calls.Load()
	src.scanChanged()
	if n := loader.Calls.Load() - parsed; n != 2 {
		t.Errorf("%d files were parsed", n)
	}
}

// Reports on many inputs that all have a conflict are created in one go.
func TestAllOfASourceMayBeDefinedByAnother(t *testing.T) {
	const n = 200
	var first, second watcher.Set
	for i := range n {
		name, file := fmt.Sprintf("p%03d", i), fmt.Sprintf("/b/%03d", i/2)
		first.Pods = append(first.Pods, watchertest.NewPod(name, "v1", manifests.Origin{Source: "a", File: "/a"}))
		second.Pods = append(second.Pods, watchertest.NewPod(name, "v1", manifests.Origin{Source: "b", File: file, Line: i % 2}))
		if i%2 == 0 {
			second.Inputs = append(second.Inputs, model.Input{Source: "b", Input: file, State: model.InputAccepted, Pods: []string{"default/" + name, fmt.Sprintf("default/p%03d", i+1)}})
		}
	}
	before := slices.Clone(second.Inputs)
	d := watcher.Merge([]string{"a", "b"}, map[string]watcher.Set{"a": first, "b": second})
	if len(d.Pods) != n || len(d.Inputs) != n/2 {
		t.Fatalf("%d pods, %d reports", len(d.Pods), len(d.Inputs))
	}
	for i, r := range d.Inputs {
		if r.State != model.InputConflict || len(r.Errors) != 2 || len(r.Pods) != 0 {
			t.Fatalf("report %d is %+v", i, r)
		}
	}
	if !slices.EqualFunc(before, second.Inputs, watcher.SameReport) {
		t.Error("the reports of the set were changed")
	}
}
