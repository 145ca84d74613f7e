package file

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
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

func TestSpecialFilesAreNeverOpened(t *testing.T) {
	dir := t.TempDir()
	fifo, sock, dev := filepath.Join(dir, "f.yaml"), filepath.Join(dir, "s.yaml"), filepath.Join(dir, "d.yaml")
	watchertest.Must(t, syscall.Mkfifo(fifo, 0o644))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	watchertest.Must(t, err)
	defer func() { watchertest.Must(t, unix.Close(fd)) }()
	watchertest.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: sock}))
	watchertest.Must(t, os.Symlink("/dev/zero", dev))
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	s := standOn(t, dir)
	set := s.Pods("x=v1@x.yaml")
	for path, what := range map[string]string{fifo: "a fifo", sock: "a socket", dev: "a device"} {
		if r := watchertest.ReportOn(set, path); r.State != model.InputIgnored || !strings.Contains(r.Errors[0], what) {
			t.Errorf("report on %s is %+v", path, r)
		}
	}
	if len(set.Unknown) > 0 {
		t.Errorf("unknown is %v", set.Unknown)
	}
	// Had the source opened the fifo, even without blocking, a writer would find a reader now and then.
	if _, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.ENXIO) {
		t.Errorf("opening the fifo for writing: %v, want ENXIO", err)
	}
}

// TestReadingIsNotWrittenToDisk: neither a file nor the directory gets a new time of access, which the kernel would write to disk.
func TestReadingIsNotWrittenToDisk(t *testing.T) {
	dir := t.TempDir()
	file, long := filepath.Join(dir, "x.yaml"), time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	watchertest.Write(t, file, "pod x v1\n")
	watchertest.Write(t, filepath.Join(dir, "README"), "no manifest\n")
	for _, path := range []string{file, dir} {
		watchertest.Must(t, os.Chtimes(path, long, time.Now())) // read before it was changed last: each access would be noted
	}
	s := standOn(t, dir)
	s.Pods("x=v1@x.yaml")
	for _, path := range []string{file, dir} {
		info, err := os.Stat(path)
		watchertest.Must(t, err)
		if at := info.Sys().(*syscall.Stat_t).Atim; at.Sec != long.Unix() {
			t.Errorf("%s was noted as read at %s", path, time.Unix(at.Sec, at.Nsec))
		}
	}
}

func TestForeignFilesAreReportedOnceAndDroppingsNot(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"README", "x.yaml.bak", "y.YAML", ".hidden", "x.yaml~", "4913"} {
		watchertest.Write(t, filepath.Join(dir, name), "pod no v1\n")
	}
	watchertest.Must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	s := standOn(t, dir)
	set := s.Until("a first set", func(set watcher.Set) bool { return !set.Unread })
	var ignored []string
	for _, r := range set.Inputs {
		if r.State == model.InputIgnored {
			ignored = append(ignored, filepath.Base(r.Input))
		}
	}
	if want := []string{"README", "sub", "x.yaml.bak", "y.YAML"}; !slices.Equal(ignored, want) {
		t.Errorf("ignored are %v, want %v", ignored, want)
	}
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	after := s.Pods("x=v1@x.yaml")
	if was, is := watchertest.ReportOn(set, filepath.Join(dir, "README")), watchertest.ReportOn(after, filepath.Join(dir, "README")); !watcher.SameReport(was, is) {
		t.Errorf("the report changed from %+v to %+v", was, is)
	}
}

func TestASameSizeSameMtimeRewriteIsSeenWithoutAnEvent(t *testing.T) {
	dir := t.TempDir()
	x := filepath.Join(dir, "x.yaml")
	stamp := time.Now().Add(-time.Hour)
	watchertest.Write(t, x, "pod x v1\n")
	watchertest.Must(t, os.Chtimes(x, stamp, stamp))
	loader := &watchertest.LineLoader{Source: "file"}
	src := New(Config{Path: dir, Load: loader.Load})
	src.scanAll()
	defer src.stopListening()
	for i, image := range []string{"v2", "v3", "v4"} {
		watchertest.Write(t, x, "pod x "+image+"\n")
		watchertest.Must(t, os.Chtimes(x, stamp, stamp))
		src.stopListening() // and with it what it heard
		set, _ := src.scanAll()
		if got, want := watchertest.Content(set.Pods), "x="+image+"@x.yaml"; got != want {
			t.Fatalf("round %d: %s, want %s", i, got, want)
		}
	}
}

func TestAnIdleLookReadsNothing(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		watchertest.Write(t, filepath.Join(dir, name+".yaml"), "pod "+name+" v1\n")
	}
	loader := &watchertest.LineLoader{Source: "file"}
	src := New(Config{Path: dir, Load: loader.Load})
	defer src.stopListening()
	first, _ := src.scanAll()
	calls := loader.Calls.Load()
	unseen(2 * tick)
	for range 3 {
		set, r := src.scanAll()
		if !watcher.SameSet(first, set) {
			t.Fatalf("the set changed: %+v", set)
		}
		if r.latest != 20*time.Second {
			t.Fatalf("next look in %v", r.latest)
		}
	}
	if got := loader.Calls.Load(); got != calls {
		t.Errorf("%d more files were parsed", got-calls)
	}
	for path, in := range src.inputs {
		if !in.stable {
			t.Errorf("%s would be read again", path)
		}
	}
}

