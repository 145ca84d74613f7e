package ctrd

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/runner"
)

func items(list string) []logItem {
	var all []logItem
	for name := range strings.FieldsSeq(list) {
		all = append(all, logItem{name: name, size: 1})
	}
	return all
}

func namesOf(files []logItem) string {
	var all []string
	for _, f := range files {
		all = append(all, f.name)
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
		if got := namesOf(expendable(items(c.files), numbers(c.used), numbers(c.running))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Whatever there is: nothing goes that somebody can ask for, or writes to.
func TestGarbageIsNeverNeeded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		var files []logItem
		used, running := map[int]bool{}, map[int]bool{}
		for n := range rnd.IntN(8) {
			if rnd.IntN(3) > 0 {
				files = append(files, logItem{name: strconv.Itoa(n) + ".log"})
			}
			if rnd.IntN(3) == 0 {
				used[n] = true
				running[n] = rnd.IntN(2) == 0
			}
		}
		old := outdated(files, used)
		for _, f := range slices.Concat(old, expendable(files, used, running)) {
			n, _ := strconv.Atoi(strings.TrimSuffix(f.name, ".log"))
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

// garbageRuntime is a Runtime that has directories and records only.
func garbageRuntime(t *testing.T) *Runtime {
	t.Helper()
	dir := t.TempDir()
	r := &Runtime{
		cfg: Config{RootDirectory: filepath.Join(dir, "root"), PodLogsDir: filepath.Join(dir, "pods"), ContainerLogsDir: filepath.Join(dir, "containers")},
		log: slog.New(slog.DiscardHandler), index: newIndex(),
	}
	for _, d := range []string{r.cfg.PodLogsDir, r.cfg.ContainerLogsDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *Runtime) testRecord(t *testing.T, id, pod, number string) *containerRecord {
	t.Helper()
	key := manifests.Key{Namespace: "ns", Name: pod}
	rec := &containerRecord{ID: id, Labels: containerLabels{Key: key, UID: "u-" + pod, Name: "c", LogPath: filepath.Join(r.containerLogDir(key, "u-"+pod, "c"), number+".log")}}
	if err := r.ownLogs(filepath.Dir(rec.Labels.LogPath)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rec.Labels.LogPath, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.linkLog(rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ownerName {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestLogsAndLinksOfWhatIsGoneAreCleanedUp(t *testing.T) {
	r := garbageRuntime(t)
	r.testRecord(t, "id0", "web", "0")
	r.testRecord(t, "id1", "web", "1")
	r.index.putContainer(r.testRecord(t, "id2", "web", "2"))
	r.testRecord(t, "id3", "gone", "0")
	theirs := filepath.Join(r.cfg.PodLogsDir, "ns_other_u9", "c", "0.log")
	if err := os.MkdirAll(filepath.Dir(theirs), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"other-9.log": theirs, "dangling-8.log": filepath.Join(r.cfg.PodLogsDir, "ns_x_u", "c", "0.log"), "elsewhere-7.log": "/no/such/place/0.log"} {
		if err := os.Symlink(target, filepath.Join(r.cfg.ContainerLogsDir, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.cleanLogs(); err != nil {
			t.Error(err)
		}
		if err := r.cleanLinks(true); err != nil {
			t.Error(err)
		}
		if got := treeOf(t, r.cfg.PodLogsDir); got != "ns_other_u9/c/0.log ns_web_u-web/c/1.log ns_web_u-web/c/2.log" {
			t.Errorf("logs: %s", got)
		}
		if got := treeOf(t, r.cfg.ContainerLogsDir); got != "elsewhere-7.log other-9.log web_ns_c-id2.log" {
			t.Errorf("links: %s", got)
		}
	}
	// another pair of instances: the one that ended is the previous one now
	next := r.testRecord(t, "id4", "web", "3")
	next.Labels.Exit = &runner.Termination{}
	r.index.putContainer(next)
	r.index.deleteContainer("id2")
	if err := r.dropOldLogs(next); err != nil {
		t.Error(err)
	}
	if got := treeOf(t, filepath.Join(r.cfg.PodLogsDir, "ns_web_u-web")); got != "c/2.log c/3.log" {
		t.Errorf("logs: %s", got)
	}
}
