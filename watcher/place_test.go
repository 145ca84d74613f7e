package watcher

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
)

func TestADirectoryThatComesLater(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "manifests")
	s := standOn(t, dir)
	set := s.state(dir, Unreachable)
	if !set.Unread || len(set.Pods) > 0 {
		t.Fatalf("unread %v, pods %q", set.Unread, content(set.Pods))
	}
	for _, d := range []string{"a", "a/b", "a/b/manifests"} {
		must(t, os.Mkdir(filepath.Join(root, d), 0o755))
		unseen(5 * time.Millisecond)
	}
	set = s.state(dir, Accepted)
	if set.Unread {
		t.Fatal("unread although it is readable")
	}
	write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	s.pods("x=v1@x.yaml")
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
			must(t, os.MkdirAll(dir, 0o755))
			write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
			s := standOn(t, dir)
			s.pods("x=v1@x.yaml")
			must(t, tt.away(dir))
			set := s.state(dir, Unreachable)
			if set.Unread || content(set.Pods) != "x=v1@x.yaml" {
				t.Fatalf("unread %v, pods %q", set.Unread, content(set.Pods))
			}
			must(t, tt.comes(dir))
			s.state(dir, Accepted)
			replace(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
			s.pods("x=v2@x.yaml")
			s.neverWithout("x")
		})
	}
}

func TestADirectoryOfManyFilesIsRemovedAsAWhole(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o755))
	for i := range 300 {
		write(t, filepath.Join(dir, fmt.Sprintf("f%03d.yaml", i)), fmt.Sprintf("pod p%03d v1\n", i))
	}
	s := standOn(t, dir)
	s.until("300 pods", func(set Set) bool { return len(set.Pods) == 300 })
	must(t, os.RemoveAll(dir))
	if set := s.state(dir, Unreachable); len(set.Pods) != 300 {
		t.Fatalf("%d pods are left", len(set.Pods))
	}
}

func TestADirectoryMadeAnewMayBeFilledSlowly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o755))
	write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	write(t, filepath.Join(dir, "y.yaml"), "pod y v1\n")
	src := NewFileSource(FileConfig{Path: dir, Load: (&lineLoader{source: "file"}).load, CheckFrequency: time.Hour})
	src.graces = unhurried()
	t.Cleanup(src.stopListening)
	look := func(want string) Set {
		t.Helper()
		set, _ := src.pass()
		if got := content(set.Pods); got != want || stateOf(set, dir) != Accepted {
			t.Errorf("pods are %q, want %q; %+v", got, want, set.Reports)
		}
		return set
	}
	look("x=v1@x.yaml y=v1@y.yaml")
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o755))
	look("x=v1@x.yaml y=v1@y.yaml")
	write(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
	look("x=v2@x.yaml y=v1@y.yaml")
	y := filepath.Join(dir, "y.yaml")
	if got := src.inputs[y].missing.patience; got != src.graces.replaced {
		t.Errorf("it is waited for %v, as for a file of a directory that stays", got)
	}
	src.replacedAt = src.replacedAt.Add(-2 * time.Hour)
	src.inputs[y].missing.since = src.replacedAt
	if set := look("x=v2@x.yaml"); stateOf(set, y) != "" {
		t.Errorf("the report on y outlives it: %+v", set.Reports)
	}
}

func TestADirectoryBehindALinkIsFollowedWhenTheLinkIsSwapped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i, d := range []string{"one", "two"} {
		must(t, os.Mkdir(filepath.Join(root, d), 0o755))
		write(t, filepath.Join(root, d, "x.yaml"), fmt.Sprintf("pod x v%d\n", i+1))
	}
	link := filepath.Join(root, "current")
	must(t, os.Symlink("one", link))
	s := standOn(t, link)
	s.pods("x=v1@x.yaml")
	swap(t, "two", link)
	s.pods("x=v2@x.yaml")
	write(t, filepath.Join(root, "two", "y.yaml"), "pod y v2\n")
	set := s.pods("x=v2@x.yaml y=v2@y.yaml")
	if got := set.Pods[0].Origin.File; got != filepath.Join(link, "x.yaml") {
		t.Errorf("the origin is %s", got)
	}
	write(t, filepath.Join(root, "one", "z.yaml"), "pod z v1\n")
	swap(t, "one", link)
	s.until("x of one", func(set Set) bool { return strings.HasPrefix(content(set.Pods), "x=v1@x.yaml z=v1@z.yaml") })
	s.neverWithout("x")
}

