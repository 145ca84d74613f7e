package applied

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/atomicfile"
	"monopod/internal/atomicfile/damagetest"
	"monopod/manifests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string) manifests.ObjectID {
	return manifests.ObjectID{Kind: "Pod", Namespace: "default", Name: name}
}

// stored is what a reader of the directory sees: names and content of the files that are no dot files.
func stored(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(data)
	}
	return all
}

func hidden(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".[a-z]*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func change(t *testing.T, s *Store, c Change) {
	t.Helper()
	if err := s.Change(c); err != nil {
		t.Fatal(err)
	}
}

func put(content string, names ...string) map[manifests.ObjectID][]byte {
	all := map[manifests.ObjectID][]byte{}
	for _, n := range names {
		all[pod(n)] = []byte(content + " " + n)
	}
	return all
}

func TestStoreKeepsOneFileForEachObject(t *testing.T) {
	s := NewStore(filepath.Join(t.TempDir(), "root", "applied"))
	change(t, s, Change{Put: put("v1", "a", "b")})
	change(t, s, Change{Put: put("v2", "b"), Remove: []manifests.ObjectID{pod("a"), pod("never")}})
	want := map[string]string{"pod.default.b.yaml": "v2 b"}
	if got := stored(t, s.Dir()); !maps.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	if left := hidden(t, s.Dir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if data, err := s.Get(pod("b")); err != nil || string(data) != "v2 b" {
		t.Errorf("%q %v", data, err)
	}
	if data, err := s.Get(pod("a")); err != nil || data != nil {
		t.Errorf("%q %v", data, err)
	}
	for path, want := range map[string]fs.FileMode{s.Dir(): 0o700, s.Path(pod("b")): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v: it may hold Secrets", path, info, err, want)
		}
	}
}

// TestADocumentThatIsDamagedIsReplacedAndRemoved: both once failed.
func TestADocumentThatIsDamagedIsReplacedAndRemoved(t *testing.T) {
	for name, damage := range damagetest.Ways() {
		for _, more := range []string{"", "other"} { // by a journal, or without one
			s := NewStore(t.TempDir())
			change(t, s, Change{Put: put("v1", "a", "b")})
			for _, n := range []string{"a", "b"} {
				if err := damage(s.Path(pod(n))); err != nil {
					t.Fatal(err)
				}
				_ = os.Remove(damagetest.Stray(s.Path(pod(n))))
				if data, err := s.Get(pod(n)); err != nil || data == nil {
					t.Errorf("%s: %q %v", name, data, err)
				}
			}
			if more != "" {
				change(t, s, Change{Put: put("v2", "a", more), Remove: []manifests.ObjectID{pod("b")}})
			} else {
				change(t, s, Change{Put: put("v2", "a")})
				change(t, s, Change{Remove: []manifests.ObjectID{pod("b")}})
			}
			if data, err := s.Get(pod("a")); err != nil || string(data) != "v2 a" {
				t.Errorf("%s: %q %v", name, data, err)
			}
			if data, err := s.Get(pod("b")); err != nil || data != nil {
				t.Errorf("%s: %q %v", name, data, err)
			}
		}
	}
}

func TestFileNames(t *testing.T) {
	long := strings.Repeat("n", 253)
	tests := map[string]manifests.ObjectID{
		"pod.default.web.yaml":        pod("web"),
		"storageclass._.fast.v1.yaml": {Kind: "StorageClass", Name: "fast.v1"},
		"configmap.a.b.c.yaml":        {Kind: "ConfigMap", Namespace: "a", Name: "b.c"},
	}
	for want, id := range tests {
		if got := FileName(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	a := FileName(manifests.ObjectID{Kind: "PersistentVolumeClaim", Namespace: "x", Name: long})
	b := FileName(manifests.ObjectID{Kind: "PersistentVolumeClaim", Namespace: "x", Name: long[:252] + "m"})
	if len(a) > 255 || a == b || !strings.HasSuffix(a, ".yaml") {
		t.Errorf("%q (%d)\n%q", a, len(a), b)
	}
}

// crashed is what a test throws to end a change.
type crashed struct{ step string }

// crashAt runs a change that ends at the nth step, and returns the step; empty when it was done before.
func crashAt(t *testing.T, s *Store, n int, c Change) (step string) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			at, ok := p.(crashed)
			if !ok {
				panic(p)
			}
			step = at.step
		}
	}()
	s.crash = func(step string) {
		if n--; n < 0 {
			panic(crashed{step})
		}
	}
	change(t, s, c)
	return ""
}

