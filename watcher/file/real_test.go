package file

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// summary prints what a set says about a directory.
func summary(set watcher.Set, dir string) string {
	rel := func(path string) string {
		r, err := filepath.Rel(dir, path)
		if err != nil {
			return path
		}
		return r
	}
	var b strings.Builder
	fmt.Fprintln(&b, "pods:", strings.Join(watcher.Keys(set.Pods), " "))
	for _, u := range set.Unknown {
		fmt.Fprintln(&b, "unknown:", rel(u))
	}
	for _, r := range set.Inputs {
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%s: %s %s", rel(r.Input), r.State, strings.Join(r.Pods, " "))))
	}
	return b.String()
}

func TestDirectoriesAsFoundOnDisk(t *testing.T) {
	for _, name := range []string{"found", "duplicates"} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join("testdata", name))
			watchertest.Must(t, err)
			s := standWith(t, Config{Path: dir, Load: realLoad}, unhurried())
			set := s.Until("a set", func(set watcher.Set) bool { return !set.Unread })
			golden, got := dir+".golden", summary(set, dir)
			if *update {
				watchertest.Must(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			watchertest.Must(t, err)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func partial(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/partial/pair.yaml")
	watchertest.Must(t, err)
	return slices.Collect(strings.Lines(string(data)))
}

// Many beginnings of this manifest are valid. None of them may ever run as long as the writer is not done.
func TestAManifestWrittenLineByLineRunsOnlyWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pair.yaml")
	lines := partial(t)
	valid := 0
	for i := 1; i < len(lines); i++ {
		if _, err := realLoad(path, []byte(strings.Join(lines[:i], ""))); err == nil {
			valid++
		}
	}
	if valid < 5 {
		t.Fatalf("only %d beginnings are valid: this test shows nothing", valid)
	}
	s := standWith(t, Config{Path: dir, Load: realLoad}, unhurried())
	s.Until("an empty set", func(set watcher.Set) bool { return !set.Unread })
	f, err := os.Create(path)
	watchertest.Must(t, err)
	for _, line := range lines {
		_, err := f.WriteString(line)
		watchertest.Must(t, err)
		unseen(3 * time.Millisecond)
	}
	watchertest.Must(t, f.Close())
	want, err := realLoad(path, []byte(strings.Join(lines, "")))
	watchertest.Must(t, err)
	s.Until("both pods", func(set watcher.Set) bool { return len(set.Pods) == 2 })
	for _, set := range s.History() {
		if len(set.Pods) != 0 && !reflect.DeepEqual(set.Pods, want.Pods) {
			t.Fatalf("ran in pieces: %v", watcher.Keys(set.Pods))
		}
	}
}

// A script that opens the file for each line looks like an editor that saves after each line. No pod may disappear in between.
func TestAManifestAppendedLineByLineTakesNothingAway(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pair.yaml")
	lines := partial(t)
	watchertest.Write(t, path, strings.Join(lines, ""))
	s := standWith(t, Config{Path: dir, Load: realLoad}, unhurried())
	s.Until("both pods", func(set watcher.Set) bool { return len(set.Pods) == 2 })
	edited := strings.Split(strings.ReplaceAll(strings.Join(lines, ""), "main:1", "main:2"), "\n")
	watchertest.Write(t, path, "")
	for _, line := range edited {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		watchertest.Must(t, err)
		_, err = f.WriteString(line + "\n")
		watchertest.Must(t, err)
		watchertest.Must(t, f.Close())
		unseen(time.Millisecond)
	}
	s.Until("the edit", func(set watcher.Set) bool {
		return !slices.ContainsFunc(set.Pods, func(p *manifests.Pod) bool {
			return p.Object.Spec.Containers[0].Image != "registry.example/main:2"
		})
	})
	s.NeverWithout("first")
	s.NeverWithout("second")
}

func TestEveryTruncationOfAManifestKeepsThePods(t *testing.T) {
	lines := partial(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "pair.yaml")
	watchertest.Write(t, path, strings.Join(lines, ""))
	src := New(Config{Path: dir, Load: realLoad})
	defer src.stopListening()
	src.graces.shrink = time.Hour // whether a valid beginning is meant is a question of time; see above
	src.scanAll()
	whole := strings.Join(lines, "")
	for n := len(whole) - 1; n >= 0; n-- {
		watchertest.Must(t, os.Truncate(path, int64(n)))
		set, _ := src.scanAll()
		if got := strings.Join(watcher.Keys(set.Pods), " "); got != "default/first default/second" {
			t.Fatalf("cut after %d bytes: %q", n, got)
		}
	}
}

// TestACutThatIsStillValidIsAnEdit, which nothing tells from one that is meant. What is written under another name and renamed is never
// cut.
func TestACutThatIsStillValidIsAnEdit(t *testing.T) {
	cut, err := os.ReadFile("../../e2e/testdata/cases/truncated-valid-yaml.yaml")
	watchertest.Must(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	const rest = "    command: [httpd, -f]\n"
	watchertest.Write(t, path, string(cut)+rest)
	src := New(Config{Path: dir, Load: realLoad})
	defer src.stopListening()
	command := func() string {
		set, _ := src.scanAll()
		if got := strings.Join(watcher.Keys(set.Pods), " "); got != "default/web" {
			t.Fatalf("it has %q", got)
		}
		return strings.Join(set.Pods[0].Object.Spec.Containers[0].Command, " ")
	}
	if got := command(); got != "httpd -f" {
		t.Fatalf("the whole file has the command %q", got)
	}
	hidden := filepath.Join(dir, ".web.yaml")
	watchertest.Write(t, hidden, string(cut))
	if got := command(); got != "httpd -f" {
		t.Errorf("a file that is being written is read: command %q", got)
	}
	watchertest.Must(t, os.Truncate(path, int64(len(cut))))
	if got := command(); got != "" {
		t.Errorf("the cut file has the command %q", got)
	}
	watchertest.Write(t, hidden, string(cut)+rest)
	watchertest.Must(t, os.Rename(hidden, path))
	if got := command(); got != "httpd -f" {
		t.Errorf("the file that was renamed has the command %q", got)
	}
}
