//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"monopod/node/budget"
	"monopod/node/localapi"
)

// cgroupsOf returns the cgroups of a process by controller; "" is the unified hierarchy.
func cgroupsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			all[f[1]] = f[2]
		}
	}
	if cgroupV2() {
		return map[string]string{"": all[""]}
	}
	return map[string]string{"memory": all["memory"], "cpu": all["cpu"]}
}

// shimsOf returns the shims of the instance.
func shimsOf(in *instance) []int {
	return budget.Children("/proc", "containerd-shim-monopod-v2", in.state)
}

// agentCost returns the output of `monopod status`.
func agentCost(in *instance) localapi.Agent {
	in.t.Helper()
	var a localapi.Agent
	out, err := in.run("status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &a)
	}
	if err != nil {
		in.t.Fatalf("%v: %s", err, out)
	}
	return a
}

// inBudget checks that the agent is in this cgroup, with limits, and that all shims and containers are outside.
func inBudget(in *instance, cgroup string, l budget.Limits, shims int) {
	t := in.t
	t.Helper()
	a := agentCost(in)
	if a.Cgroup != cgroup || a.Budget != l || a.MemoryLimitBytes != l.Memory/4*3 {
		t.Errorf("monopod says that it has %+v", a)
	}
	for controller, name := range cgroupsOf(t, a.PID) {
		if name != cgroup {
			t.Errorf("monopod is in the cgroup %s of %q", name, controller)
		}
	}
	if got := readCgroup(t, cgroup, "memory.max", "memory/memory.limit_in_bytes"); got != fmt.Sprint(l.Memory) {
		t.Errorf("its memory is limited to %s", got)
	}
	quota := fmt.Sprint(l.MilliCPU * 100)
	if cgroupV2() {
		quota += " 100000"
	}
	if got := readCgroup(t, cgroup, "cpu.max", "cpu/cpu.cfs_quota_us"); got != quota {
		t.Errorf("its processors are limited to %s, want %s", got, quota)
	}
	pids := shimsOf(in)
	if len(pids) != shims {
		t.Errorf("there are %d shims, want %d", len(pids), shims)
	}
	for _, pid := range pids {
		for controller, name := range cgroupsOf(t, pid) {
			if name == cgroup {
				t.Errorf("shim %d is in the cgroup %s of %q", pid, name, controller)
			}
		}
	}
	// Short-lived child processes, such as iptables, count in its budget, too.
	in.eventually("nothing but monopod is in its cgroup", func() error {
		inside := strings.Fields(readCgroup(t, cgroup, "cgroup.procs", "memory/cgroup.procs"))
		if !slices.Equal(inside, []string{strconv.Itoa(a.PID)}) {
			return fmt.Errorf("%v are in the cgroup of monopod (%d)", inside, a.PID)
		}
		return nil
	})
}

// TestBudget: monopod is in a cgroup of its own, with limits, without pods. Budgets can be added and removed, even if monopod is killed
// meanwhile, and where cgroups cannot be changed monopod works without them.
func TestBudget(t *testing.T) {
	var in *instance
	t.Cleanup(func() {
		for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"} {
			if _, err := os.Stat(dir + in.cgroup + "-agent"); err == nil {
				t.Errorf("%s%s-agent is left", dir, in.cgroup)
			}
		}
	})
	in = newInstance(t)
	in.put("before", sleeper("before", ":"))
	in.start()
	in.ready("before")
	if a := agentCost(in); a.Cgroup != "" {
		t.Errorf("without a budget: %+v", a)
	}
	untouched := in.untouched("before")
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	plain := in.read("config.yaml")
	in.write(in.config, plain+"agentMemoryBudget: 600Mi\nagentCPUBudget: 1500m\n") // the race detector takes most of it
	own, limits := in.cgroup+"-agent", budget.Limits{Memory: 600 << 20, MilliCPU: 1500}
	in.start()
	in.put("after", sleeper("after", "grep -E ':(memory|):' /proc/self/cgroup"))
	in.ready("after")
	inBudget(in, own, limits, 2)
	for _, pid := range shimsOf(in) {
		for controller, name := range cgroupsOf(t, pid) {
			if want := cgroupsOf(t, os.Getpid())[controller]; name != want {
				t.Errorf("shim %d is in the cgroup %s of %q, want %s", pid, name, controller, want)
			}
		}
	}
	in.kill9()
	in.start()
	inBudget(in, own, limits, 2)
	untouched("with a budget, and monopod killed")

	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	*in.log = syncBuffer{}
	in.startAs(&exec.Cmd{Path: "/bin/sh", SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, Args: []string{
		"sh", "-c", `mount --make-rprivate / || exit 1
grep ' cgroup2\? ' /proc/mounts | while read -r _ dir _; do mount -o remount,bind,ro "$dir" || exit 1; done || exit 1
exec "$0" run --config "$1"`, filepath.Join(in.bin, "monopod"), in.config,
	}})
	if n := strings.Count(in.log.String(), "no cgroup limits monopod to its budget"); n != 1 {
		t.Errorf("where cgroups are read-only, it is said %d times:\n%s", n, in.log.tail())
	}
	if a := agentCost(in); a.Cgroup != "" || a.MemoryLimitBytes != limits.Memory/4*3 {
		t.Errorf("where cgroups are read-only: %+v", a)
	}
	in.ready("after")
	untouched("with read-only cgroups")
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