func TestAChangeThatIsCutOffHappensAsAWholeOrNotAtAll(t *testing.T) {
	old := map[string]string{"pod.default.a.yaml": "v1 a", "pod.default.b.yaml": "v1 b", "pod.default.c.yaml": "v1 c"}
	now := map[string]string{"pod.default.a.yaml": "v2 a", "pod.default.b.yaml": "v2 b", "pod.default.new.yaml": "v2 new"}
	whole := Change{Put: put("v2", "a", "b", "new"), Remove: []manifests.ObjectID{pod("c")}}
	var steps []string
	for n := 0; ; n++ {
		s := NewStore(filepath.Join(t.TempDir(), "applied"))
		change(t, s, Change{Put: put("v1", "a", "b", "c")})
		step := crashAt(t, s, n, whole)
		if step == "" {
			break
		}
		steps = append(steps, step)
		next := NewStore(s.Dir())
		if err := next.Open(); err != nil {
			t.Fatalf("cut off at %s: %v", step, err)
		}
		got := stored(t, s.Dir())
		decided := slices.Contains(steps, "decided")
		if want := map[bool]map[string]string{false: old, true: now}[decided]; !maps.Equal(got, want) {
			t.Errorf("cut off at step %d (%s): %v, want %v", n, step, got, want)
		}
		if left := hidden(t, s.Dir()); len(left) > 0 {
			t.Errorf("cut off at %s: left behind: %v", step, left)
		}
		change(t, next, Change{Put: put("v3", "a")})
		if got := stored(t, s.Dir())["pod.default.a.yaml"]; got != "v3 a" {
			t.Errorf("cut off at %s: the next change gave %q", step, got)
		}
	}
	if want := "stage stage stage journal decide decided rename rename rename remove settle forget forgotten"; strings.Join(steps, " ") != want {
		t.Errorf("steps %v, want %s", steps, want)
	}
}

func TestAChangeOfOneObjectThatIsCutOff(t *testing.T) {
	for n := 0; ; n++ {
		s := NewStore(filepath.Join(t.TempDir(), "applied"))
		change(t, s, Change{Put: put("v1", "a")})
		step := crashAt(t, s, n, Change{Put: put("v2", "a")})
		if step == "" {
			if n < 3 {
				t.Fatalf("only %d steps", n)
			}
			break
		}
		if err := NewStore(s.Dir()).Open(); err != nil {
			t.Fatal(err)
		}
		want := "v1 a"
		if step == "settle" {
			want = "v2 a"
		}
		if got := stored(t, s.Dir())["pod.default.a.yaml"]; got != want || len(hidden(t, s.Dir())) > 0 {
			t.Errorf("cut off at %s: %q, want %q; %v", step, got, want, hidden(t, s.Dir()))
		}
	}
}

// What is a directory cannot be renamed over: the change is decided, and is finished once the way is free.
func TestAChangeThatCannotBeFinishedIsFinishedLater(t *testing.T) {
	s := NewStore(t.TempDir())
	change(t, s, Change{Put: put("v1", "a")})
	s.disk.Replace = func(from, to string) error {
		if to == s.Path(pod("b")) {
			return errors.New("the disk is bad")
		}
		return atomicfile.Replace(from, to)
	}
	err := s.Change(Change{Put: put("v2", "a", "b")})
	if _, ok := errors.AsType[*UnfinishedError](err); !ok {
		t.Fatalf("%v", err)
	}
	if err := s.Change(Change{Put: put("v3", "c")}); err == nil {
		t.Error("another change was made before the first was finished")
	}
	s.disk.Replace = atomicfile.Replace
	change(t, s, Change{Put: put("v3", "c")})
	want := map[string]string{"pod.default.a.yaml": "v2 a", "pod.default.b.yaml": "v2 b", "pod.default.c.yaml": "v3 c"}
	if got := stored(t, s.Dir()); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAChangeThatCannotBeStoredChangesNothing(t *testing.T) {
	s := NewStore(t.TempDir())
	change(t, s, Change{Put: put("v1", "a", "b")})
	// No write may make a file larger than this, as on a full disk. The log of file accesses, which go test writes, is smaller.
	old := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := s.Change(Change{Put: map[manifests.ObjectID][]byte{pod("a"): []byte("v2 a"), pod("b"): make([]byte, 2<<20)}})
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, syscall.EFBIG) || !strings.Contains(fmt.Sprint(err), "nothing was changed") {
		t.Fatalf("%v", err)
	}
	want := map[string]string{"pod.default.a.yaml": "v1 a", "pod.default.b.yaml": "v1 b"}
	if got := stored(t, s.Dir()); !maps.Equal(got, want) || len(hidden(t, s.Dir())) > 0 {
		t.Errorf("%v, want %v; %v", got, want, hidden(t, s.Dir()))
	}
	change(t, s, Change{Put: put("v2", "a")})
}

