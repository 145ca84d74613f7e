package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// Each case starts from a directory with x.yaml = "pod x v1", changes it, and checks the result.
func TestFileSourceFollowsItsDirectory(t *testing.T) {
	const start = "x=v1@x.yaml"
	tests := []struct {
		name string
		do   func(h watchertest.Hand)
		want string
		// steady: pod x may never be missing on the way.
		steady bool
	}{
		{"a new file is added", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "y.yml"), "pod y v1\n")
		}, "x=v1@x.yaml y=v1@y.yml", true},
		{"json is read too", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "y.json"), "pod y v1\n")
		}, "x=v1@x.yaml y=v1@y.json", true},
		{"several pods of a file keep their order", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "a.yaml"), "pod z v1\npod b v1\n")
		}, "z=v1@a.yaml b=v1@a.yaml x=v1@x.yaml", true},
		{"an edit in place is seen", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "x.yaml"), "pod x v2\n")
		}, "x=v2@x.yaml", true},
		{"an atomic replacement is seen", func(h watchertest.Hand) {
			watchertest.Replace(h.T, filepath.Join(h.At, "x.yaml"), "pod x v2\n")
		}, "x=v2@x.yaml", true},
		{"a removed file takes its pods away", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Remove(filepath.Join(h.At, "x.yaml")))
		}, "", false},
		{"a directory in the place of a file is a bad edit", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Remove(filepath.Join(h.At, "x.yaml")))
			watchertest.Must(h.T, os.Mkdir(filepath.Join(h.At, "x.yaml"), 0o700))
		}, "x=v1@x.yaml", true},
		{"a file moved out takes its pods away", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Rename(filepath.Join(h.At, "x.yaml"), filepath.Join(filepath.Dir(h.At), "x.yaml")))
		}, "", false},
		{"a file moved in is read", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(filepath.Dir(h.At), "y.yaml"), "pod y v1\n")
			watchertest.Must(h.T, os.Rename(filepath.Join(filepath.Dir(h.At), "y.yaml"), filepath.Join(h.At, "y.yaml")))
		}, "x=v1@x.yaml y=v1@y.yaml", true},
		{"a rename inside the directory changes only the origin", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Rename(filepath.Join(h.At, "x.yaml"), filepath.Join(h.At, "w.yaml")))
		}, "x=v1@w.yaml", true},
		{"a rename to a name that is not read removes, after a while", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Rename(filepath.Join(h.At, "x.yaml"), filepath.Join(h.At, "x.yaml.off")))
		}, "", false},
		{"vim's way of saving does not stop the pod", func(h watchertest.Hand) {
			x := filepath.Join(h.At, "x.yaml")
			watchertest.Write(h.T, filepath.Join(h.At, "4913"), "")
			watchertest.Must(h.T, os.Remove(filepath.Join(h.At, "4913")))
			watchertest.Write(h.T, filepath.Join(h.At, ".x.yaml.swp"), "pod swap v1\n")
			watchertest.Must(h.T, os.Rename(x, x+"~"))
			unseen(5 * time.Millisecond)
			watchertest.Write(h.T, x, "pod x v2\n")
			watchertest.Must(h.T, os.Remove(x+"~"))
			watchertest.Must(h.T, os.Remove(filepath.Join(h.At, ".x.yaml.swp")))
		}, "x=v2@x.yaml", true},
		{"remove and write anew, as tar does, does not stop the pod", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Remove(filepath.Join(h.At, "x.yaml")))
			watchertest.Write(h.T, filepath.Join(h.At, "x.yaml"), "pod x v2\n")
		}, "x=v2@x.yaml", true},
		{"a file that is written slowly is not run in pieces", func(h watchertest.Hand) {
			f, err := os.Create(filepath.Join(h.At, "x.yaml"))
			watchertest.Must(h.T, err)
			for _, piece := range []string{"pod x ", "v2\n", "pod y v2\n", "pod z v2\n"} {
				_, err := f.WriteString(piece)
				watchertest.Must(h.T, err)
				unseen(15 * time.Millisecond)
			}
			watchertest.Must(h.T, f.Close())
		}, "x=v2@x.yaml y=v2@x.yaml z=v2@x.yaml", true},
		{"a file that shrinks loses its pod only once it is quiet", func(h watchertest.Hand) {
			x := filepath.Join(h.At, "x.yaml")
			watchertest.Write(h.T, x, "pod other v1\n")
			unseen(50 * time.Millisecond)
			f, err := os.OpenFile(x, os.O_APPEND|os.O_WRONLY, 0)
			watchertest.Must(h.T, err)
			_, err = f.WriteString("pod x v2\n")
			watchertest.Must(h.T, err)
			watchertest.Must(h.T, f.Close())
		}, "other=v1@x.yaml x=v2@x.yaml", true},
		{"a pod taken out of a file goes", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "x.yaml"), "# none\n")
		}, "", false},
		{"editors' droppings do not run", func(h watchertest.Hand) {
			for _, name := range []string{".x.yaml", "x.yaml~", "x.yaml.swp", ".x.yaml.swp", "x.yaml.bak", "4913", "#x.yaml#", ".#x.yaml"} {
				watchertest.Write(h.T, filepath.Join(h.At, name), "pod dropping v1\n")
			}
			watchertest.Write(h.T, filepath.Join(h.At, "z.yaml"), "pod z v1\n")
		}, "x=v1@x.yaml z=v1@z.yaml", true},
		{"sub-directories are not entered", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.MkdirAll(filepath.Join(h.At, "sub.yaml"), 0o755))
			watchertest.Write(h.T, filepath.Join(h.At, "sub.yaml", "y.yaml"), "pod y v1\n")
			watchertest.Write(h.T, filepath.Join(h.At, "z.yaml"), "pod z v1\n")
		}, "x=v1@x.yaml z=v1@z.yaml", true},
		{"a link to a file is followed", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(filepath.Dir(h.At), "target"), "pod y v1\n")
			watchertest.Must(h.T, os.Symlink("../target", filepath.Join(h.At, "y.yaml")))
		}, "x=v1@x.yaml y=v1@y.yaml", true},
		{"a link to /dev/null switches a file off", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Symlink("/dev/null", filepath.Join(h.At, ".n")))
			watchertest.Must(h.T, os.Rename(filepath.Join(h.At, ".n"), filepath.Join(h.At, "x.yaml")))
		}, "", false},
		{"the first of two files with the same pod stays", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "y.yaml"), "pod x v9\npod y v1\n")
		}, "x=v1@x.yaml y=v1@y.yaml", true},
		{"a pod that moves to another file is never missing", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "a.yaml"), "pod x v1\n")
			watchertest.Must(h.T, os.Remove(filepath.Join(h.At, "x.yaml")))
		}, "x=v1@a.yaml", true},
		{"a panic of the loader hurts its file only", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "x.yaml"), "panic\n")
			watchertest.Write(h.T, filepath.Join(h.At, "y.yaml"), "pod y v1\n")
		}, "x=v1@x.yaml y=v1@y.yaml", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "manifests")
			watchertest.Must(t, os.Mkdir(dir, 0o755))
			watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
			g := hasty()
			if tt.steady {
				g = unhurried()
			}
			s := standWith(t, Config{Path: dir}, g)
			s.Pods(start)
			tt.do(watchertest.Hand{T: t, At: dir})
			s.Pods(tt.want)
			if tt.steady {
				s.NeverWithout("x")
			}
		})
	}
}

