package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod/manifests"
)

// Each case starts from a directory with x.yaml = "pod x v1", does something, and says what must come of it.
func TestFileSourceFollowsItsDirectory(t *testing.T) {
	const start = "x=v1@x.yaml"
	tests := []struct {
		name string
		do   func(h hand)
		want string
		// steady: pod x may never be missing on the way.
		steady bool
	}{
		{"a new file is added", func(h hand) {
			write(h.t, filepath.Join(h.at, "y.yml"), "pod y v1\n")
		}, "x=v1@x.yaml y=v1@y.yml", true},
		{"json is read too", func(h hand) {
			write(h.t, filepath.Join(h.at, "y.json"), "pod y v1\n")
		}, "x=v1@x.yaml y=v1@y.json", true},
		{"several pods of a file keep their order", func(h hand) {
			write(h.t, filepath.Join(h.at, "a.yaml"), "pod z v1\npod b v1\n")
		}, "z=v1@a.yaml b=v1@a.yaml x=v1@x.yaml", true},
		{"an edit in place is seen", func(h hand) {
			write(h.t, filepath.Join(h.at, "x.yaml"), "pod x v2\n")
		}, "x=v2@x.yaml", true},
		{"an atomic replacement is seen", func(h hand) {
			replace(h.t, filepath.Join(h.at, "x.yaml"), "pod x v2\n")
		}, "x=v2@x.yaml", true},
		{"a removed file takes its pods away", func(h hand) {
			must(h.t, os.Remove(filepath.Join(h.at, "x.yaml")))
		}, "", false},
		{"a directory in the place of a file is a bad edit", func(h hand) {
			must(h.t, os.Remove(filepath.Join(h.at, "x.yaml")))
			must(h.t, os.Mkdir(filepath.Join(h.at, "x.yaml"), 0o700))
		}, "x=v1@x.yaml", true},
		{"a file moved out takes its pods away", func(h hand) {
			must(h.t, os.Rename(filepath.Join(h.at, "x.yaml"), filepath.Join(filepath.Dir(h.at), "x.yaml")))
		}, "", false},
		{"a file moved in is read", func(h hand) {
			write(h.t, filepath.Join(filepath.Dir(h.at), "y.yaml"), "pod y v1\n")
			must(h.t, os.Rename(filepath.Join(filepath.Dir(h.at), "y.yaml"), filepath.Join(h.at, "y.yaml")))
		}, "x=v1@x.yaml y=v1@y.yaml", true},
		{"a rename inside the directory changes only the origin", func(h hand) {
			must(h.t, os.Rename(filepath.Join(h.at, "x.yaml"), filepath.Join(h.at, "w.yaml")))
		}, "x=v1@w.yaml", true},
		{"a rename to a name that is not read removes, after a while", func(h hand) {
			must(h.t, os.Rename(filepath.Join(h.at, "x.yaml"), filepath.Join(h.at, "x.yaml.off")))
		}, "", false},
		{"vim's way of saving does not stop the pod", func(h hand) {
			x := filepath.Join(h.at, "x.yaml")
			write(h.t, filepath.Join(h.at, "4913"), "")
			must(h.t, os.Remove(filepath.Join(h.at, "4913")))
			write(h.t, filepath.Join(h.at, ".x.yaml.swp"), "pod swap v1\n")
			must(h.t, os.Rename(x, x+"~"))
			unseen(5 * time.Millisecond)
			write(h.t, x, "pod x v2\n")
			must(h.t, os.Remove(x+"~"))
			must(h.t, os.Remove(filepath.Join(h.at, ".x.yaml.swp")))
		}, "x=v2@x.yaml", true},
		{"remove and write anew, as tar does, does not stop the pod", func(h hand) {
			must(h.t, os.Remove(filepath.Join(h.at, "x.yaml")))
			write(h.t, filepath.Join(h.at, "x.yaml"), "pod x v2\n")
		}, "x=v2@x.yaml", true},
		{"a file that is written slowly is not run in pieces", func(h hand) {
			f, err := os.Create(filepath.Join(h.at, "x.yaml"))
			must(h.t, err)
			for _, piece := range []string{"pod x ", "v2\n", "pod y v2\n", "pod z v2\n"} {
				_, err := f.WriteString(piece)
				must(h.t, err)
				unseen(15 * time.Millisecond)
			}
			must(h.t, f.Close())
		}, "x=v2@x.yaml y=v2@x.yaml z=v2@x.yaml", true},
		{"a file that shrinks loses its pod only once it is quiet", func(h hand) {
			x := filepath.Join(h.at, "x.yaml")
			write(h.t, x, "pod other v1\n")
			unseen(50 * time.Millisecond)
			f, err := os.OpenFile(x, os.O_APPEND|os.O_WRONLY, 0)
			must(h.t, err)
			_, err = f.WriteString("pod x v2\n")
			must(h.t, err)
			must(h.t, f.Close())
		}, "other=v1@x.yaml x=v2@x.yaml", true},
		{"a pod taken out of a file goes", func(h hand) {
			write(h.t, filepath.Join(h.at, "x.yaml"), "# none\n")
		}, "", false},
		{"editors' droppings do not run", func(h hand) {
			for _, name := range []string{".x.yaml", "x.yaml~", "x.yaml.swp", ".x.yaml.swp", "x.yaml.bak", "4913", "#x.yaml#", ".#x.yaml"} {
				write(h.t, filepath.Join(h.at, name), "pod dropping v1\n")
			}
			write(h.t, filepath.Join(h.at, "z.yaml"), "pod z v1\n")
		}, "x=v1@x.yaml z=v1@z.yaml", true},
		{"sub-directories are not entered", func(h hand) {
			must(h.t, os.MkdirAll(filepath.Join(h.at, "sub.yaml"), 0o755))
			write(h.t, filepath.Join(h.at, "sub.yaml", "y.yaml"), "pod y v1\n")
			write(h.t, filepath.Join(h.at, "z.yaml"), "pod z v1\n")
		}, "x=v1@x.yaml z=v1@z.yaml", true},
		{"a link to a file is followed", func(h hand) {
			write(h.t, filepath.Join(filepath.Dir(h.at), "target"), "pod y v1\n")
			must(h.t, os.Symlink("../target", filepath.Join(h.at, "y.yaml")))
		}, "x=v1@x.yaml y=v1@y.yaml", true},
		{"a link to /dev/null switches a file off", func(h hand) {
			must(h.t, os.Symlink("/dev/null", filepath.Join(h.at, ".n")))
			must(h.t, os.Rename(filepath.Join(h.at, ".n"), filepath.Join(h.at, "x.yaml")))
		}, "", false},
		{"the first of two files with the same pod stays", func(h hand) {
			write(h.t, filepath.Join(h.at, "y.yaml"), "pod x v9\npod y v1\n")
		}, "x=v1@x.yaml y=v1@y.yaml", true},
		{"a pod that moves to another file is never missing", func(h hand) {
			write(h.t, filepath.Join(h.at, "a.yaml"), "pod x v1\n")
			must(h.t, os.Remove(filepath.Join(h.at, "x.yaml")))
		}, "x=v1@a.yaml", true},
		{"a panic of the loader hurts its file only", func(h hand) {
			write(h.t, filepath.Join(h.at, "x.yaml"), "panic\n")
			write(h.t, filepath.Join(h.at, "y.yaml"), "pod y v1\n")
		}, "x=v1@x.yaml y=v1@y.yaml", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "manifests")
			must(t, os.Mkdir(dir, 0o755))
			write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
			g := hasty()
			if tt.steady {
				g = unhurried()
			}
			s := standWith(t, FileConfig{Path: dir}, g)
			s.pods(start)
			tt.do(hand{t, dir})
			s.pods(tt.want)
			if tt.steady {
				s.neverWithout("x")
			}
		})
	}
}

