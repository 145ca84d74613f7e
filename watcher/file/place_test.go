package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

func TestADirectoryThatComesLater(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "manifests")
	s := standOn(t, dir)
	set := s.State(dir, model.InputUnreachable)
	if !set.Unread || len(set.Pods) > 0 {
		t.Fatalf("unread %v, pods %q", set.Unread, watchertest.Content(set.Pods))
	}
	for _, d := range []string{"a", "a/b", "a/b/manifests"} {
		watchertest.Must(t, os.Mkdir(filepath.Join(root, d), 0o755))
		unseen(5 * time.Millisecond)
	}
	set = s.State(dir, model.InputAccepted)
	if set.Unread {
		t.Fatal("unread although it is readable")
	}
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	s.Pods("x=v1@x.yaml")
}

func TestADirectoryThatVanishesRemovesNothing(t *testing.T) {
	tests := []struct {
		name        string
		away, comes func(dir string) error
	}{
		{"removed and made anew", os.RemoveAll, func(dir string) error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "x.yaml"), []byte("pod x v1\n"), 0o644)
		}},
		{
			"renamed away and back", func(dir string) error { return os.Rename(dir, dir+".away") },
			func(dir string) error { return os.Rename(dir+".away", dir) },
		},
		{"its parent removed and made anew", func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) }, func(dir string) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "x.yaml"), []byte("pod x v1\n"), 0o644)
		}},
		{"replaced by a file", func(dir string) error {
			if err := os.Rename(dir, dir+".away"); err != nil {
				return err
			}
			return syscall.Mkfifo(dir, 0o644)
		}, func(dir string) error {
			if err := os.Remove(dir); err != nil {
				return err
			}
			return os.Rename(dir+".away", dir)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "parent", "manifests")
			watchertest.Must(t, os.MkdirAll(dir, 0o755))
			watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
			s := standOn(t, dir)
			s.Pods("x=v1@x.yaml")
			watchertest.Must(t, tt.away(dir))
			set := s.State(dir, model.InputUnreachable)
			if set.Unread || watchertest.Content(set.Pods) != "x=v1@x.yaml" {
				t.Fatalf("unread %v, pods %q", set.Unread, watchertest.Content(set.Pods))
			}
			watchertest.Must(t, tt.comes(dir))
			s.State(dir, model.InputAccepted)
			watchertest.Replace(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
			s.Pods("x=v2@x.yaml")
			s.NeverWithout("x")
		})
	}
}

func TestADirectoryOfManyFilesIsRemovedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	watchertest.Must(t, os.Mkdir(dir, 0o755))
	for i := range 300 {
		watchertest.Write(t, filepath.Join(dir, fmt.Sprintf("f%03d.yaml", i)), fmt.Sprintf("pod p%03d v1\n", i))
	}
	s := standOn(t, dir)
	s.Until("300 pods", func(set watcher.Set) bool { return len(set.Pods) == 300 })
	watchertest.Must(t, os.RemoveAll(dir))
	if set := s.State(dir, model.InputUnreachable); len(set.Pods) != 300 {
		t.Fatalf("%d pods are left", len(set.Pods))
	}
}

func TestADirectoryMadeAnewMayBeFilledSlowly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	watchertest.Must(t, os.Mkdir(dir, 0o755))
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	watchertest.Write(t, filepath.Join(dir, "y.yaml"), "pod y v1\n")
	src := New(Config{Path: dir, Load: (&watchertest.LineLoader{Source: "file"}).Load, CheckFrequency: time.Hour})
	src.graces = unhurried()
	t.Cleanup(src.stopListening)
	look := func(want string) watcher.Set {
		t.Helper()
		set, _ := src.scanAll()
		if got := watchertest.Content(set.Pods); got != want || watchertest.StateOf(set, dir) != model.InputAccepted {
			t.Errorf("pods are %q, want %q; %+v", got, want, set.Inputs)
		}
		return set
	}
	look("x=v1@x.yaml y=v1@y.yaml")
	watchertest.Must(t, os.RemoveAll(dir))
	watchertest.Must(t, os.Mkdir(dir, 0o755))
	look("x=v1@x.yaml y=v1@y.yaml")
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
	look("x=v2@x.yaml y=v1@y.yaml")
	y := filepath.Join(dir, "y.yaml")
	if got := src.inputs[y].missing.patience; got != src.graces.replaced {
		t.Errorf("it is waited for %v, as for a file of a directory that stays", got)
	}
	src.replacedAt = src.replacedAt.Add(-2 * time.Hour)
	src.inputs[y].missing.since = src.replacedAt
	if set := look("x=v2@x.yaml"); watchertest.StateOf(set, y) != "" {
		t.Errorf("the report on y outlives it: %+v", set.Inputs)
	}
}

