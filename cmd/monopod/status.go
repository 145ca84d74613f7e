package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/boottime"
	"monopod/node"
	"monopod/node/budget"
)

// cost is what this process and its shims cost.
func (a *App) cost() node.Agent {
	now := boottime.Since()
	out := node.Agent{PID: os.Getpid(), Version: version(), Conditions: a.strain.conditions(), Warnings: a.cfg.ProviderWarnings()}
	out.Agent.Add("/proc", out.PID, now)
	for _, pid := range budget.Children("/proc", shimName, a.cfg.StateDirectory) {
		out.Shims.Add("/proc", pid, now)
	}
	out.Cgroup, out.Budget = a.place.Name, a.place.Limits
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		out.MemoryLimitBytes = limit
	}
	return out
}

func (p *program) statusCommand() *cobra.Command {
	o := &clientFlags{}
	output := ""
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what monopod itself costs the machine, and what the machine is short of",
		Long: "Costs are memory, wake-ups and bytes written to disk, of monopod, with the containerd inside it, and of the shims that look after containers. Wake-ups are voluntary context\n" +
			"switches of the threads there are; numbers of an hour are of all processes together, means since they were started.\n\n" +
			"Conditions are those of a Kubernetes node: MemoryPressure, DiskPressure and PIDPressure. While one of them is True, pods may be evicted,\n" +
			"and new ones wait.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOfOutputs(output, "json", "yaml"); err != nil {
				return err
			}
			return p.status(cmd.Context(), p.client(o), output)
		},
	}
	o.addSocket(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: json or yaml")
	return cmd
}

func (p *program) status(ctx context.Context, c *node.Client, output string) error {
	a, err := c.Agent(ctx)
	if err != nil {
		return err
	}
	if output != "" {
		return p.printObject(a, output)
	}
	rows := [][]string{{"", "PROCESSES", "MEMORY", "WAKE-UPS/H", "WRITTEN", "WRITTEN/H", "AGE"}}
	for _, r := range []struct {
		name string
		cost budget.Cost
	}{{"monopod", a.Agent}, {"shims", a.Shims}} {
		age := "-"
		if r.cost.Processes > 0 {
			age = duration.HumanDuration(r.cost.Running / time.Duration(r.cost.Processes))
		}
		rows = append(rows, []string{
			r.name, fmt.Sprint(r.cost.Processes), mebibytes(float64(r.cost.ResidentBytes)), fmt.Sprintf("%.0f", r.cost.PerHour(r.cost.WakeUps)),
			mebibytes(float64(r.cost.WrittenBytes)), mebibytes(r.cost.PerHour(r.cost.WrittenBytes)), age,
		})
	}
	p.table().printAll(rows)
	if a.Cgroup != "" {
		p.out().Printf("\nmonopod has the cgroup %s, with %s.\n", a.Cgroup, budgetText(a.Budget))
	}
	if len(a.Conditions) > 0 {
		p.out().Println()
		rows = [][]string{{"CONDITION", "STATUS", "SINCE", "MESSAGE"}}
		for _, c := range a.Conditions {
			rows = append(rows, []string{string(c.Type), string(c.Status), ago(c.LastTransitionTime.Time, time.Now()), c.Message})
		}
		p.table().printAll(rows)
	}
	for _, w := range a.Warnings {
		p.out().Printf("\nwarning: %s\n", w)
	}
	if a.MemoryLimitBytes > 0 {
		p.out().Printf("\nIts garbage collector tries to do with %s of memory (agentMemoryBudget, or GOMEMLIMIT).\n", mebibytes(float64(a.MemoryLimitBytes)))
	}
	return nil
}

func mebibytes(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }
