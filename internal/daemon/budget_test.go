package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/testfiles"
	"monopod/internal/units"
	"monopod/node/budget"
)

func TestABudgetIsKeptByTheCollectorWhereCgroupsCannotBeChanged(t *testing.T) { // not parallel: it is about this process
	memory, processors := debug.SetMemoryLimit(-1), runtime.GOMAXPROCS(0)
	t.Cleanup(func() { debug.SetMemoryLimit(memory); runtime.GOMAXPROCS(processors) })
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("GOMAXPROCS", "")
	proc := t.TempDir()
	testfiles.Write(t, filepath.Join(proc, "self", "mountinfo"), "")
	testfiles.Write(t, filepath.Join(proc, "self", "cgroup"), "0::/\n")
	sys := budget.System{Proc: proc, PID: os.Getpid(), Delegated: func(string) bool { return false }}
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	cfg := &config.Loaded{Config: config.Config{CgroupRoot: "/pods"}}
	if got := KeepToBudget(sys, cfg, log); got.Name != "" || debug.SetMemoryLimit(-1) != memory || out.Len() > 0 {
		t.Errorf("without a budget: %+v %s", got, out.String())
	}
	cfg.AgentMemoryBudget, cfg.AgentCPUBudget = "1Gi", "100m"
	got := KeepToBudget(sys, cfg, log)
	if got.Name != "" || got.Shims != nil || debug.SetMemoryLimit(-1) != 768<<20 || runtime.GOMAXPROCS(0) > 2 {
		t.Errorf("%+v, %d bytes, %d processors", got, debug.SetMemoryLimit(-1), runtime.GOMAXPROCS(0))
	}
	if said := out.String(); strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "no cgroups are mounted") {
		t.Errorf("it says %s", said)
	}
	if units.Budget(cfg.Budgets()) != "1024.0 MiB of memory and 0.10 processors" || units.Budget(budget.Limits{}) != "all the memory and all processors" {
		t.Error(units.Budget(cfg.Budgets()))
	}
}

func TestTheAgentGoesIntoTheCgroupThatIsConfigured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "proc", "self", "mountinfo"), strings.ReplaceAll("30 20 0:25 / @/memory rw - cgroup cgroup rw,memory\n31 20 0:26 / @/cpu rw - cgroup cgroup rw,cpu\n", "@", dir))
	testfiles.Write(t, filepath.Join(dir, "proc", "self", "cgroup"), "9:memory:/\n8:cpu:/\n")
	for _, file := range []string{"memory/agent/memory.limit_in_bytes", "cpu/agent/cpu.cfs_quota_us", "cpu/agent/cpu.cfs_period_us", "memory/agent/cgroup.procs", "cpu/agent/cgroup.procs"} {
		testfiles.Write(t, filepath.Join(dir, file), "")
	}
	sys := budget.System{Proc: filepath.Join(dir, "proc"), PID: 77, Delegated: func(string) bool { return false }}
	var out strings.Builder
	got := KeepToBudget(sys, &config.Loaded{Config: config.Config{CgroupRoot: "/pods", KubeletCgroups: "/agent"}}, slog.New(slog.NewTextHandler(&out, nil)))
	if b, err := os.ReadFile(filepath.Join(dir, "memory", "agent", "cgroup.procs")); got.Name != "/agent" || err != nil || string(b) != "77" || out.Len() > 0 {
		t.Errorf("%+v; %q, %v; it says %s", got, b, err, out.String())
	}
}