func TestADirectoryBehindALinkIsFollowedWhenTheLinkIsSwapped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i, d := range []string{"one", "two"} {
		watchertest.Must(t, os.Mkdir(filepath.Join(root, d), 0o755))
		watchertest.Write(t, filepath.Join(root, d, "x.yaml"), fmt.Sprintf("pod x v%d\n", i+1))
	}
	link := filepath.Join(root, "current")
	watchertest.Must(t, os.Symlink("one", link))
	s := standOn(t, link)
	s.Pods("x=v1@x.yaml")
	swap(t, "two", link)
	s.Pods("x=v2@x.yaml")
	watchertest.Write(t, filepath.Join(root, "two", "y.yaml"), "pod y v2\n")
	set := s.Pods("x=v2@x.yaml y=v2@y.yaml")
	if got := set.Pods[0].Origin.File; got != filepath.Join(link, "x.yaml") {
		t.Errorf("the origin is %s", got)
	}
	watchertest.Write(t, filepath.Join(root, "one", "z.yaml"), "pod z v1\n")
	swap(t, "one", link)
	s.Until("x of one", func(set watcher.Set) bool {
		return strings.HasPrefix(watchertest.Content(set.Pods), "x=v1@x.yaml z=v1@z.yaml")
	})
	s.NeverWithout("x")
}

// swap points a link elsewhere in one step.
func swap(t *testing.T, target, link string) {
	t.Helper()
	watchertest.Must(t, os.Symlink(target, link+".new"))
	watchertest.Must(t, os.Rename(link+".new", link))
}

// A mounted ConfigMap: x.yaml -> ..data/x.yaml, ..data -> ..<time>, swapped by a rename.
func TestAConfigMapIsFollowedWhenItsDataIsSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	revision := func(n int, files map[string]string) {
		t.Helper()
		d := fmt.Sprintf("..2026_11_20_%d", n)
		watchertest.Must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
		for name, data := range files {
			watchertest.Write(t, filepath.Join(dir, d, name), data)
		}
		swap(t, d, filepath.Join(dir, "..data"))
		for name := range files {
			if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	revision(1, map[string]string{"x.yaml": "pod x v1\n"})
	s := standWith(t, Config{Path: dir}, hasty())
	s.Pods("x=v1@x.yaml")
	revision(2, map[string]string{"x.yaml": "pod x v2\n", "y.yaml": "pod y v2\n"})
	s.Pods("x=v2@x.yaml y=v2@y.yaml")
	watchertest.Must(t, os.RemoveAll(filepath.Join(dir, "..2026_11_20_1")))
	revision(3, map[string]string{"x.yaml": "pod x v3\n"})
	watchertest.Must(t, os.Remove(filepath.Join(dir, "y.yaml")))
	s.Pods("x=v3@x.yaml")
	s.NeverWithout("x")
	watchertest.Write(t, filepath.Join(dir, "..2026_11_20_3", "x.yaml"), "pod x v4\n")
	s.Pods("x=v4@x.yaml")
}

func TestTheTargetOfALinkIsWatchedWhereItIs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, far := filepath.Join(root, "manifests"), filepath.Join(root, "far", "away")
	watchertest.Must(t, os.Mkdir(dir, 0o755))
	watchertest.Must(t, os.MkdirAll(far, 0o755))
	target := filepath.Join(far, "target.txt")
	watchertest.Write(t, target, "pod x v1\n")
	watchertest.Must(t, os.Symlink("far/away/target.txt", filepath.Join(root, "middle")))
	watchertest.Must(t, os.Symlink(filepath.Join(root, "middle"), filepath.Join(dir, "x.yaml")))
	s := standWith(t, Config{Path: dir}, hasty())
	s.Pods("x=v1@x.yaml")
	watchertest.Write(t, target, "pod x v2\n")
	s.Pods("x=v2@x.yaml")
	watchertest.Replace(t, target, "pod x v3\n")
	s.Pods("x=v3@x.yaml")
	watchertest.Write(t, filepath.Join(root, "other"), "pod x v4\n")
	swap(t, "other", filepath.Join(root, "middle"))
	s.Pods("x=v4@x.yaml")
	watchertest.Must(t, os.Remove(filepath.Join(root, "other")))
	set := s.State(filepath.Join(dir, "x.yaml"), model.InputUnreachable)
	if watchertest.Content(set.Pods) != "x=v4@x.yaml" {
		t.Fatalf("pods %q", watchertest.Content(set.Pods))
	}
	watchertest.Write(t, filepath.Join(root, "other"), "pod x v5\n")
	s.Pods("x=v5@x.yaml")
	watchertest.Must(t, os.Remove(filepath.Join(dir, "x.yaml")))
	s.Pods("")
}