// unseen lets time pass inside an operation under test (a slow writer), never to wait for the source.
func unseen(d time.Duration) { time.Sleep(d) }

func TestABadEditChangesOnlyTheReport(t *testing.T) {
	tests := []struct {
		name string
		do   func(h hand)
		want ReportState
		why  string
	}{
		{"broken", func(h hand) { write(h.t, h.at, "pod x\n") }, Refused, "not a pod"},
		{"half-written", func(h hand) { write(h.t, h.at, "pod x v2\npod y v") }, Refused, "not a pod"},
		{"truncated to nothing", func(h hand) { must(h.t, os.Truncate(h.at, 0)) }, Refused, "empty"},
		{"replaced by a broken one", func(h hand) { replace(h.t, h.at, "nonsense") }, Refused, "not a pod"},
		{"larger than the limit", func(h hand) { must(h.t, os.Truncate(h.at, MaxInput+1)) }, Refused, "larger than 10 MiB"},
		{"crashing the loader", func(h hand) { write(h.t, h.at, "panic\n") }, Refused, "crashes the reader"},
		{"a link that leads nowhere", func(h hand) {
			must(h.t, os.Symlink("nowhere", h.at+".new"))
			must(h.t, os.Rename(h.at+".new", h.at))
		}, Unreachable, "leads nowhere"},
		{"a link that leads to itself", func(h hand) {
			must(h.t, os.Symlink(filepath.Base(h.at), h.at+".new"))
			must(h.t, os.Rename(h.at+".new", h.at))
		}, Unreachable, "too many levels"},
		{"a link to a file of the kernel", func(h hand) {
			must(h.t, os.Symlink("/proc/self/mem", h.at+".new")) // which looks like a regular file
			must(h.t, os.Rename(h.at+".new", h.at))
		}, Unreachable, "the kernel makes up"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			x := filepath.Join(dir, "x.yaml")
			write(t, x, "pod x v1\n")
			s := standOn(t, dir)
			s.pods("x=v1@x.yaml")
			tt.do(hand{t, x})
			set := s.state(x, tt.want)
			r := reportOn(set, x)
			if !strings.Contains(strings.Join(r.Errors, " "), tt.why) {
				t.Errorf("reasons are %q, want one with %q", r.Errors, tt.why)
			}
			if !slices.Equal(r.Pods, []string{"default/x"}) || len(set.Unknown) > 0 || set.Unread {
				t.Errorf("report %+v, unknown %v, unread %v", r, set.Unknown, set.Unread)
			}
			replace(t, x, "pod x v3\n")
			s.pods("x=v3@x.yaml")
			s.neverWithout("x")
		})
	}
}

