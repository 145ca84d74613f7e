package view

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/program"
	"monopod/internal/units"
	"monopod/node/budget"
	"monopod/node/localclient"
)

// StatusCommand returns `monopod status`.
func (p Commands) StatusCommand() *cobra.Command {
	o := &program.ClientFlags{}
	output := ""
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the resource usage of monopod",
		Long: "Shows memory, wake-ups and bytes written to disk of monopod, containerd inside it included, and of its shims. Wake-ups are voluntary context switches; " +
			"values per hour are means of all processes since they started.\n\n" +
			"Also shows the conditions MemoryPressure, DiskPressure and PIDPressure: while one is True, pods may be evicted and new ones wait; and the " +
			"pod network in use.",
		Example: "monopod status\nmonopod status -o json",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := program.OneOfOutputs(output, "json", "yaml"); err != nil {
				return err
			}
			return p.status(cmd.Context(), p.Client(o), output)
		},
	}
	o.AddSocket(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: json or yaml")
	return cmd
}

func (p Commands) status(ctx context.Context, c *localclient.Client, output string) error {
	a, err := c.Agent(ctx)
	if err != nil {
		return err
	}
	if output != "" {
		return p.PrintObject(a, output)
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
			r.name, fmt.Sprint(r.cost.Processes), units.Mebibytes(float64(r.cost.ResidentBytes)), fmt.Sprintf("%.0f", r.cost.PerHour(r.cost.WakeUps)),
			units.Mebibytes(float64(r.cost.WrittenBytes)), units.Mebibytes(r.cost.PerHour(r.cost.WrittenBytes)), age,
		})
	}
	p.Table().PrintAll(rows)
	if a.Cgroup != "" {
		p.Out().Printf("\nmonopod runs in cgroup %s, with %s.\n", a.Cgroup, units.Budget(a.Budget))
	}
	if a.Network != "" {
		p.Out().Printf("\nThe pod network is %s.\n", a.Network)
	}
	if len(a.Conditions) > 0 {
		p.Out().Println()
		rows = [][]string{{"CONDITION", "STATUS", "SINCE", "MESSAGE"}}
		for _, c := range a.Conditions {
			rows = append(rows, []string{string(c.Type), string(c.Status), units.Ago(c.LastTransitionTime.Time, time.Now()), c.Message})
		}
		p.Table().PrintAll(rows)
	}
	for _, w := range a.Warnings {
		p.Out().Printf("\nwarning: %s\n", w)
	}
	if a.MemoryLimitBytes > 0 {
		p.Out().Printf("\nThe memory target of its garbage collector is %s (agentMemoryBudget, or GOMEMLIMIT).\n", units.Mebibytes(float64(a.MemoryLimitBytes)))
	}
	return nil
}