// swap points a link elsewhere in one step.
func swap(t *testing.T, target, link string) {
	t.Helper()
	must(t, os.Symlink(target, link+".new"))
	must(t, os.Rename(link+".new", link))
}

// A mounted ConfigMap: x.yaml -> ..data/x.yaml, ..data -> ..<time>, swapped by a rename.
func TestAConfigMapIsFollowedWhenItsDataIsSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	revision := func(n int, files map[string]string) {
		t.Helper()
		d := fmt.Sprintf("..2026_11_20_%d", n)
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
		for name, data := range files {
			write(t, filepath.Join(dir, d, name), data)
		}
		swap(t, d, filepath.Join(dir, "..data"))
		for name := range files {
			if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	revision(1, map[string]string{"x.yaml": "pod x v1\n"})
	s := standWith(t, FileConfig{Path: dir}, hasty())
	s.pods("x=v1@x.yaml")
	revision(2, map[string]string{"x.yaml": "pod x v2\n", "y.yaml": "pod y v2\n"})
	s.pods("x=v2@x.yaml y=v2@y.yaml")
	must(t, os.RemoveAll(filepath.Join(dir, "..2026_11_20_1")))
	revision(3, map[string]string{"x.yaml": "pod x v3\n"})
	must(t, os.Remove(filepath.Join(dir, "y.yaml")))
	s.pods("x=v3@x.yaml")
	s.neverWithout("x")
	write(t, filepath.Join(dir, "..2026_11_20_3", "x.yaml"), "pod x v4\n")
	s.pods("x=v4@x.yaml")
}

func TestTheTargetOfALinkIsWatchedWhereItIs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, far := filepath.Join(root, "manifests"), filepath.Join(root, "far", "away")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.MkdirAll(far, 0o755))
	target := filepath.Join(far, "target.txt")
	write(t, target, "pod x v1\n")
	must(t, os.Symlink("far/away/target.txt", filepath.Join(root, "middle")))
	must(t, os.Symlink(filepath.Join(root, "middle"), filepath.Join(dir, "x.yaml")))
	s := standWith(t, FileConfig{Path: dir}, hasty())
	s.pods("x=v1@x.yaml")
	write(t, target, "pod x v2\n")
	s.pods("x=v2@x.yaml")
	replace(t, target, "pod x v3\n")
	s.pods("x=v3@x.yaml")
	write(t, filepath.Join(root, "other"), "pod x v4\n")
	swap(t, "other", filepath.Join(root, "middle"))
	s.pods("x=v4@x.yaml")
	must(t, os.Remove(filepath.Join(root, "other")))
	set := s.state(filepath.Join(dir, "x.yaml"), Unreachable)
	if content(set.Pods) != "x=v4@x.yaml" {
		t.Fatalf("pods %q", content(set.Pods))
	}
	write(t, filepath.Join(root, "other"), "pod x v5\n")
	s.pods("x=v5@x.yaml")
	must(t, os.Remove(filepath.Join(dir, "x.yaml")))
	s.pods("")
}