func TestAFileNeverReadInThisRunIsUnknown(t *testing.T) {
	dir := t.TempDir()
	x, y := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "y.yaml")
	write(t, x, "broken since the start")
	write(t, y, "pod y v1\n")
	s := standOn(t, dir)
	set := s.pods("y=v1@y.yaml")
	d := Merge([]string{"file"}, map[string]Set{"file": set})
	if !slices.Equal(set.Unknown, []string{x}) || d.Removable(manifests.Origin{Source: "file", File: x}) {
		t.Fatalf("unknown is %v, removable %v", set.Unknown, d.Removable(manifests.Origin{Source: "file", File: x}))
	}
	if !d.Removable(manifests.Origin{Source: "file", File: filepath.Join(dir, "gone.yaml")}) {
		t.Error("a pod of a file that is gone must be removable")
	}
	t.Run("and known once it was read, even if it breaks again", func(t *testing.T) {
		write(t, x, "pod x v1\n")
		s.pods("x=v1@x.yaml y=v1@y.yaml")
		write(t, x, "broken again")
		if set := s.state(x, Refused); len(set.Unknown) != 0 {
			t.Errorf("unknown is %v", set.Unknown)
		}
	})
	t.Run("and it stays unknown while an editor moves it about", func(t *testing.T) {
		write(t, y, "pod y v1\n")
		z := filepath.Join(dir, "z.yaml")
		write(t, z, "broken")
		s.state(z, Refused)
		must(t, os.Rename(z, z+"~"))
		unseen(30 * time.Millisecond)
		write(t, z, "still broken")
		s.until("the new reason", func(set Set) bool {
			return strings.Contains(strings.Join(reportOn(set, z).Errors, ""), "still")
		})
		seen := false
		for _, set := range s.history() {
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
	write(t, a, "pod p v1\n")
	write(t, b, "pod p v2\npod q v1\n")
	s := standOn(t, dir)
	set := s.pods("p=v1@a.yaml q=v1@b.yaml")
	if r := reportOn(set, b); r.State != Conflict || !slices.Equal(r.Pods, []string{"default/q"}) || !strings.Contains(r.Errors[0], a) {
		t.Errorf("report on b is %+v", r)
	}
	write(t, b, "pod p v3\npod q v2\n")
	s.pods("p=v1@a.yaml q=v2@b.yaml")
	must(t, os.Remove(a))
	set = s.pods("p=v3@b.yaml q=v2@b.yaml")
	if stateOf(set, b) != Accepted {
		t.Errorf("report on b is %+v", reportOn(set, b))
	}
	s.neverWithout("p")
}

func TestTheSourceStopsWhileItWaits(t *testing.T) {
	s := standOn(t, t.TempDir())
	s.until("a set", func(Set) bool { return true })
	s.stop() // the harness fails if Run returns an error, goleak if it leaves something behind
}

func TestAFileSourceHasTheNameItIsGiven(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	write(t, filepath.Join(dir, "notes"), "")
	s := standWith(t, FileConfig{Name: "applied", Path: dir}, unhurried())
	set := s.pods("x=v1@x.yaml")
	for _, r := range set.Reports {
		if set.Source != "applied" || r.Source != "applied" {
			t.Errorf("%s: %+v", set.Source, r)
		}
	}
	if len(set.Reports) != 3 {
		t.Errorf("%d reports: %+v", len(set.Reports), set.Reports)
	}
	must(t, os.Rename(filepath.Join(dir, "x.yaml"), filepath.Join(dir, "y.yaml")))
	if r := reportOn(s.pods("x=v1@y.yaml"), filepath.Join(dir, "y.yaml")); r.Source != "applied" {
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
			replace(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("pod %s v%d\n", name, v))
		}
	}
	version(0)
	s := standWith(t, FileConfig{Path: dir, Whole: &whole}, unhurried())
	for v := range 20 {
		version(v)
	}
	s.pods("a=v19@a.yaml b=v19@b.yaml c=v19@c.yaml")
	for _, set := range s.history() {
		images := map[string]bool{}
		for _, p := range set.Pods {
			images[p.Object.Spec.Containers[0].Image] = true
		}
		if len(images) != 1 || len(set.Pods) != 3 {
			t.Errorf("half a change was seen: %s", content(set.Pods))
		}
	}
}