// unseen lets time pass inside an operation under test (a slow writer), never to wait for the source.
func unseen(d time.Duration) { time.Sleep(d) }

func TestABadEditChangesOnlyTheReport(t *testing.T) {
	tests := []struct {
		name string
		do   func(h watchertest.Hand)
		want model.InputState
		why  string
	}{
		{"broken", func(h watchertest.Hand) { watchertest.Write(h.T, h.At, "pod x\n") }, model.InputRefused, "not a pod"},
		{"half-written", func(h watchertest.Hand) { watchertest.Write(h.T, h.At, "pod x v2\npod y v") }, model.InputRefused, "not a pod"},
		{"truncated to nothing", func(h watchertest.Hand) { watchertest.Must(h.T, os.Truncate(h.At, 0)) }, model.InputRefused, "empty"},
		{"replaced by a broken one", func(h watchertest.Hand) { watchertest.Replace(h.T, h.At, "nonsense") }, model.InputRefused, "not a pod"},
		{"larger than the limit", func(h watchertest.Hand) { watchertest.Must(h.T, os.Truncate(h.At, watcher.MaxInput+1)) }, model.InputRefused, "larger than 10 MiB"},
		{"crashing the loader", func(h watchertest.Hand) { watchertest.Write(h.T, h.At, "panic\n") }, model.InputRefused, "crashes the reader"},
		{"a link that leads nowhere", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Symlink("nowhere", h.At+".new"))
			watchertest.Must(h.T, os.Rename(h.At+".new", h.At))
		}, model.InputUnreachable, "link in its path is broken"},
		{"a link that leads to itself", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Symlink(filepath.Base(h.At), h.At+".new"))
			watchertest.Must(h.T, os.Rename(h.At+".new", h.At))
		}, model.InputUnreachable, "too many levels"},
		{"a link to a file of the kernel", func(h watchertest.Hand) {
			watchertest.Must(h.T, os.Symlink("/proc/self/mem", h.At+".new")) // which looks like a regular file
			watchertest.Must(h.T, os.Rename(h.At+".new", h.At))
		}, model.InputUnreachable, "virtual file of the kernel"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			x := filepath.Join(dir, "x.yaml")
			watchertest.Write(t, x, "pod x v1\n")
			s := standOn(t, dir)
			s.Pods("x=v1@x.yaml")
			tt.do(watchertest.Hand{T: t, At: x})
			set := s.State(x, tt.want)
			r := watchertest.ReportOn(set, x)
			if !strings.Contains(strings.Join(r.Errors, " "), tt.why) {
				t.Errorf("reasons are %q, want one with %q", r.Errors, tt.why)
			}
			if !slices.Equal(r.Pods, []string{"default/x"}) || len(set.Unknown) > 0 || set.Unread {
				t.Errorf("report %+v, unknown %v, unread %v", r, set.Unknown, set.Unread)
			}
			watchertest.Replace(t, x, "pod x v3\n")
			s.Pods("x=v3@x.yaml")
			s.NeverWithout("x")
		})
	}
}