// If the journal may be on disk and cannot be removed, the change must not be reported as one that did not happen.
func TestAChangeWhoseJournalFailsIsTakenBackOrUnfinished(t *testing.T) {
	for name, tt := range map[string]struct {
		// leaves is what the failed write leaves in the place of the journal.
		leaves     func(path string, data []byte) error
		unfinished bool
	}{
		"nothing was written":     {func(string, []byte) error { return nil }, false},
		"it may be on the disk":   {func(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }, false},
		"it cannot be taken back": {func(path string, _ []byte) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStore(t.TempDir())
			change(t, s, Change{Put: put("v1", "a", "b")})
			s.disk.Write = func(path string, data []byte, _ fs.FileMode) error {
				return errors.Join(tt.leaves(path, data), syscall.EIO)
			}
			err := s.Change(Change{Put: put("v2", "a", "b")})
			_, unfinished := errors.AsType[*UnfinishedError](err)
			if !errors.Is(err, syscall.EIO) || unfinished != tt.unfinished || strings.Contains(err.Error(), "nothing was changed") == tt.unfinished {
				t.Errorf("%v", err)
			}
			if got := stored(t, s.Dir())["pod.default.a.yaml"]; got != "v1 a" {
				t.Errorf("stored: %s", got)
			}
			if left := hidden(t, s.Dir()); !tt.unfinished && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestADamagedJournalIsSetAside: it is reported once, what remains of its change is kept, and changes go on.
func TestADamagedJournalIsSetAside(t *testing.T) {
	text := func(s string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(s), 0o600) }
	}
	ways := damagetest.Ways()
	ways["no JSON"], ways["another version"] = text("{"), text(`{"other": 1}`)
	ways["names outside"], ways["names above"] = text(`{"remove": ["../kept"]}`), text(`{"rename": {".new-0": ".."}}`)
	for way, damage := range ways {
		t.Run(way, func(t *testing.T) {
			s := NewStore(filepath.Join(t.TempDir(), "applied"))
			kept := filepath.Join(filepath.Dir(s.Dir()), "kept")
			change(t, s, Change{Put: put("v1", "a", "b")})
			path := filepath.Join(s.Dir(), journal)
			if err := errors.Join(os.WriteFile(kept, nil, 0o600), os.MkdirAll(filepath.Join(s.Dir(), damaged), 0o700),
				os.WriteFile(filepath.Join(s.Dir(), damaged, "earlier"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if step := crashAt(t, s, 4, Change{Put: put("v2", "a", "b")}); step != "decided" {
				t.Fatalf("cut off at %s", step)
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(damagetest.Stray(path))
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // nothing says that there was a change
				t.Fatal("there is no journal")
			}
			next := NewStore(s.Dir())
			lost, ok := errors.AsType[*DamagedError](next.Open())
			if !ok || !strings.Contains(lost.Error(), "re-apply it") {
				t.Fatalf("%v", lost)
			}
			if err := next.Open(); err != nil {
				t.Errorf("again: %v", err)
			}
			if got, _ := filepath.Glob(filepath.Join(lost.Aside, "*")); len(got) != 3 || filepath.Base(got[0]) != "change" || filepath.Base(got[2]) != "new-1" {
				t.Errorf("set aside: %v", got)
			}
			change(t, next, Change{Put: put("v3", "a")})
			want := map[string]string{"pod.default.a.yaml": "v3 a", "pod.default.b.yaml": "v1 b"}
			if got := stored(t, s.Dir()); !maps.Equal(got, want) {
				t.Errorf("stored %v, want %v", got, want)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("found by a change", func(t *testing.T) {
		s := NewStore(t.TempDir())
		if err := text("{")(filepath.Join(s.Dir(), journal)); err != nil {
			t.Fatal(err)
		}
		change(t, s, Change{Put: put("v1", "a")})
		if _, ok := errors.AsType[*DamagedError](s.Open()); !ok {
			t.Error("it is not reported")
		}
	})
}

func TestNobodyWhoHoldsWholeSeesHalfAChange(t *testing.T) {
	s := NewStore(t.TempDir())
	change(t, s, Change{Put: put("v0", "a", "b")})
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 1; i <= 10 && err == nil; i++ {
			err = s.Change(Change{Put: put(fmt.Sprint("v", i), "a", "b")})
		}
		done <- err
	}()
	for {
		s.Whole().Lock()
		got := stored(t, s.Dir())
		s.Whole().Unlock()
		a, _, _ := strings.Cut(got["pod.default.a.yaml"], " ")
		b, _, _ := strings.Cut(got["pod.default.b.yaml"], " ")
		if a != b || a == "" {
			t.Fatalf("half a change: %v", got)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}
