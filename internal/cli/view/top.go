package view

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/internal/config"
	"monopod/internal/pause"
	"monopod/internal/program"
	"monopod/manifests"
)

// topOptions are the flags of `top`.
type topOptions struct {
	program.ClientFlags
	watch         bool
	containers    bool
	allNamespaces bool
	sortBy        string
}

// topPeriod is the refresh interval with --watch.
const topPeriod = 2 * time.Second

// TopCommand returns `monopod top`.
func (p Commands) TopCommand() *cobra.Command {
	o := &topOptions{}
	cmd := &cobra.Command{
		Use:   "top pods|containers|node [NAME]",
		Short: "Show CPU and memory usage",
		Long: "CPU is in millicores, averaged over the time since the previous measurement (0.1 to 120 s). Memory is the working set. `top node` shows shares of the " +
			"whole machine.",
		Example: "monopod top pods\nmonopod top containers web\nmonopod top node",
		Args:    program.RangeArgs(1, 2),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.top(cmd.Context(), o, args) },
	}
	o.Add(cmd.Flags())
	f := cmd.Flags()
	f.BoolVarP(&o.watch, "watch", "w", false, "repeat every "+topPeriod.String())
	f.BoolVar(&o.containers, "containers", false, "same as `top containers`")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all namespaces (default without NAME)")
	f.StringVar(&o.sortBy, "sort-by", "", "sort by `column`: cpu or memory (default: name)")
	return cmd
}

func (p Commands) top(ctx context.Context, o *topOptions, args []string) error {
	if o.sortBy != "" && o.sortBy != "cpu" && o.sortBy != "memory" {
		return program.Usagef("cannot sort by %q; one of cpu, memory", o.sortBy)
	}
	if o.allNamespaces {
		o.Namespace = ""
	}
	show, err := p.topic(o, args)
	if err != nil {
		return err
	}
	c := p.Client(&o.ClientFlags)
	for first := true; ; first = false {
		s, err := c.Usage(ctx)
		switch {
		case err != nil && ctx.Err() != nil && !first:
			return nil
		case err != nil:
			return err
		}
		if o.watch && program.IsTerminal(p.Raw()) {
			p.Out().Printf("\x1b[H\x1b[2J\x1b[3J")
		} else if !first {
			p.Out().Println()
		}
		if err := show(&s); err != nil || !o.watch {
			return err
		}
		if pause.For(ctx, topPeriod); ctx.Err() != nil {
			return nil
		}
	}
}

// topic returns the function that prints what the arguments request.
func (p Commands) topic(o *topOptions, args []string) (func(*statsapi.Summary) error, error) {
	var key *manifests.Key
	switch kind := args[0]; kind {
	case "node", "nodes", "no":
		if len(args) > 1 || o.containers {
			return nil, program.Usagef("top node takes neither NAME nor --containers")
		}
		return p.topNode, nil
	case "container", "containers":
		o.containers = true
		if len(args) == 2 {
			k, err := o.PodKey(args[1])
			if err != nil {
				return nil, err
			}
			key = &k
		}
	default:
		if len(args) == 1 && program.IsPodWord(kind) {
			break
		}
		if len(args) == 2 && !program.IsPodWord(kind) {
			return nil, program.Usagef("unknown resource %q%s", kind, program.AppendHint(config.DidYouMean(kind, []string{"pods", "containers", "node"})))
		}
		k, err := o.PodArg(args)
		if err != nil {
			return nil, err
		}
		key = &k
	}
	return func(s *statsapi.Summary) error { return p.topPods(o, s, key) }, nil
}

// topRow is the row of a pod or container.
type topRow struct {
	cells       []string
	cpu, memory uint64
}

// topPods prints the pods, or their containers.
func (p Commands) topPods(o *topOptions, s *statsapi.Summary, key *manifests.Key) error {
	head := []string{"NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"}
	if o.containers {
		head = []string{"NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"}
	}
	var rows []topRow
	for i := range s.Pods {
		pod := &s.Pods[i]
		ref := manifests.Key{Namespace: pod.PodRef.Namespace, Name: pod.PodRef.Name}
		if key != nil && *key != ref || key == nil && o.Namespace != "" && o.Namespace != ref.Namespace {
			continue
		}
		if !o.containers {
			rows = append(rows, newTopRow(pod.CPU, pod.Memory, ref.Namespace, ref.Name))
			continue
		}
		for j := range pod.Containers {
			c := &pod.Containers[j]
			rows = append(rows, newTopRow(c.CPU, c.Memory, ref.Namespace, ref.Name, c.Name))
		}
	}
	if len(rows) == 0 && key != nil {
		return fmt.Errorf("pod %s is not running", *key)
	}
	if len(rows) == 0 {
		p.Errs().Println("No pods found.")
		return nil
	}
	slices.SortStableFunc(rows, func(a, b topRow) int {
		switch o.sortBy {
		case "cpu":
			return cmp.Compare(b.cpu, a.cpu)
		case "memory":
			return cmp.Compare(b.memory, a.memory)
		}
		return slices.Compare(a.cells[:len(head)-2], b.cells[:len(head)-2])
	})
	t := p.Table()
	all := [][]string{head}
	for _, r := range rows {
		all = append(all, r.cells)
	}
	t.PrintAll(all)
	return nil
}

func newTopRow(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, names ...string) topRow {
	r := topRow{cpu: nanoCores(cpu), memory: workingSet(memory)}
	r.cells = append(names, milliCores(r.cpu), mebiBytes(r.memory))
	return r
}

func nanoCores(c *statsapi.CPUStats) uint64 {
	if c == nil || c.UsageNanoCores == nil {
		return 0
	}
	return *c.UsageNanoCores
}

func workingSet(m *statsapi.MemoryStats) uint64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return *m.WorkingSetBytes
}

// milliCores rounds up, as kubectl does, because a running container uses more than nothing.
func milliCores(nano uint64) string { return strconv.FormatUint((nano+999_999)/1_000_000, 10) + "m" }

func mebiBytes(n uint64) string { return strconv.FormatUint(n>>20, 10) + "Mi" }

// topNode prints the machine.
func (p Commands) topNode(s *statsapi.Summary) error {
	n := &s.Node
	cpu, memory := nanoCores(n.CPU), workingSet(n.Memory)
	total := memory
	if n.Memory != nil && n.Memory.AvailableBytes != nil {
		total += *n.Memory.AvailableBytes
	}
	t := p.Table()
	t.PrintAll([][]string{
		{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"},
		{n.NodeName, milliCores(cpu), percent(cpu, uint64(runtime.NumCPU())*1_000_000_000), mebiBytes(memory), percent(memory, total)},
	})
	return nil
}

func percent(part, whole uint64) string {
	if whole == 0 {
		return "<unknown>"
	}
	return strconv.FormatUint(part*100/whole, 10) + "%"
}
