package logs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSurplusTakesOldFilesFirst(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	files := []logSize{
		{path: "quiet", size: 10, changed: at(1), current: true},
		{path: "new", size: 100, changed: at(9)},
		{path: "old", size: 100, changed: at(5)},
		{path: "loud", size: 300, changed: at(10), current: true},
		{path: "middle", size: 100, changed: at(7)},
	}
	for total, want := range map[int64][]string{
		610: nil, 609: {"old"}, 500: {"old", "middle"}, 400: {"old", "middle", "new"}, 300: {"old", "middle", "new", "loud"}, 5: {"old", "middle", "new", "loud", "quiet"},
	} {
		var got []string
		for _, f := range surplus(files, total) {
			got = append(got, f.path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", total, got, want)
		}
	}
}

func TestSurplusIsEnoughAndNoMore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var files []logSize
		var sum int64
		for i := range rnd.IntN(12) {
			f := logSize{path: fmt.Sprint(i), size: rnd.Int64N(100), changed: time.Unix(rnd.Int64N(10), 0), current: rnd.IntN(3) == 0}
			files = append(files, f)
			sum += f.size
		}
		total := rnd.Int64N(500)
		gone := surplus(files, total)
		for i, g := range gone {
			sum -= g.size
			if enough := sum <= total-total/10; enough != (i == len(gone)-1) {
				t.Fatalf("%v of %v for %d: %d are enough", gone, files, total, i+1)
			}
		}
		if sum > total {
			t.Fatalf("%d are left of %v for %d", sum, files, total)
		}
	}
}

func TestAllLogsTogetherStayBelowTheTotal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pods := []string{filepath.Join(dir, "ns_a_1"), filepath.Join(dir, "ns_b_2")}
	theirs := filepath.Join(dir, "ns_c_3", "c", "0.log")
	if err := os.MkdirAll(filepath.Dir(theirs), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(theirs, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told Notice
	const total = 300_000
	c := newCollectorWith(t, Config{
		Dir: filepath.Join(dir, "fifos"), Limits: Limits{MaxSize: 50_000, MaxFiles: 100, Total: total}, PodDirs: func() []string { return pods },
		Notice: func(n Notice) { mu.Lock(); told = n; mu.Unlock() },
	})
	o1, _ := attach(t, c, "a", filepath.Join(pods[0], "c", "0.log"))
	o2, _ := attach(t, c, "b", filepath.Join(pods[1], "c", "0.log"))
	put(t, o2, "a quiet one\n")
	rnd := rand.New(rand.NewPCG(5, 6)) // what compresses well may never be too much
	for i := range 20000 {
		put(t, o1, fmt.Sprintf("%05d %016x%016x%016x\n", i, rnd.Uint64(), rnd.Uint64(), rnd.Uint64()))
	}
	finish(t, c, "a")
	c.settled(t)
	used := func() (sum int64) {
		for _, f := range measure(pods) {
			sum += f.size
		}
		return sum
	}
	if n := used(); n > total || n < total/20 {
		t.Errorf("%d bytes are used", n)
	}
	out, _ := readFile(t, filepath.Join(pods[0], "c", "0.log"), ReadOptions{Tail: 100})
	if !strings.HasPrefix(out, "19900 ") || !strings.HasPrefix(out[strings.LastIndex(strings.TrimSuffix(out, "\n"), "\n")+1:], "19999 ") {
		t.Errorf("the end is %.50q ... ", out)
	}
	if got := content(t, filepath.Join(pods[1], "c", "0.log")); !strings.HasSuffix(got, "a quiet one\n") {
		t.Errorf("the other log has %q", got)
	}
	if st, err := os.Stat(theirs); err != nil || st.Size() != 1<<20 {
		t.Error("a log of somebody else was touched")
	}
	mu.Lock()
	defer mu.Unlock()
	if told.Kind != Trimmed || told.Files == 0 || told.Bytes == 0 {
		t.Errorf("told %+v", told)
	}
}

func TestTheFileThatIsWrittenToIsEmptiedWhenThereIsNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ns_a_1", "c", "0.log")
	c := newCollectorWith(t, Config{Dir: filepath.Join(dir, "fifos"), Limits: Limits{Total: 1000}, PodDirs: func() []string { return []string{filepath.Join(dir, "ns_a_1")} }})
	o, _ := attach(t, c, "a", path)
	put(t, o, strings.Repeat("x", 2000)+"\n")
	eventually(t, "it is removed", func() bool { _, err := os.Stat(path); return err != nil })
	put(t, o, "after\n")
	finish(t, c, "a")
	if got := plain(t, path); got != "stdout F after\n" {
		t.Errorf("got %q", got)
	}
}

func TestLogsThatCannotBeRemovedAreNotTriedWithEachLine(t *testing.T) {
	dir := t.TempDir()
	pod := filepath.Join(dir, "ns_a_1")
	old := filepath.Join(pod, "c", "0.log")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old, filepath.Join(pod, "c", "1.log")} {
		if err := os.WriteFile(path, make([]byte, 2000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCollectorWith(t, Config{Dir: filepath.Join(dir, "fifos"), Limits: Limits{Total: 1000}, PodDirs: func() []string { return []string{pod} }})
	k, tries, stays := c.keeper, 0, true
	k.remove = func(path string) error {
		tries++
		if stays {
			return os.ErrPermission
		}
		return removeFile(path)
	}
	grow := func(n int) int {
		tries = 0
		for range n {
			k.grew(1)
			c.settled(t)
		}
		return tries
	}
	c.Sweep()
	c.settled(t)
	if n := grow(90); n != 0 {
		t.Errorf("%d tries for 90 bytes", n)
	}
	if n := grow(30); n != 2 { // both files, once
		t.Errorf("%d tries for the tenth that is more", n)
	}
	stays = false
	if n := grow(120); n != 2 {
		t.Errorf("%d tries to remove them", n)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("it is still there")
	}
	if n := k.stuck.Load(); n != 0 {
		t.Errorf("stuck at %d", n)
	}
}
