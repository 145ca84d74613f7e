package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"monopod/runner/spec/limits"
)

// fakeCgroup is a directory with the files of a cgroup.
func fakeCgroup(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name, used, stat string
		refused, asks    bool
	}{
		{"enough room", "100", "", false, false},
		{"a cgroup that does not count", "", "", false, false},
		{"in use", "300", "anon 300\nfile 50\nactive_file 20\ninactive_file 30\n", true, false},
		{"what is cached would do, but is not given back", "300", "active_file 80\ninactive_file 60\n", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fakeCgroup(t, map[string]string{"memory.current": c.used, "memory.stat": c.stat, "memory.reclaim": ""})
			if err := makeRoom(dir, 200); (err != nil) != c.refused || err != nil && err.Error() != "memory limit (200) below current usage (300)" {
				t.Errorf("got %v", err)
			}
			if b, _ := os.ReadFile(filepath.Join(dir, "memory.reclaim")); (string(b) == "100") != c.asks {
				t.Errorf("asked to reclaim %q", b)
			}
		})
	}
}

func TestAControllerThatRefusesALimit(t *testing.T) {
	w := &cgroupWriter{dir: fakeCgroup(t, map[string]string{"memory.usage_in_bytes": "300\n"})}
	refused := errors.New("refused")
	for _, c := range []struct {
		err   error
		limit *int64
		want  string
	}{
		{nil, ptr.To[int64](200), "<nil>"},
		{refused, ptr.To[int64](200), "memory limit (200) below current usage (300): refused"},
		{unix.EBUSY, ptr.To[int64](300), "memory limit (300) below current usage (300): device or resource busy"},
		{refused, ptr.To[int64](400), "refused"},
		{refused, ptr.To[int64](-1), "refused"},
		{refused, nil, "refused"},
	} {
		if got := inUse(c.err, w, c.limit); fmt.Sprint(got) != c.want || c.err != nil && !errors.Is(got, c.err) {
			t.Errorf("got %v, want %s", got, c.want)
		}
	}
	if got := inUse(refused, &cgroupWriter{}, ptr.To[int64](200)); !errors.Is(got, refused) {
		t.Errorf("a cgroup that does not count: %v", got)
	}
}

func TestSetUnified(t *testing.T) {
	files := map[string]string{
		"cpu.weight": "100\n", "cpu.max": "max 100000\n", "memory.max": "max\n", "memory.min": "0\n", "memory.low": "0\n", "pids.max": "max\n", "hugetlb.2MB.max": "max\n",
	}
	dir := fakeCgroup(t, files)
	v := limits.Values{
		Shares: 1024, Quota: ptr.To[int64](50000), Period: 100000, Memory: ptr.To[int64](1 << 20), MemoryLow: 5,
		Pids: ptr.To[int64](7), Hugepages: map[string]int64{"2MB": 0},
	}
	if err := setUnified(dir, v); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cpu.weight": "39", "cpu.max": "50000 100000", "memory.max": "1048576", "memory.low": "5", "pids.max": "7", "hugetlb.2MB.max": "0"} {
		if b, _ := os.ReadFile(filepath.Join(dir, name)); !strings.HasPrefix(string(b), want) {
			t.Errorf("%s is %q, want %s", name, b, want)
		}
	}
	bare := fakeCgroup(t, map[string]string{"cpu.weight": "1", "cpu.max": "max 100000", "memory.max": "max"})
	if err := setUnified(bare, limits.Values{Shares: 2, Period: 100000}); err != nil {
		t.Errorf("controllers that are not there, and have nothing to do: %v", err)
	}
	if err := setUnified(bare, v); err == nil {
		t.Error("a limit of processes without the controller is ignored")
	}
}

func TestSlices(t *testing.T) {
	const slice, dir = "/monopod.slice/monopod-podx.slice", "/monopod/podx"
	for _, tt := range []struct {
		driver string
		slices *systemd
		cgroup string
		want   bool
	}{{"systemd", &systemd{}, slice, true}, {"systemd", &systemd{}, dir, false}, {"cgroupfs", nil, slice, false}, {"cgroupfs", nil, dir, false}} {
		if unit, ok := (Tree{Slices: tt.slices}).slice(tt.cgroup); ok != tt.want || ok && unit != "monopod-podx.slice" {
			t.Errorf("driver %s, cgroup %s: %s %t", tt.driver, tt.cgroup, unit, ok)
		}
	}
}

// TestPodsOfTheOtherDriver checks that systemd, which may not run here, is not called for their cgroups.
func TestPodsOfTheOtherDriver(t *testing.T) {
	root := t.TempDir()
	c := Tree{roots: []string{root}, Controllers: map[string]string{"memory": root}, Slices: &systemd{}}
	const cgroup = "/monopod/burstable/podx"
	if err := c.make(cgroup); err != nil {
		t.Fatal(err)
	}
	limit := filepath.Join(root, cgroup, "memory.limit_in_bytes")
	if err := os.WriteFile(limit, []byte("9223372036854771712\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.set(cgroup, limits.Values{Memory: ptr.To[int64](4096)}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(limit); err != nil || !strings.HasPrefix(string(b), "4096") {
		t.Errorf("the limit is %q (%v)", b, err)
	}
}

func TestQuotaPerSecond(t *testing.T) {
	for _, c := range []struct {
		quota, period int64
		want          uint64
	}{{50_000, 100_000, 500_000}, {1000, 100_000, 10_000}, {1234, 10_000, 130_000}, {0, 0, noLimit}} {
		v := limits.Values{Period: uint64(c.period)}
		if c.period > 0 {
			v.Quota = &c.quota
		}
		if got := quotaPerSecond(v); got != c.want {
			t.Errorf("%d of %d is %d per second, want %d", c.quota, c.period, got, c.want)
		}
	}
}

func TestNamesOfPodCgroups(t *testing.T) {
	for name, want := range map[string]bool{
		"pod1-2": true, "burstable": false, "monopod-burstable.slice": false, "monopod-burstable-pod1_2.slice": true, "monopod-pod1.slice": true, "monopod-x.scope": false,
	} {
		if isPodCgroup(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

func TestLimits(t *testing.T) {
	for text, want := range map[string]*int64{"max": nil, "-1": nil, "": nil, "9223372036854771712": nil, "0": ptr.To[int64](0), "65536": ptr.To[int64](65536)} {
		if got := LimitOf(text); !ptr.Equal(got, want) {
			t.Errorf("%q is %v", text, got)
		}
	}
}
