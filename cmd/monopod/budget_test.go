package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"monopod/node/budget"
)

func TestABudgetIsKeptByTheCollectorWhereCgroupsCannotBeChanged(t *testing.T) { // not parallel: it is about this process
	memory, processors := debug.SetMemoryLimit(-1), runtime.GOMAXPROCS(0)
	t.Cleanup(func() { debug.SetMemoryLimit(memory); runtime.GOMAXPROCS(processors) })
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv("GOMAXPROCS", "")
	proc := t.TempDir()
	writeFile(t, filepath.Join(proc, "self", "mountinfo"), "")
	writeFile(t, filepath.Join(proc, "self", "cgroup"), "0::/\n")
	sys := budget.System{Proc: proc, PID: os.Getpid(), Delegated: func(string) bool { return false }}
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	cfg := &LoadedConfig{Config: Config{CgroupRoot: "/pods"}}
	if got := keepToBudget(sys, cfg, log); got.Name != "" || debug.SetMemoryLimit(-1) != memory || out.Len() > 0 {
		t.Errorf("without a budget: %+v %s", got, out.String())
	}
	cfg.AgentMemoryBudget, cfg.AgentCPUBudget = "1Gi", "100m"
	got := keepToBudget(sys, cfg, log)
	if got.Name != "" || cfg.ShimCgroups != nil || debug.SetMemoryLimit(-1) != 768<<20 || runtime.GOMAXPROCS(0) > 2 {
		t.Errorf("%+v, %d bytes, %d processors", got, debug.SetMemoryLimit(-1), runtime.GOMAXPROCS(0))
	}
	if said := out.String(); strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "no cgroups are mounted") {
		t.Errorf("it says %s", said)
	}
	if budgetText(cfg.budgets()) != "1024.0 MiB of memory and 0.10 processors" || budgetText(budget.Limits{}) != "all the memory and all processors" {
		t.Error(budgetText(cfg.budgets()))
	}
}
