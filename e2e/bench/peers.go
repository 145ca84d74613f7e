package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/pause"
)

// peer is a subject that is compared, and what starts it.
type peer struct {
	name  string
	start func(context.Context, *bench) (subject, error)
}

// peers returns all of them, in the order of the columns.
func peers() []peer {
	return []peer{
		{"kubelet", startKubelet},
		{"podman", startPodman},
		{"monopod", func(ctx context.Context, b *bench) (subject, error) { return startAgent(ctx, b) }},
	}
}

// alone runs a command in new namespaces, like on a machine of its own; only cgroups are shared. The directories that peers use whatever their
// configuration says are empty, and there is a default route, which a kubelet looks for. The shell stays as process 1 and reaps orphans.
const alone = `set -e
for d in /run /dev/shm /var/log /var/lib; do mount -t tmpfs tmpfs $d; done
ip link set lo up && ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up
ip address add 192.0.2.1/24 dev up0 && ip route add default via 192.0.2.2
"$@"; exit $?`

// compare measures each peer, and prints the table of README.
func (b *bench) compare(ctx context.Context, out string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "monopod-peers-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all := map[string]map[string]float64{}
	for _, p := range peers() {
		fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), p.name)
		file := filepath.Join(dir, p.name+".json")
		c := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", alone, "sh",
			self, "-peer", p.name, "-bin", b.bin, "-images", b.images, "-pods", strconv.Itoa(b.pods), "-reps", strconv.Itoa(b.reps), "-rounds", strconv.Itoa(b.rounds), "-o", file)
		c.Env = append(os.Environ(), "TMPDIR="+dir)
		c.Stderr = os.Stderr
		err := c.Run()
		removeCgroups("kubepods", "libpod_parent")
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		figures := map[string]float64{}
		if err := json.Unmarshal(text, &figures); err != nil {
			return err
		}
		all[p.name] = figures
		for figure, v := range figures {
			b.result[p.name+"_"+figure] = v
		}
	}
	if err := b.table(ctx, all); err != nil {
		return err
	}
	return b.write(out)
}

// removeCgroups removes the empty cgroups that peers leave.
func removeCgroups(names ...string) {
	for _, name := range names {
		v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
		for _, top := range append(v1, "/sys/fs/cgroup/"+name) {
			var all []string
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil // what goes away meanwhile is gone
			})
			for _, dir := range slices.Backward(all) {
				_ = os.Remove(dir) // one that is in use stays
			}
		}
	}
}

// measurePeer measures one peer in these namespaces.
func (b *bench) measurePeer(ctx context.Context, name, out string) (err error) {
	remove, err := b.prepare()
	defer remove()
	if err != nil {
		return err
	}
	all := peers()
	i := slices.IndexFunc(all, func(p peer) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("there is no peer %s", name)
	}
	if b.subject, err = all[i].start(ctx, b); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	for _, network := range []string{"pod", "host"} {
		for i := range b.reps {
			if err := b.life(fmt.Sprintf("s%s%d", network, i), network, func(figure string, d time.Duration) { b.sample(network, figure, d) }); err != nil {
				return fmt.Errorf("%w\n%s", err, b.logTail())
			}
		}
		for range b.rounds {
			if err := b.many(ctx, network); err != nil {
				return fmt.Errorf("%w\n%s", err, b.logTail())
			}
		}
	}
	b.medians()
	return b.write(out)
}

// many starts many pods at once, watches them while nothing happens, and removes them at once.
func (b *bench) many(ctx context.Context, network string) error {
	started, err := b.startAll(network)
	if err != nil {
		return err
	}
	b.sample(network, fmt.Sprintf("start%d", b.pods), started)
	if !pause.For(ctx, calm/2) {
		return ctx.Err()
	}
	before := processorTime(others())
	if !pause.For(ctx, watched) {
		return ctx.Err()
	}
	running := others()
	b.result[network+"_cpu_idle_ms_per_s"] = float64(processorTime(running)-before) / float64(time.Millisecond) / watched.Seconds()
	b.result[network+"_pss_mib"] = float64(memoryOf(running)) / (1 << 20)
	t0 := b.dropAll(network)
	if err := gone("n" + network); err != nil {
		return err
	}
	b.sample(network, fmt.Sprintf("remove%d", b.pods), monotonic()-t0)
	pause.For(ctx, calm)
	return ctx.Err()
}

