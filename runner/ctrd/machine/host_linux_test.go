package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"monopod/runner/ctrd/dirtest"
	"monopod/runner/spec"
)

// fakeSys returns a directory with these files, empty or "PATH=CONTENT".
func fakeSys(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		if err := os.WriteFile(dirtest.Write(t, filepath.Join(dir, name), 0), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheModeOfCgroups(t *testing.T) {
	mount := func(fs, at, options string) *mountinfo.Info {
		return &mountinfo.Info{FSType: fs, Mountpoint: at, VFSOptions: options}
	}
	for name, tt := range map[string]struct {
		mounts  []*mountinfo.Info
		unified bool
		options string
		fails   bool
	}{
		"unified":                       {[]*mountinfo.Info{mount("cgroup2", "/sys/fs/cgroup", "rw,nsdelegate,memory_recursiveprot")}, true, "[nsdelegate memory_recursiveprot]", false},
		"unified, without options":      {[]*mountinfo.Info{mount("cgroup2", "/sys/fs/cgroup", "rw")}, true, "[]", false},
		"one hierarchy per controller":  {[]*mountinfo.Info{mount("cgroup", "/sys/fs/cgroup/memory", "rw,memory")}, false, "[]", false},
		"hybrid":                        {[]*mountinfo.Info{mount("cgroup", "/sys/fs/cgroup/memory", "rw,memory"), mount("cgroup2", "/sys/fs/cgroup/unified", "rw,nsdelegate")}, false, "[]", false},
		"a machine that has no cgroups": {nil, false, "[]", true},
	} {
		unified, options, err := modeOf(tt.mounts)
		if unified != tt.unified || fmt.Sprint(options) != tt.options || (err != nil) != tt.fails {
			t.Errorf("%s: %t, %v, %v", name, unified, options, err)
		}
	}
}

func TestWhetherTheKernelLimitsSwap(t *testing.T) {
	cgroupfs, systemd := spec.Cgroups{Root: "/a/pods"}, spec.Cgroups{Root: "/a/pods", Driver: spec.SystemdDriver}
	for name, tt := range map[string]struct {
		file    string
		unified bool
		cgroups spec.Cgroups
		want    bool
	}{
		"a controller with accounting":       {"fs/cgroup/memory/memory.memsw.limit_in_bytes", false, cgroupfs, true},
		"a controller without":               {"fs/cgroup/memory/memory.limit_in_bytes", false, cgroupfs, false},
		"another cgroup has it":              {"fs/cgroup/system.slice/memory.swap.max", true, systemd, true},
		"no cgroup has it":                   {"fs/cgroup/system.slice/memory.max", true, systemd, false},
		"the cgroup of pods has it":          {"fs/cgroup/a/pods/memory.swap.max", true, cgroupfs, true},
		"the cgroup of pods is created":      {"fs/cgroup/cgroup.controllers", true, cgroupfs, false},
		"a file has the name of that cgroup": {"fs/cgroup/a", true, cgroupfs, false},
	} {
		sys := fakeSys(t, tt.file)
		if got := swapAccounting(sys, tt.unified, tt.cgroups); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
		if _, err := os.Stat(filepath.Join(sys, "fs/cgroup/a")); err == nil && (!tt.unified || tt.cgroups == systemd) {
			t.Errorf("%s: a cgroup was created", name)
		}
	}
}

func TestHugePagesThatTheKernelCanLimit(t *testing.T) {
	pages := []string{"kernel/mm/hugepages/hugepages-2048kB/nr", "kernel/mm/hugepages/hugepages-1048576kB/nr", "kernel/mm/hugepages/other/nr"}
	for name, tt := range map[string]struct {
		file    string
		unified bool
		want    bool
	}{
		"a controller":          {"fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes", false, true},
		"no controller":         {"fs/cgroup/memory/memory.limit_in_bytes", false, false},
		"unified":               {"fs/cgroup/cgroup.controllers=cpu memory hugetlb\n", true, true},
		"unified, without":      {"fs/cgroup/cgroup.controllers=cpu memory\n", true, false},
		"unified, none at all":  {"fs/cgroup/x", true, false},
		"unified, a likely one": {"fs/cgroup/cgroup.controllers=nohugetlb\n", true, false},
	} {
		got := hugePageSizes(fakeSys(t, append(pages, tt.file)...), tt.unified)
		slices.Sort(got)
		if want := []int64{2 << 20, 1 << 30}; tt.want != slices.Equal(got, want) || !tt.want && got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFilesOfThermalThrottlingAreMasked(t *testing.T) {
	sys := fakeSys(t, "devices/system/cpu/cpu0/thermal_throttle/count", "devices/system/cpu/cpu11/thermal_throttle/count", "devices/system/cpu/cpufreq/thermal_throttle/count", "devices/system/cpu/cpu1/online")
	want := []string{filepath.Join(sys, "devices/system/cpu/cpu0/thermal_throttle"), filepath.Join(sys, "devices/system/cpu/cpu11/thermal_throttle")}
	if got := thermalThrottlePaths(sys); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFactsOfThisProcess(t *testing.T) {
	if caps, err := boundingSet(); err != nil || slices.ContainsFunc(caps, func(c string) bool { return !strings.HasPrefix(c, "CAP_") }) {
		t.Errorf("%v, %v", caps, err)
	}
	if n := ownOOMScoreAdj(); n < -1000 || n > 1000 {
		t.Errorf("oom_score_adj %d", n)
	}
}
