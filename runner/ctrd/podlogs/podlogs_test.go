package podlogs

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
)

func items(list string) []logItem {
	var all []logItem
	for name := range strings.FieldsSeq(list) {
		all = append(all, logItem{Name: name, Size: 1})
	}
	return all
}

func namesOf(files []logItem) string {
	var all []string
	for _, f := range files {
		all = append(all, f.Name)
	}
	return strings.Join(all, " ")
}

func numbers(list string) map[int]bool {
	all := map[int]bool{}
	for s := range strings.FieldsSeq(list) {
		n, _ := strconv.Atoi(s)
		all[n] = true
	}
	return all
}

func TestWhichLogsNobodyCanAskFor(t *testing.T) {
	for name, c := range map[string]struct{ files, used, want string }{
		"one that runs":             {"0.log", "0", ""},
		"the previous one":          {"0.log 1.log", "1", ""},
		"before the previous one":   {"0.log 0.log.20260101-000000.gz 1.log 2.log", "2", "0.log 0.log.20260101-000000.gz"},
		"old and new side by side":  {"2.log 3.log 4.log 5.log", "4 5", "2.log"},
		"numbers with gaps":         {"0.log 3.log 9.log 10.log", "10", "0.log 3.log"},
		"one that is made just now": {"0.log 1.log 2.log", "1", ""},
		"no record":                 {"0.log 1.log", "", "0.log"},
		"other files":               {"x.txt 0.log 1.log 2.log 1.log.bak", "2", "0.log"},
		"its file is gone":          {"0.log 1.log", "2", "0.log"},
		"nothing":                   {"", "", ""},
	} {
		if got := namesOf(outdated(items(c.files), numbers(c.used))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhichLogsGoWhenTheDiskIsNearlyFull(t *testing.T) {
	for name, c := range map[string]struct{ files, used, running, want string }{
		"what runs stays":                  {"0.log 0.log.20260101-000000", "0", "0", ""},
		"previous ones go":                 {"0.log 0.log.20260101-000000 1.log", "1", "1", "0.log 0.log.20260101-000000"},
		"of an ended one what was rotated": {"0.log 0.log.20260101-000000 0.log.20260101-000001.gz", "0", "", "0.log.20260101-000000 0.log.20260101-000001.gz"},
		"the newest may be being made":     {"0.log 1.log 1.log.20260101-000000", "0", "", ""},
	} {
		if got := namesOf(Expendable(items(c.files), numbers(c.used), numbers(c.running))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// No log is removed that can be requested, or is being written.
func TestGarbageIsNeverNeeded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		var files []logItem
		used, running := map[int]bool{}, map[int]bool{}
		for n := range rnd.IntN(8) {
			if rnd.IntN(3) > 0 {
				files = append(files, logItem{Name: strconv.Itoa(n) + ".log"})
			}
			if rnd.IntN(3) == 0 {
				used[n] = true
				running[n] = rnd.IntN(2) == 0
			}
		}
		old := outdated(files, used)
		for _, f := range slices.Concat(old, Expendable(files, used, running)) {
			n, _ := strconv.Atoi(strings.TrimSuffix(f.Name, ".log"))
			if used[n] {
				t.Fatalf("%v goes of %v used %v running %v", f, files, used, running)
			}
		}
		again := slices.DeleteFunc(slices.Clone(files), func(f logItem) bool { return slices.Contains(old, f) })
		if more := outdated(again, used); len(more) > 0 {
			t.Fatalf("then %v goes, after %v of %v used %v", more, old, files, used)
		}
	}
}

// testLogs are the logs of an instance that has directories and records only.
func testLogs(t *testing.T) *Logs {
	t.Helper()
	dir := t.TempDir()
	l := &Logs{
		Dirs:  layout.Dirs{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "pods"), ContainerLogs: filepath.Join(dir, "containers")},
		Index: record.NewIndex(),
	}
	for _, d := range []string{l.Dirs.PodLogs, l.Dirs.ContainerLogs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func testRecord(t *testing.T, l *Logs, id, pod, number string) *record.Container {
	t.Helper()
	key := manifests.Key{Namespace: "ns", Name: pod}
	rec := &record.Container{ID: id, Meta: record.ContainerMeta{Key: key, UID: "u-" + pod, Name: "c", LogPath: filepath.Join(l.Dirs.ContainerLogDir(key, "u-"+pod, "c"), number+".log")}}
	if err := l.OwnLogs(filepath.Dir(rec.Meta.LogPath)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rec.Meta.LogPath, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.LinkLog(rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestLogsAndLinksOfWhatIsGoneAreCleanedUp(t *testing.T) {
	l := testLogs(t)
	testRecord(t, l, "id0", "web", "0")
	testRecord(t, l, "id1", "web", "1")
	l.Index.PutContainer(testRecord(t, l, "id2", "web", "2"))
	testRecord(t, l, "id3", "gone", "0")
	theirs := filepath.Join(l.Dirs.PodLogs, "ns_other_u9", "c", "0.log")
	if err := os.MkdirAll(filepath.Dir(theirs), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"other-9.log": theirs, "dangling-8.log": filepath.Join(l.Dirs.PodLogs, "ns_x_u", "c", "0.log"), "elsewhere-7.log": "/no/such/place/0.log"} {
		if err := os.Symlink(target, filepath.Join(l.Dirs.ContainerLogs, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.CleanLogs(); err != nil {
			t.Error(err)
		}
		if err := l.CleanLinks(true); err != nil {
			t.Error(err)
		}
		if got := dirtest.Tree(t, l.Dirs.PodLogs, OwnerName); got != "ns_other_u9/c/0.log ns_web_u-web/c/1.log ns_web_u-web/c/2.log" {
			t.Errorf("logs: %s", got)
		}
		if got := dirtest.Tree(t, l.Dirs.ContainerLogs, OwnerName); got != "elsewhere-7.log other-9.log web_ns_c-id2.log" {
			t.Errorf("links: %s", got)
		}
	}
	// another pair of instances: the one that ended is the previous one now
	next := testRecord(t, l, "id4", "web", "3")
	next.Meta.Exit = &runner.Termination{}
	l.Index.PutContainer(next)
	l.Index.DeleteContainer("id2")
	if err := l.DropOldLogs(next); err != nil {
		t.Error(err)
	}
	if got := dirtest.Tree(t, filepath.Join(l.Dirs.PodLogs, "ns_web_u-web"), OwnerName); got != "c/2.log c/3.log" {
		t.Errorf("logs: %s", got)
	}
}

func TestALogFileIsNeverReused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"2.log", "3.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]string{0: "0.log", 2: "4.log", 7: "7.log"} {
		if got := filepath.Base(NextLogPath(dir, n)); got != want {
			t.Errorf("log of instance %d is %s, want %s", n, got, want)
		}
	}
}
