package budget_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/internal/boottime"
	"monopod/node/budget"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatAProcessCosts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"7/stat":          "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 360000 20 21",
		"7/status":        "Name:\tx\nVmRSS:\t   30 kB\n",
		"7/io":            "wchar: 99\nwrite_bytes: 5000\ncancelled_write_bytes: 1000\n",
		"7/task/7/status": "voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t2\n",
		"7/task/8/status": "voluntary_ctxt_switches:\t20\nnonvoluntary_ctxt_switches:\t1\n",
	})
	var c budget.Cost
	c.Add(dir, 7, 3*time.Hour)
	c.Add(dir, 8, 3*time.Hour) // it has ended
	want := budget.Cost{Processes: 1, ResidentBytes: 30 << 10, WakeUps: 30, Preemptions: 3, WrittenBytes: 4000, Running: 2 * time.Hour}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if got := c.PerHour(c.WrittenBytes); got != 2000 {
		t.Errorf("%v an hour", got)
	}
	c.Add(dir, 7, 3*time.Hour)
	if got := c.PerHour(c.WrittenBytes); got != 4000 {
		t.Errorf("%v an hour, both together", got)
	}
	if got := (&budget.Cost{}).PerHour(5); got != 0 {
		t.Errorf("nothing costs %v", got)
	}
}

func TestWhatThisProcessCosts(t *testing.T) {
	var c budget.Cost
	c.Add("/proc", os.Getpid(), boottime.Since())
	if c.ResidentBytes < 1<<20 || c.WakeUps == 0 || c.Running <= 0 || c.Running > time.Hour {
		t.Errorf("%+v", c)
	}
}

func TestShimsAreFoundByTheirProgramAndArgument(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"11/cmdline": "/x/shim\x00-address\x00/run/monopod/containerd.sock\x00",
		"12/cmdline": "/x/shim\x00-address\x00/run/other/containerd.sock\x00",
		"13/cmdline": "/x/other\x00/run/monopod/containerd.sock\x00",
		"14/cmdline": "",
	})
	if got := budget.Children(dir, "shim", "/run/monopod/"); !slices.Equal(got, []int{11}) {
		t.Errorf("%v", got)
	}
}

func TestCgroupsAreRemovedByTheirNames(t *testing.T) {
	s, _ := cgroups(t, v2(), "0::/\n", map[string]string{"u/busy/cgroup.procs": "7\n", "u/free/x": ""})
	dir := filepath.Join(filepath.Dir(s.Proc), "u")
	if err := os.Remove(filepath.Join(dir, "free", "x")); err != nil {
		t.Fatal(err)
	}
	// These are plain directories: one with a file in it cannot be removed, for another reason than a cgroup with processes.
	err := s.Leave("/free", "/none", "/busy")
	if err == nil || !strings.Contains(err.Error(), "remove the cgroup /busy: directory not empty") || strings.Contains(err.Error(), "/none") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 || filepath.Base(left[0]) != "busy" {
		t.Errorf("left: %v", left)
	}
}