func TestASingleFile(t *testing.T) {
	newDir := func(t *testing.T) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "etc")
		must(t, os.Mkdir(dir, 0o755))
		return dir
	}
	t.Run("is read whatever it is called and nothing beside it is", func(t *testing.T) {
		dir := newDir(t)
		path := filepath.Join(dir, "pods.conf")
		write(t, path, "pod x v1\n")
		write(t, filepath.Join(dir, "y.yaml"), "pod y v1\n")
		s := standOn(t, path)
		s.pods("x=v1@pods.conf")
		write(t, path, "pod x v2\n")
		s.pods("x=v2@pods.conf")
		replace(t, path, "pod x v3\n")
		set := s.pods("x=v3@pods.conf")
		if len(set.Reports) != 1 || set.Reports[0].Input != path || set.Reports[0].State != Accepted {
			t.Errorf("reports %+v", set.Reports)
		}
	})
	t.Run("that is removed takes its pods away", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.conf")
		write(t, path, "pod x v1\n")
		s := standWith(t, FileConfig{Path: path}, hasty())
		s.pods("x=v1@pods.conf")
		must(t, os.Remove(path))
		set := s.pods("")
		if r := reportOn(set, path); r.State != Ignored || set.Unread {
			t.Errorf("report %+v, unread %v", r, set.Unread)
		}
		write(t, path, "pod x v2\n")
		s.pods("x=v2@pods.conf")
	})
	t.Run("whose directory vanishes keeps its pods", func(t *testing.T) {
		dir := newDir(t)
		path := filepath.Join(dir, "pods.yaml")
		write(t, path, "pod x v1\n")
		s := standOn(t, path)
		s.pods("x=v1@pods.yaml")
		must(t, os.Rename(dir, dir+".away"))
		set := s.state(path, Unreachable)
		if content(set.Pods) != "x=v1@pods.yaml" || !slices.Equal(set.Reports[0].Pods, []string{"default/x"}) || len(set.Reports) != 1 {
			t.Errorf("pods %q, reports %+v", content(set.Pods), set.Reports)
		}
		must(t, os.Rename(dir+".away", dir))
		s.state(path, Accepted)
		s.neverWithout("x")
	})
	t.Run("that is a link leading nowhere keeps its pods", func(t *testing.T) {
		dir := newDir(t)
		path := filepath.Join(dir, "pods.yaml")
		write(t, filepath.Join(dir, "real"), "pod x v1\n")
		must(t, os.Symlink("real", path))
		s := standOn(t, path)
		s.pods("x=v1@pods.yaml")
		must(t, os.Remove(filepath.Join(dir, "real")))
		s.state(path, Unreachable)
		write(t, filepath.Join(dir, "real"), "pod x v2\n")
		s.pods("x=v2@pods.yaml")
		s.neverWithout("x")
	})
	t.Run("that was removed while we were away is known to be gone", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.yaml")
		s := standOn(t, path)
		set := s.until("a set", func(Set) bool { return true })
		if set.Unread || len(set.Pods) > 0 || stateOf(set, path) != Ignored {
			t.Errorf("unread %v, reports %+v", set.Unread, set.Reports)
		}
		write(t, path, "pod x v1\n")
		s.pods("x=v1@pods.yaml")
	})
	t.Run("broken since the start is unknown", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.yaml")
		write(t, path, "broken")
		set := standOn(t, path).state(path, Refused)
		if !slices.Equal(set.Unknown, []string{path}) {
			t.Errorf("unknown %v", set.Unknown)
		}
	})
	t.Run("that is a fifo blocks nothing", func(t *testing.T) {
		path := filepath.Join(newDir(t), "pods.yaml")
		must(t, syscall.Mkfifo(path, 0o644))
		set := standOn(t, path).state(path, Unreachable)
		if !set.Unread {
			t.Error("a fifo was taken for known content")
		}
	})
}

func TestWithoutInotifyThePeriodicReadSeesEverything(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	src := NewFileSource(FileConfig{Path: dir, Load: (&lineLoader{source: "file"}).load})
	src.deaf = unix.EMFILE
	set := src.assembleAfter(t)
	if r := reportOn(set, dir); r.State != Accepted || !strings.Contains(strings.Join(r.Errors, ""), "max_user_instances") {
		t.Fatalf("report %+v", r)
	}
	write(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
	if set = src.assembleAfter(t); content(set.Pods) != "x=v2@x.yaml" {
		t.Fatalf("pods %q", content(set.Pods))
	}
}

// assembleAfter looks once without any notifier, as after a failed inotify_init.
func (s *FileSource) assembleAfter(t *testing.T) Set {
	t.Helper()
	l := survey(s.cfg.Path, s.single, interests{}, newCalls())
	must(t, l.err)
	s.reachable(time.Now(), l)
	for _, c := range l.files {
		s.visit(c, false)
	}
	return s.assemble(time.Now())
}