func TestAFileNeverReadInThisRunIsUnknown(t *testing.T) {
	dir := t.TempDir()
	x, y := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "y.yaml")
	watchertest.Write(t, x, "broken since the start")
	watchertest.Write(t, y, "pod y v1\n")
	s := standOn(t, dir)
	set := s.Pods("y=v1@y.yaml")
	d := watcher.Merge([]string{"file"}, map[string]watcher.Set{"file": set})
	if !slices.Equal(set.Unknown, []string{x}) || d.Removable(manifests.Origin{Source: "file", File: x}) {
		t.Fatalf("unknown is %v, removable %v", set.Unknown, d.Removable(manifests.Origin{Source: "file", File: x}))
	}
	if !d.Removable(manifests.Origin{Source: "file", File: filepath.Join(dir, "gone.yaml")}) {
		t.Error("a pod of a file that is gone must be removable")
	}
	t.Run("and known once it was read, even if it breaks again", func(t *testing.T) {
		watchertest.Write(t, x, "pod x v1\n")
		s.Pods("x=v1@x.yaml y=v1@y.yaml")
		watchertest.Write(t, x, "broken again")
		if set := s.State(x, model.InputRefused); len(set.Unknown) != 0 {
			t.Errorf("unknown is %v", set.Unknown)
		}
	})
	t.Run("and it stays unknown while an editor moves it about", func(t *testing.T) {
		watchertest.Write(t, y, "pod y v1\n")
		z := filepath.Join(dir, "z.yaml")
		watchertest.Write(t, z, "broken")
		s.State(z, model.InputRefused)
		watchertest.Must(t, os.Rename(z, z+"~"))
		unseen(30 * time.Millisecond)
		watchertest.Write(t, z, "still broken")
		s.Until("the new reason", func(set watcher.Set) bool {
			return strings.Contains(strings.Join(watchertest.ReportOn(set, z).Errors, ""), "still")
		})
		seen := false
		for _, set := range s.History() {
			is := slices.Contains(set.Unknown, z)
			if seen && !is {
				t.Fatal("for a moment its pods could have been removed")
			}
			seen = seen || is
		}
	})
}