func TestAnUnreadableFileKeepsItsContent(t *testing.T) {
	dir := t.TempDir()
	watchertest.Must(t, os.Chmod(filepath.Dir(dir), 0o755))
	x, y := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "y.yaml")
	watchertest.Write(t, x, "pod x v1\n")
	src := New(Config{Path: dir, Load: (&watchertest.LineLoader{Source: "file"}).Load})
	src.calls = nil // files are read by this thread, which is somebody else for a while
	defer src.stopListening()
	src.scanAll()
	watchertest.Write(t, y, "pod y v1\n")
	watchertest.Must(t, os.Chmod(x, 0))
	watchertest.Must(t, os.Chmod(y, 0))
	var set watcher.Set
	asNobody(t, func() { set, _ = src.scanAll() })
	if r := watchertest.ReportOn(set, x); r.State != model.InputUnreachable || watchertest.Content(set.Pods) != "x=v1@x.yaml" || !slices.Equal(set.Unknown, []string{y}) {
		t.Fatalf("report %+v, pods %q, unknown %v", r, watchertest.Content(set.Pods), set.Unknown)
	}
	watchertest.Must(t, os.Chmod(x, 0o644))
	watchertest.Must(t, os.Chmod(y, 0o644))
	if set, _ = src.scanAll(); watchertest.Content(set.Pods) != "x=v1@x.yaml y=v1@y.yaml" || watchertest.StateOf(set, x) != model.InputAccepted {
		t.Fatalf("pods %q, report %+v", watchertest.Content(set.Pods), watchertest.ReportOn(set, x))
	}
}

func TestAnUnreadableDirectoryRemovesNothing(t *testing.T) {
	parent := t.TempDir()
	watchertest.Must(t, os.Chmod(filepath.Dir(parent), 0o755))
	dir := filepath.Join(parent, "manifests")
	watchertest.Must(t, os.Mkdir(dir, 0o755))
	watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
	src := New(Config{Path: dir, Load: (&watchertest.LineLoader{Source: "file"}).Load})
	defer src.stopListening()
	src.scanAll()
	watchertest.Must(t, os.Chmod(dir, 0))
	defer func() { watchertest.Must(t, os.Chmod(dir, 0o755)) }()
	var set watcher.Set
	asNobody(t, func() { set, _ = src.scanAll() })
	if r := watchertest.ReportOn(set, dir); r.State != model.InputUnreachable || !strings.HasPrefix(r.Errors[0], "open "+dir) || watchertest.Content(set.Pods) != "x=v1@x.yaml" || set.Unread {
		t.Fatalf("report %+v, pods %q", r, watchertest.Content(set.Pods))
	}
}

// asNobody runs f without the rights of root over files.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	watchertest.Must(t, unix.Setfsuid(65534))
	defer func() { watchertest.Must(t, unix.Setfsuid(0)) }()
	f()
}

func TestLostEventsMakeEverythingBeReadAgain(t *testing.T) {
	dir := t.TempDir()
	x := filepath.Join(dir, "x.yaml")
	watchertest.Write(t, x, "pod x v1\n")
	src := New(Config{Path: dir, Load: (&watchertest.LineLoader{Source: "file"}).Load})
	defer src.stopListening()
	src.scanAll()
	watchertest.Write(t, x, "pod x v2\n")
	src.stopListening()
	info, err := os.Stat(x)
	watchertest.Must(t, err)
	src.inputs[x].id, src.inputs[x].stable = identify(info), true // as if two writes fell into one tick of the file system's clock
	if set, _ := src.scanAll(); watchertest.Content(set.Pods) != "x=v1@x.yaml" {
		t.Fatalf("pods %q: the premise is wrong", watchertest.Content(set.Pods))
	}
	src.notify.wake(func() { src.notify.lost = true })
	if set, _ := src.scanAll(); watchertest.Content(set.Pods) != "x=v2@x.yaml" {
		t.Fatalf("pods %q", watchertest.Content(set.Pods))
	}
}

func TestTwoPathsOfOneDirectoryShareTheirInterest(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	watchertest.Must(t, os.Mkdir(b, 0o755))
	watchertest.Must(t, os.Symlink("b", a))
	want := interests{}
	want.follow([]hop{{a, "only"}})
	want.listen(b)
	if ids := want.resolve(); len(ids) != 1 || ids[a] == (fileID{}) {
		t.Fatalf("watched are %v", ids)
	}
	for path, concern := range map[string]bool{
		filepath.Join(a, "only"): true, filepath.Join(a, "x.yaml"): true, filepath.Join(a, "README"): true, a: true,
		filepath.Join(a, ".x.swp"): false, filepath.Join(root, "other"): false,
	} {
		if want.concern(path) != concern {
			t.Errorf("concern for %s is %v", path, !concern)
		}
	}
}