func TestASingleFile(t *testing.T) {
	newDir := func(t *testing.T) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "etc")
		watchertest.Must(t, os.Mkdir(dir, 0o755))
		return dir
	}
	t.Run("is read whatever it is called and nothing beside it is", func(t *testing.T) {
		dir := newDir(t)
		path := filepath.Join(dir, "pods.conf")
		watchertest.Write(t, path, "pod x v1\n")
		watchertest.Write(t, filepath.Join(dir, "y.yaml"), "pod y v1\n")
		s := standOn(t, path)
		s.Pods("x=v1@pods.conf")
		watchertest.Write(t, path, "pod x v2\n")
		s.Pods("x=v2@pods.conf")
		watchertest.Replace(t, path, "pod x v3\n")
		set := s.Pods("x=v3@pods.conf")
		if len(set.Inputs) != 1 || set.Inputs[0].Input != path || set.Inputs[0].State != model.InputAccepted {
			t.Errorf("reports %+v", set.Inputs)
		}
	})
	t.Run("that is removed takes its pods away", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.conf")
		watchertest.Write(t, path, "pod x v1\n")
		s := standWith(t, Config{Path: path}, hasty())
		s.Pods("x=v1@pods.conf")
		watchertest.Must(t, os.Remove(path))
		set := s.Pods("")
		if r := watchertest.ReportOn(set, path); r.State != model.InputIgnored || set.Unread {
			t.Errorf("report %+v, unread %v", r, set.Unread)
		}
		watchertest.Write(t, path, "pod x v2\n")
		s.Pods("x=v2@pods.conf")
	})
	t.Run("whose directory vanishes keeps its pods", func(t *testing.T) {
		dir := newDir(t)
		path := filepath.Join(dir, "pods.yaml")
		watchertest.Write(t, path, "pod x v1\n")
		s := standOn(t, path)
		s.Pods("x=v1@pods.yaml")
		watchertest.Must(t, os.Rename(dir, dir+".away"))
		set := s.State(path, model.InputUnreachable)
		if watchertest.Content(set.Pods) != "x=v1@pods.yaml" || !slices.Equal(set.Inputs[0].Pods, []string{"default/x"}) || len(set.Inputs) != 1 {
			t.Errorf("pods %q, reports %+v", watchertest.Content(set.Pods), set.Inputs)
		}
		watchertest.Must(t, os.Rename(dir+".away", dir))
		s.State(path, model.InputAccepted)
		s.NeverWithout("x")
	})
	t.Run("that is a link leading nowhere keeps its pods", func(t *testing.T) {
		dir := newDir(t)
		path := filepath.Join(dir, "pods.yaml")
		watchertest.Write(t, filepath.Join(dir, "real"), "pod x v1\n")
		watchertest.Must(t, os.Symlink("real", path))
		s := standOn(t, path)
		s.Pods("x=v1@pods.yaml")
		watchertest.Must(t, os.Remove(filepath.Join(dir, "real")))
		s.State(path, model.InputUnreachable)
		watchertest.Write(t, filepath.Join(dir, "real"), "pod x v2\n")
		s.Pods("x=v2@pods.yaml")
		s.NeverWithout("x")
	})
	t.Run("that was removed while we were away is known to be gone", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.yaml")
		s := standOn(t, path)
		set := s.Until("a set", func(watcher.Set) bool { return true })
		if set.Unread || len(set.Pods) > 0 || watchertest.StateOf(set, path) != model.InputIgnored {
			t.Errorf("unread %v, reports %+v", set.Unread, set.Inputs)
		}
		watchertest.Write(t, path, "pod x v1\n")
		s.Pods("x=v1@pods.yaml")
	})
	t.Run("broken since the start is unknown", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.yaml")
		watchertest.Write(t, path, "broken")
		set := standOn(t, path).State(path, model.InputRefused)
		if !slices.Equal(set.Unknown, []string{path}) {
			t.Errorf("unknown %v", set.Unknown)
		}
	})
	t.Run("that is a fifo blocks nothing", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.yaml")
		watchertest.Must(t, syscall.Mkfifo(path, 0o644))
		set := standOn(t, path).State(path, model.InputUnreachable)
		if !set.Unread {
			t.Error("a fifo was taken for known content")
		}
	})
}

func TestWithoutInotifyThePeriodicReadSeesEverything(t *testing.T) {
	dir := t.TempDir()
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	src := New(Config{Path: dir, Load: (&watchertest.LineLoader{Source: "file"}).Load})
	src.deaf = unix.EMFILE
	set := src.assembleAfter(t)
	if r := watchertest.ReportOn(set, dir); r.State != model.InputAccepted || !strings.Contains(strings.Join(r.Errors, ""), "max_user_instances") {
		t.Fatalf("report %+v", r)
	}
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
	if set = src.assembleAfter(t); watchertest.Content(set.Pods) != "x=v2@x.yaml" {
		t.Fatalf("pods %q", watchertest.Content(set.Pods))
	}
}

// assembleAfter looks once without any notifier, as after a failed inotify_init.
func (s *Source) assembleAfter(t *testing.T) watcher.Set {
	t.Helper()
	l := survey(s.cfg.Path, s.single, interests{}, newCalls())
	watchertest.Must(t, l.err)
	s.reachable(time.Now(), l)
	for _, c := range l.files {
		s.visit(c, false)
	}
	return s.assemble(time.Now())
}
