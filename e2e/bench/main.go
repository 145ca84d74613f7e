// bench measures what users notice: the time from writing a manifest until its process runs, and the cost of the agent.
//
// The workload itself records its start with CLOCK_MONOTONIC. Each start is compared with the floor of the same run: the same container
// created with raw containerd client calls. Times depend on the machine, ratios hardly do. With -peers, the same pods are measured on what people
// use today.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"monopod/internal/pause"
)

const (
	// calm is the time after which a subject has cleaned up after its pods.
	calm = 10 * time.Second
	// watched is the time for which a subject is watched while nothing happens.
	watched = 20 * time.Second
)

const imageName = "monopod.dev/stamp:1"

// orderedTarget is the limit for the median pod with an init container, two sidecars and three containers, in ms.
const orderedTarget = 450.0

// bench is one run: directories, the agent under test, and the floor.
type bench struct {
	trial

	bin    string
	work   string
	state  string
	images string
	reps   int
	rounds int
	only   string
	all    bool
	agent  *agent
	floor  *floor
	result map[string]float64
	// samples are measurements by network and figure, such as pod_start. The results are their medians.
	samples map[string][]time.Duration
}

func main() {
	b := &bench{result: map[string]float64{}, samples: map[string][]time.Duration{}}
	flag.StringVar(&b.bin, "bin", "bin", "directory with monopod, the shim and cni/")
	flag.StringVar(&b.images, "images", ".cache/bench/images", "directory with the archive of "+imageName)
	flag.IntVar(&b.reps, "reps", 11, "repetitions of the single-pod figures; the median counts")
	flag.IntVar(&b.rounds, "rounds", 5, "repetitions of the bulk figures; the median counts")
	flag.IntVar(&b.pods, "pods", 30, "pods of the bulk figures")
	flag.StringVar(&b.only, "only", "", "measure only this: single, ordered or bulk")
	flag.BoolVar(&b.all, "everything", false, "configure nearly all there is: an API server, a collector and a source that do not answer, ports, rules, thresholds")
	out := flag.String("o", "", "also write the figures to this file, as JSON")
	peers := flag.Bool("peers", false, "compare with a kubelet and podman instead, each alone in namespaces of its own")
	peer := flag.String("peer", "", "measure only this one, in these namespaces")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	run := b.run
	switch {
	case *peers:
		run = b.compare
	case *peer != "":
		run = func(ctx context.Context, out string) error { return b.measurePeer(ctx, *peer, out) }
	}
	if err := run(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// prepare makes the directories of a run, and returns the function that removes them.
func (b *bench) prepare() (remove func(), err error) {
	remove = func() { _, _ = os.RemoveAll(b.work), os.RemoveAll(b.state) }
	for _, p := range []*string{&b.bin, &b.images} {
		if *p, err = filepath.Abs(*p); err != nil {
			return remove, err
		}
	}
	if b.work, err = os.MkdirTemp("", "monopod-bench-"); err != nil {
		return remove, err
	}
	if b.state, err = os.MkdirTemp("/run", "monopod-bench-"); err != nil {
		return remove, err
	}
	b.stamps = filepath.Join(b.work, "stamps")
	return remove, os.MkdirAll(b.stamps, 0o777)
}

func (b *bench) run(ctx context.Context, out string) (err error) {
	remove, err := b.prepare()
	defer remove()
	if err != nil {
		return err
	}
	floor, stop, err := newFloor(ctx, b)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	defer stop()
	b.floor = floor
	if b.agent, err = startAgent(ctx, b); err != nil {
		return err
	}
	b.subject = b.agent
	defer func() { err = firstOf(err, b.agent.stop()) }()
	if err := b.measure(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, b.agent.logTail())
	}
	b.print()
	return b.write(out)
}

// write writes the results to a file, if it is named.
func (b *bench) write(out string) error {
	if out == "" {
		return nil
	}
	j, err := json.MarshalIndent(b.result, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(j, '\n'), 0o644)
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (b *bench) measure(ctx context.Context) error {
	time.Sleep(2 * time.Second) // the agent has just started; idle means idle
	b.result["rss_idle_mib"] = b.agent.rss()
	for _, part := range []struct {
		name, what string
		rounds     int
		run        func(context.Context, string) error
	}{
		{"single", "single pods", 1, b.single},
		{"ordered", "pods with init containers", 1, b.ordered},
		{"bulk", fmt.Sprintf("%d pods", b.pods), b.rounds, b.bulk},
		{"bulk", "idle", 1, b.idle},
	} {
		if b.only != "" && b.only != part.name {
			continue
		}
		for range part.rounds { // in turn, so that both networks see the same machine
			for _, network := range []string{"host", "pod"} {
				if err := part.run(ctx, network); err != nil {
					return fmt.Errorf("%s on the %s network: %w", part.what, network, err)
				}
			}
		}
	}
	b.medians()
	return nil
}

// sample adds a measurement of a figure.
func (b *bench) sample(network, figure string, d time.Duration) {
	key := network + "_" + figure
	b.samples[key] = append(b.samples[key], d)
}

// medians sets the results of all figures that have samples.
func (b *bench) medians() {
	for key, s := range b.samples {
		slices.Sort(s)
		b.result[key+"_ms"], b.result[key+"_best_ms"] = ms(s[len(s)/2]), ms(s[0])
	}
}

// single measures pods one at a time, alternating with the floor, so that both see the same load of the machine.
func (b *bench) single(ctx context.Context, network string) error {
	add := func(figure string, d time.Duration) { b.sample(network, figure, d) }
	for i := range b.reps {
		f, err := b.floor.run(ctx, network == "pod")
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		add("floor", f)
		if err := b.life(fmt.Sprintf("s%s%d", network, i), network, add); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// ordered measures pods with an init container, two sidecars and three containers, until the last one runs.
func (b *bench) ordered(ctx context.Context, network string) error {
	for i := range b.reps {
		name := fmt.Sprintf("o%s%d", network, i)
		t0 := b.agent.putOrdered(name, network)
		var last time.Duration
		for c := range 6 {
			at, err := stamp(b.stamps, fmt.Sprintf("%s-%d", name, c))
			if err != nil {
				return err
			}
			last = max(last, at)
		}
		b.sample(network, "ordered", last-t0)
		time.Sleep(300 * time.Millisecond)
		b.agent.drop(name)
		for c := range 6 {
			if err := gone(fmt.Sprintf("%s-%d", name, c)); err != nil {
				return err
			}
		}
		time.Sleep(300 * time.Millisecond)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// bulk starts many pods at once and removes them at once.
func (b *bench) bulk(ctx context.Context, network string) error {
	if b.pods == 0 {
		return nil
	}
	before := b.agent.before()
	started, err := b.startAll(network)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	running := workload("n" + network)
	t0 := b.dropAll(network)
	if err := ended(running); err != nil {
		return err
	}
	if err := gone("n" + network); err != nil {
		return err
	}
	removed := monotonic() - t0
	if err := b.agent.clean(before); err != nil {
		return err
	}
	for what, d := range map[string]time.Duration{"start": started, "remove": removed, "clean": monotonic() - t0} {
		b.sample(network, fmt.Sprintf("%s%d", what, b.pods), d)
	}
	time.Sleep(2 * time.Second)
	return ctx.Err()
}

// idle watches the agent for 20 seconds with all pods running and nothing happening.
func (b *bench) idle(ctx context.Context, network string) error {
	if b.pods == 0 {
		return nil
	}
	if _, err := b.startAll(network); err != nil {
		return err
	}
	if !pause.For(ctx, calm/2) {
		return ctx.Err()
	}
	c0 := b.agent.cpu()
	if !pause.For(ctx, watched) {
		return ctx.Err()
	}
	b.result[network+"_cpu_idle_ms_per_s"] = float64(b.agent.cpu()-c0) / float64(time.Millisecond) / watched.Seconds()
	b.result[fmt.Sprintf("%s_rss%d_mib", network, b.pods)] = b.agent.rss()
	b.dropAll(network)
	time.Sleep(3 * time.Second)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (b *bench) print() {
	r := b.result
	n := b.pods
	show := func(key, format string, args ...any) { // what was measured
		if _, measured := r[key]; measured {
			fmt.Printf(format, args...)
		}
	}
	fmt.Printf("%-44s %12s %12s %8s\n", "", "monopod", "floor", "ratio")
	for _, net := range []string{"pod", "host"} {
		start, floor := r[net+"_start_ms"], r[net+"_floor_ms"]
		show(net+"_start_ms", "%-44s %9.1f ms %9.1f ms %7.2fx\n", "manifest dropped -> process runs, "+net+" network", start, floor, start/floor)
	}
	for _, net := range []string{"pod", "host"} {
		all, floor := r[fmt.Sprintf("%s_start%d_ms", net, n)], r[net+"_floor_ms"]*float64(n)
		show(fmt.Sprintf("%s_start%d_ms", net, n), "%-44s %9.0f ms %9.0f ms %7.2fx\n", fmt.Sprintf("%d pods at once, %s network", n, net), all, floor, all/floor)
	}
	for _, net := range []string{"pod", "host"} {
		verdict := "is met"
		if r[net+"_ordered_ms"] > orderedTarget {
			verdict = "IS MISSED"
		}
		show(net+"_ordered_ms", "%-44s %9.1f ms  best %.1f, the target of %.0f ms %s\n", "1 init, 2 sidecars, 3 containers, "+net+" network",
			r[net+"_ordered_ms"], r[net+"_ordered_best_ms"], orderedTarget, verdict)
		show(net+"_edit_ms", "%-44s %9.1f ms\n", "edit one container -> new process, "+net+" network", r[net+"_edit_ms"])
		show(net+"_crash_ms", "%-44s %9.1f ms\n", "kill -9 -> runs again, "+net+" network", r[net+"_crash_ms"])
		show(net+"_remove_ms", "%-44s %9.1f ms\n", "manifest removed -> process gone, "+net+" network", r[net+"_remove_ms"])
		show(fmt.Sprintf("%s_remove%d_ms", net, n), "%-44s %9.0f ms\n", fmt.Sprintf("%d manifests removed -> all gone, %s network", n, net), r[fmt.Sprintf("%s_remove%d_ms", net, n)])
		show(fmt.Sprintf("%s_clean%d_ms", net, n), "%-44s %9.0f ms\n", fmt.Sprintf("%d manifests removed -> all clean, %s network", n, net), r[fmt.Sprintf("%s_clean%d_ms", net, n)])
	}
	show("rss_idle_mib", "%-44s %9.1f MiB\n", "resident memory, idle", r["rss_idle_mib"])
	for _, net := range []string{"pod", "host"} {
		show(fmt.Sprintf("%s_rss%d_mib", net, n), "%-44s %9.1f MiB\n", fmt.Sprintf("resident memory, %d pods, %s network", n, net), r[fmt.Sprintf("%s_rss%d_mib", net, n)])
		show(net+"_cpu_idle_ms_per_s", "%-44s %9.2f ms/s\n", fmt.Sprintf("CPU, idle with %d pods, %s network", n, net), r[net+"_cpu_idle_ms_per_s"])
	}
}

// command runs a client command of the agent under test.
func command(ctx context.Context, bin, socket string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, filepath.Join(bin, "monopod"), args...)
	c.Env = append(os.Environ(), "MONOPOD_SOCKET="+socket)
	return c.Output()
}