// others returns the processes of these namespaces that are neither the benchmark nor workloads.
func others() (pids []int) {
	skip := append(workload(""), 1, os.Getpid())
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, f := range files {
		if pid, err := strconv.Atoi(filepath.Base(f)); err == nil && !slices.Contains(skip, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// memoryOf returns the memory of processes in bytes, of which what several share is counted once.
func memoryOf(pids []int) (sum int64) {
	for _, pid := range pids {
		sum += sizeIn(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	}
	return sum
}

// sizeIn returns a size in a file of /proc, in bytes; 0 if the process has ended.
func sizeIn(file, field string) int64 {
	text, _ := os.ReadFile(file)
	for line := range strings.SplitSeq(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// processorTime returns the CPU time of processes: the sum over their threads, with nanosecond resolution.
func processorTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			if fields := strings.Fields(string(text)); len(fields) > 0 {
				ns, _ := strconv.ParseInt(fields[0], 10, 64)
				sum += time.Duration(ns)
			}
		}
	}
	return sum
}

// table prints what was measured, on what, and when.
func (b *bench) table(ctx context.Context, all map[string]map[string]float64) error {
	version := func(name string, args ...string) (string, error) {
		text, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return strings.TrimSpace(strings.SplitN(string(text), "\n", 2)[0]), nil
	}
	tools := filepath.Join(b.bin, "peers")
	kubelet, err1 := version(filepath.Join(tools, "kubelet"), "--version")
	containerd, err2 := version(filepath.Join(tools, "containerd"), "--version")
	podman, err3 := version("podman", "--version")
	monopod, err4 := version(filepath.Join(b.bin, "monopod"), "version")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	fmt.Printf("%s, %s.\n\n", time.Now().Format(time.DateOnly), machine())
	fmt.Printf("- %s, %s\n- %s, `kube play`\n- %s\n\n", kubelet, containerd, podman, monopod)
	fmt.Println("| pod/host network | kubelet + containerd | podman kube play | monopod |\n|---|---|---|---|")
	for _, row := range []struct{ what, figure, unit string }{
		{"manifest to running process", "start_ms", "s"},
		{fmt.Sprintf("%d manifests at once", b.pods), fmt.Sprintf("start%d_ms", b.pods), "s"},
		{"edit to new process", "edit_ms", "s"},
		{"crash to running again", "crash_ms", "s"},
		{"removed to gone", "remove_ms", "s"},
		{fmt.Sprintf("%d removed", b.pods), fmt.Sprintf("remove%d_ms", b.pods), "s"},
		{fmt.Sprintf("memory with %d pods", b.pods), "pss_mib", "MiB"},
		{fmt.Sprintf("CPU, idle with %d pods", b.pods), "cpu_idle_ms_per_s", "ms/s"},
	} {
		fmt.Printf("| %s |", row.what)
		for _, p := range peers() {
			pod, host := amount(all[p.name]["pod_"+row.figure], row.unit), amount(all[p.name]["host_"+row.figure], row.unit)
			fmt.Printf(" %s/%s %s |", pod, host, row.unit)
		}
		fmt.Println()
	}
	fmt.Printf("\nMedians of %d pods, and of %d times %d pods. Memory (PSS) and CPU are those of all processes but the workloads, in the last of these times.\n", b.reps, b.rounds, b.pods)
	return nil
}

// amount formats a figure without its unit; seconds are measured in milliseconds.
func amount(v float64, unit string) string {
	switch {
	case unit == "s" && v < 100_000:
		return strconv.FormatFloat(v/1000, 'g', 2, 64)
	case unit == "s":
		return fmt.Sprintf("%.0f", v/1000)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// machine describes this machine.
func machine() string {
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	var u unix.Utsname
	var info unix.Sysinfo_t
	_, _ = unix.Uname(&u), unix.Sysinfo(&info)
	return fmt.Sprintf("%d cores (%s), %d GiB, Linux %s", runtime.NumCPU(), model, info.Totalram*uint64(info.Unit)>>30, unix.ByteSliceToString(u.Release[:]))
}
