package budget_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod/node/budget"
)

const mib = 1 << 20

// cgroups is a machine with files for cgroups: mounts are lines of mountinfo, with @ for the directory that they are in, own is
// what /proc/self/cgroup says, and each file of files is there, with its content.
func cgroups(t *testing.T, mounts []string, own string, files map[string]string, delegated ...string) (budget.System, func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"proc/self/mountinfo": strings.ReplaceAll(strings.Join(mounts, "\n")+"\n", "@", dir),
		"proc/self/cgroup":    own,
	})
	write(t, dir, files)
	s := budget.System{Proc: filepath.Join(dir, "proc"), PID: 77, Delegated: func(d string) bool {
		rel, _ := filepath.Rel(dir, d)
		return slices.Contains(delegated, rel)
	}}
	return s, func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
}

func v1() []string {
	return []string{
		"30 20 0:25 / @/memory rw - cgroup cgroup rw,memory",
		"31 20 0:26 / @/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
		"32 20 0:27 / @/systemd rw - cgroup cgroup rw,xattr,name=systemd",
		"33 20 0:28 / @/unified rw - cgroup2 cgroup2 rw",
		"34 20 0:29 / /x rw - ext4 /dev/x rw",
	}
}

func v2() []string { return []string{"30 20 0:25 / @/u rw,nosuid - cgroup2 cgroup2 rw"} }

// empty are the files of cgroups with nothing in them.
func empty(dirs ...string) map[string]string {
	files := map[string]string{}
	for _, dir := range dirs {
		for _, name := range []string{"cgroup.procs", "cgroup.subtree_control", "memory.max", "cpu.max", "memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.cfs_period_us"} {
			files[filepath.Join(dir, name)] = ""
		}
	}
	return files
}

func with(files, more map[string]string) map[string]string {
	maps.Copy(files, more)
	return files
}

