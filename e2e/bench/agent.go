package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"monopod/e2e/testbed"
)

// agent is the monopod under test.
type agent struct {
	files

	b      *bench
	socket string
	log    string
	cmd    *exec.Cmd
}

func startAgent(ctx context.Context, b *bench) (*agent, error) {
	a := &agent{b: b, files: files{dir: filepath.Join(b.work, "manifests"), stamps: b.stamps}, socket: filepath.Join(b.state, "agent", "monopod.sock"), log: filepath.Join(b.work, "monopod.log")}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return nil, err
	}
	lines := []string{
		"staticPodPath: " + a.dir,
		"rootDirectory: " + filepath.Join(b.work, "root"),
		"stateDirectory: " + filepath.Join(b.state, "agent"),
		"podLogsDir: " + filepath.Join(b.work, "logs", "pods"),
		"preloadDirectories: [" + b.images + "]",
		"podCIDR: 10.211.0.0/24", "cgroupRoot: /monopod-bench", "evictionHard: {memory.available: 10Mi}",
	}
	if b.all {
		all, err := testbed.NewEverything(b.work, freePort)
		if err != nil {
			return nil, err
		}
		lines = append(lines, all.Lines...)
	}
	if err := os.WriteFile(a.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	f, err := os.Create(a.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a.cmd = exec.Command(filepath.Join(b.bin, "monopod"), "run", "--config", a.config())
	a.cmd.Stdout, a.cmd.Stderr = f, f
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err = command(ctx, b.bin, a.socket, "get", "pods"); err == nil {
			return a, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("monopod does not answer: %w\n%s", err, a.logTail()), a.stop())
}

// freePort returns an unused port, and 1, which is unused as well, if the kernel has none.
func freePort() int32 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func (a *agent) config() string { return filepath.Join(a.b.work, "config.yaml") }

// putOrdered writes a pod with an init container, two sidecars and three containers, and returns the time just
// before. Each of them writes a stamp: name-0 the init container, name-1 and so on the others.
func (a *agent) putOrdered(name, network string) time.Duration {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  hostNetwork: %t\n  terminationGracePeriodSeconds: 2\n  initContainers:\n",
		name, network == "host")
	for i := range 6 {
		if i == 3 {
			b.WriteString("  containers:\n")
		}
		once, policy := "", ""
		switch i {
		case 0:
			once = ", once"
		case 1, 2:
			policy = "restartPolicy: Always, "
		}
		fmt.Fprintf(&b, "  - {name: c%d, image: %q, %sargs: [/out, %s-%d%s], volumeMounts: [{name: out, mountPath: /out}]}\n",
			i, imageName, policy, name, i, once)
	}
	fmt.Fprintf(&b, "  volumes: [{name: out, hostPath: {path: %s, type: Directory}}]\n", a.b.stamps)
	return a.write(name, b.String())
}

// stop removes all pods, stops the agent and removes its network.
func (a *agent) stop() error {
	a.clear()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		out, err := command(ctx, a.b.bin, a.socket, "get", "pods", "-A", "-o", "name")
		if err != nil || len(strings.TrimSpace(string(out))) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	err := a.cmd.Process.Signal(syscall.SIGTERM)
	err = errors.Join(err, a.cmd.Wait())
	if out, cerr := command(ctx, a.b.bin, a.socket, "cleanup", "--config", a.config()); cerr != nil {
		err = errors.Join(err, fmt.Errorf("cleanup: %w: %s", cerr, out))
	}
	return err
}

// held counts a kind of kernel object that pods hold.
type held struct {
	what  string
	count func() int
}

// holds counts links and cgroups of the host, and mounts, which take longest to count.
func (a *agent) holds() []held {
	return []held{{"links", links}, {"cgroups", cgroups}, {"mounts", a.mounts}}
}

func links() int {
	all, _ := os.ReadDir("/sys/class/net")
	return len(all)
}

func cgroups() (n int) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"} {
		_ = filepath.WalkDir(filepath.Join(dir, "monopod-bench"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "pod") {
				n++
			}
			return nil // what goes away meanwhile is gone
		})
	}
	return n
}

func (a *agent) mounts() (n int) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, a.b.state) || strings.Contains(line, a.b.work) {
			n++
		}
	}
	return n
}

// before counts these objects without pods.
func (a *agent) before() (all []int) {
	for _, h := range a.holds() {
		all = append(all, h.count())
	}
	return all
}

// clean waits until resource use is back to what it was before the pods.
func (a *agent) clean(before []int) error {
	var late error
	for end := monotonic() + time.Minute; monotonic() < end; time.Sleep(10 * time.Millisecond) {
		late = nil
		for i, h := range a.holds() { // looking costs time, too: not at the next before this is well
			if n := h.count(); n > before[i] {
				late = fmt.Errorf("before the pods there were %d %s, now %d", before[i], h.what, n)
				break
			}
		}
		if late == nil {
			return nil
		}
	}
	return late
}

// logTail implements subject.
func (a *agent) logTail() string { return tail(a.log) }

// rss returns the resident memory of the agent with its embedded containerd, in MiB.
func (a *agent) rss() float64 {
	return float64(sizeIn(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid), "VmRSS:")) / (1 << 20)
}

// cpu returns the CPU time used by the agent.
func (a *agent) cpu() time.Duration { return processorTime([]int{a.cmd.Process.Pid}) }