func TestConflictsWithinASourceAreReportedAndStay(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	watchertest.Write(t, a, "pod p v1\n")
	watchertest.Write(t, b, "pod p v2\npod q v1\n")
	s := standOn(t, dir)
	set := s.Pods("p=v1@a.yaml q=v1@b.yaml")
	if r := watchertest.ReportOn(set, b); r.State != model.InputConflict || !slices.Equal(r.Pods, []string{"default/q"}) || !strings.Contains(r.Errors[0], a) {
		t.Errorf("report on b is %+v", r)
	}
	watchertest.Write(t, b, "pod p v3\npod q v2\n")
	s.Pods("p=v1@a.yaml q=v2@b.yaml")
	watchertest.Must(t, os.Remove(a))
	set = s.Pods("p=v3@b.yaml q=v2@b.yaml")
	if watchertest.StateOf(set, b) != model.InputAccepted {
		t.Errorf("report on b is %+v", watchertest.ReportOn(set, b))
	}
	s.NeverWithout("p")
}

func TestTheSourceStopsWhileItWaits(t *testing.T) {
	s := standOn(t, t.TempDir())
	s.Until("a set", func(watcher.Set) bool { return true })
	s.Stop() // the harness fails if Run returns an error, goleak if it leaves something behind
}

func TestAFileSourceHasTheNameItIsGiven(t *testing.T) {
	dir := t.TempDir()
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	watchertest.Write(t, filepath.Join(dir, "notes"), "")
	s := standWith(t, Config{Name: "applied", Path: dir}, unhurried())
	set := s.Pods("x=v1@x.yaml")
	for _, r := range set.Inputs {
		if set.Source != "applied" || r.Source != "applied" {
			t.Errorf("%s: %+v", set.Source, r)
		}
	}
	if len(set.Inputs) != 3 {
		t.Errorf("%d reports: %+v", len(set.Inputs), set.Inputs)
	}
	watchertest.Must(t, os.Rename(filepath.Join(dir, "x.yaml"), filepath.Join(dir, "y.yaml")))
	if r := watchertest.ReportOn(s.Pods("x=v1@y.yaml"), filepath.Join(dir, "y.yaml")); r.Source != "applied" {
		t.Errorf("after a rename: %+v", r)
	}
}

// Who holds Whole replaces many files as one: none of them is seen alone.
func TestAFileSourceDoesNotLookDuringAChangeOfManyFiles(t *testing.T) {
	dir := t.TempDir()
	var whole sync.Mutex
	version := func(v int) {
		whole.Lock()
		defer whole.Unlock()
		for _, name := range []string{"a", "b", "c"} {
			watchertest.Replace(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("pod %s v%d\n", name, v))
		}
	}
	version(0)
	s := standWith(t, Config{Path: dir, Whole: &whole}, unhurried())
	for v := range 20 {
		version(v)
	}
	s.Pods("a=v19@a.yaml b=v19@b.yaml c=v19@c.yaml")
	for _, set := range s.History() {
		images := map[string]bool{}
		for _, p := range set.Pods {
			images[p.Object.Spec.Containers[0].Image] = true
		}
		if len(images) != 1 || len(set.Pods) != 3 {
			t.Errorf("half a change was seen: %s", watchertest.Content(set.Pods))
		}
	}
}

func TestTheReasonsOfABrokenFileAreBounded(t *testing.T) {
	in := &input{}
	in.refuse(strings.Split(strings.Repeat("wrong\n", 300), "\n"))
	if len(in.reasons) != watcher.MaxReasons+1 {
		t.Errorf("%d reasons of a file", len(in.reasons))
	}
}