func TestEnterOnV1IsPerControllerAndShimsStayWhereTheAgentCameFrom(t *testing.T) {
	t.Parallel()
	s, read := cgroups(t, v1(), "9:memory:/box\n8:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n",
		with(empty("memory/m-agent", "cpu,cpuacct/m-agent"), map[string]string{"memory/m-agent/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"}))
	c, err := s.Enter("", "/m", budget.Limits{Memory: 64 * mib, MilliCPU: 250})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "/m-agent" || c.Limits != (budget.Limits{Memory: 64 * mib, MilliCPU: 250}) || c.OOMKills != 3 {
		t.Errorf("%+v", c)
	}
	if len(c.Shims) != 2 || filepath.Base(c.Shims[0]) != "box" || filepath.Base(c.Shims[1]) != "cpu,cpuacct" {
		t.Errorf("shims are in %v", c.Shims)
	}
	for name, want := range map[string]string{
		"memory/m-agent/cgroup.procs": "77", "memory/m-agent/memory.limit_in_bytes": "67108864",
		"cpu,cpuacct/m-agent/cgroup.procs": "77", "cpu,cpuacct/m-agent/cpu.cfs_quota_us": "25000", "cpu,cpuacct/m-agent/cpu.cfs_period_us": "100000",
	} {
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestEnterWithoutLimitsTakesThemAway(t *testing.T) {
	t.Parallel()
	s, read := cgroups(t, v1(), "9:memory:/a\n8:cpu,cpuacct:/a\n", empty("memory/a", "cpu,cpuacct/a"))
	c, err := s.Enter("/a", "/m", budget.Limits{})
	if err != nil || c.Name != "/a" {
		t.Fatalf("%+v, %v", c, err)
	}
	if read("memory/a/memory.limit_in_bytes") != "-1" || read("cpu,cpuacct/a/cpu.cfs_quota_us") != "-1" {
		t.Error("there are limits")
	}
	if filepath.Base(c.Shims[0]) != "memory" { // it was started in its own cgroup: shims are above it
		t.Errorf("shims are in %v", c.Shims)
	}
}

func TestEnterOnV2EnablesControllersFromTheTop(t *testing.T) {
	t.Parallel()
	s, read := cgroups(t, v2(), "0::/user.slice/session\n", with(empty("u", "u/top", "u/top/agent", "u/user.slice/session"), map[string]string{"u/top/cgroup.subtree_control": "cpu memory pids"}))
	c, err := s.Enter("/top/agent", "/m", budget.Limits{Memory: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Shims) != 1 || filepath.Base(c.Shims[0]) != "session" || c.Limits.Memory != 64*mib {
		t.Errorf("%+v", c)
	}
	for name, want := range map[string]string{
		"u/cgroup.subtree_control":     "+cpuory",         // a plain file keeps the rest of the longer +memory
		"u/top/cgroup.subtree_control": "cpu memory pids", // what was there is not asked for again
		"u/top/agent/cgroup.procs":     "77", "u/top/agent/memory.max": "67108864", "u/top/agent/cpu.max": "max 100000", "u/user.slice/session/cgroup.procs": "",
	} {
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestEnterBelowADelegatedServiceMovesTheOthersOut(t *testing.T) {
	t.Parallel()
	const unit = "u/system.slice/monopod.service"
	for _, own := range []string{"/system.slice/monopod.service", "/system.slice/monopod.service/agent"} {
		s, read := cgroups(t, v2(), "0::"+own+"\n", with(empty(unit, unit+"/agent", "u/m-shims"), map[string]string{unit + "/cgroup.procs": "77\n"}), unit)
		c, err := s.Enter("", "/m", budget.Limits{MilliCPU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		if c.Name != "/system.slice/monopod.service/agent" || len(c.Shims) != 1 || filepath.Base(c.Shims[0]) != "m-shims" {
			t.Errorf("%+v", c)
		}
		if got := read(unit + "/agent/cpu.max"); got != "150000 100000" {
			t.Errorf("limit %q", got)
		}
	}
	s, read := cgroups(t, v2(), "0::/system.slice/monopod.service\n", with(empty(unit, unit+"/agent", "u/m-shims"), map[string]string{unit + "/cgroup.procs": "77\n12\n"}), unit)
	// A file does not lose what is moved away, as a cgroup would.
	if c, err := s.Enter("", "/m", budget.Limits{}); err == nil || c.Name != "" || !strings.Contains(err.Error(), "faster") {
		t.Errorf("%+v, %v", c, err)
	}
	if got := read("u/m-shims/cgroup.procs"); got != "12" {
		t.Errorf("shims: %q", got)
	}
}

func TestWhereCgroupsCannotBeChangedTheAgentStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mounts []string
		own    string
	}{
		"no cgroups":  {[]string{"34 20 0:29 / /x rw - ext4 /dev/x rw"}, "0::/\n"},
		"no files v1": {v1(), "9:memory:/\n8:cpu,cpuacct:/\n"},
		"no files v2": {v2(), "0::/\n"},
	} {
		s, _ := cgroups(t, c.mounts, c.own, nil)
		if got, err := s.Enter("", "/m", budget.Limits{Memory: 64 * mib}); err == nil || got.Name != "" || got.Shims != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestAContainerSeesAPartOfTheHierarchy(t *testing.T) {
	t.Parallel()
	mounts := []string{"30 20 0:25 /docker/1 @/memory rw - cgroup cgroup rw,memory", "31 20 0:26 /docker/1 @/cpu rw - cgroup cgroup rw,cpu"}
	s, read := cgroups(t, mounts, "9:memory:/docker/1\n8:cpu:/docker/1/sub\n", empty("memory/m-agent", "cpu/m-agent"))
	c, err := s.Enter("", "/m", budget.Limits{Memory: 64 * mib})
	if err != nil || read("memory/m-agent/cgroup.procs") != "77" {
		t.Fatalf("%+v, %v", c, err)
	}
	if filepath.Base(c.Shims[0]) != "memory" || filepath.Base(c.Shims[1]) != "sub" {
		t.Errorf("shims are in %v", c.Shims)
	}
}
