//go:build e2e

package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

// machine is a bundle directory with a busybox root file system, and what a sandbox needs beside it.
type machine struct {
	dir, rootfs, parent string
	host                spec.Host
}

// newMachine prepares everything but the spec.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("running containers needs root")
	}
	dir := t.TempDir()
	m := &machine{dir: dir, rootfs: filepath.Join(dir, "rootfs"), parent: fmt.Sprintf("/monopod-spec-%d-%d", os.Getpid(), time.Now().UnixNano())}
	t.Cleanup(func() { removeCgroups(t, m.parent) })
	for _, d := range []string{"bin", "etc", "tmp", "data", "srv"} {
		must(t, os.MkdirAll(filepath.Join(m.rootfs, d), 0o755))
	}
	busybox, err := os.ReadFile("/bin/busybox")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(m.rootfs, "bin/busybox"), busybox, 0o755))
	for _, tool := range []string{"sh", "cat", "env", "id", "ls", "touch", "mknod", "head", "readlink", "hostname", "grep", "sleep", "stat"} {
		must(t, os.Symlink("busybox", filepath.Join(m.rootfs, "bin", tool)))
	}
	for name, text := range map[string]string{"hosts": "10.9.8.7 here\n", "hostname": "web\n", "resolv.conf": "nameserver 192.0.2.1\n", "termination-log": ""} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		must(t, os.Chmod(filepath.Join(dir, name), 0o666))
	}
	for _, d := range []string{"shm", "volume", "state"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
		must(t, os.Chmod(filepath.Join(dir, d), 0o777))
	}
	m.host = spec.Host{
		NodeName: "node1", NodeIPs: []string{"192.0.2.10"}, Cgroups: spec.Cgroups{Root: m.parent}, MemoryBytes: 8 << 30, MilliCPU: 2000,
		Capabilities: boundingSet(t), SwapAccounting: exists("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"),
		MinOOMScoreAdj: -1000,
	}
	if !slices.Contains(m.host.Capabilities, "CAP_SYS_RESOURCE") {
		score, err := os.ReadFile("/proc/self/oom_score_adj")
		must(t, err)
		m.host.MinOOMScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(score)))
		must(t, err)
	}
	return m
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// capabilityOrder is the kernel's numbering.
const capabilityOrder = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE" +
	" NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT" +
	" SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP" +
	" MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"

// capabilitySet turns a mask of /proc/self/status into sorted names.
func capabilitySet(t *testing.T, mask string) []string {
	t.Helper()
	bits, err := strconv.ParseUint(mask, 16, 64)
	must(t, err)
	names := []string{}
	for i, n := range strings.Fields(capabilityOrder) {
		if bits&(1<<i) != 0 {
			names = append(names, capPrefix+n)
		}
	}
	slices.Sort(names)
	return names
}

func boundingSet(t *testing.T) []string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	return capabilitySet(t, statusField(string(status), "CapBnd"))
}

// statusField reads one line of a /proc/<pid>/status text, its fields joined by single blanks.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return ""
}

// removeCgroups removes the tree that a test made, in every hierarchy.
func removeCgroups(t *testing.T, parent string) {
	t.Helper()
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + parent)
	if exists("/sys/fs/cgroup" + parent) {
		roots = append(roots, "/sys/fs/cgroup"+parent)
	}
	for _, root := range roots {
		var dirs []string
		_ = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, d := range dirs {
			if err := os.Remove(d); err != nil {
				t.Errorf("remove cgroup: %v", err)
			}
		}
	}
}

// pin makes net, ipc and uts namespaces held by files, as runner/ctrd does.
func (m *machine) pin(t *testing.T) spec.Sandbox {
	t.Helper()
	files := map[string]string{}
	for _, n := range []string{"net", "ipc", "uts"} {
		files[n] = filepath.Join(m.dir, "ns-"+n)
		must(t, os.WriteFile(files[n], nil, 0o600))
	}
	out, err := exec.Command("unshare", "--net="+files["net"], "--ipc="+files["ipc"], "--uts="+files["uts"], "hostname", "web").CombinedOutput()
	if err != nil {
		t.Fatalf("pin namespaces: %v: %s", err, out)
	}
	t.Cleanup(func() {
		for _, f := range files {
			if err := exec.Command("umount", f).Run(); err != nil {
				t.Errorf("unpin %s: %v", f, err)
			}
		}
	})
	s := m.sandbox()
	s.NetNS, s.IPCNS, s.UTSNS, s.Hostname, s.IPs = files["net"], files["ipc"], files["uts"], "web", []string{"10.9.8.7"}
	return s
}

// sandbox is one in the host's namespaces.
func (m *machine) sandbox() spec.Sandbox {
	name, _ := os.Hostname()
	file := func(n string) string { return filepath.Join(m.dir, n) }
	return spec.Sandbox{
		Hostname: name, IPs: []string{"192.0.2.10"}, ShmPath: file("shm"), HostsPath: file("hosts"), HostnamePath: file("hostname"),
		ResolvConfPath: file("resolv.conf"), TerminationLogPath: file("termination-log"),
	}
}

// input is a container that runs a script and reads its volumes from the bundle.
func (m *machine) input(sandbox spec.Sandbox, script string, edit func(*corev1.Pod, *corev1.Container)) spec.Input {
	pod := spectest.Pod(edit)
	in := spectest.Input(pod, "app")
	pod.Spec.Containers[0].Command = []string{"/bin/sh", "-c", script}
	in.Host, in.Sandbox, in.ID = m.host, sandbox, "c1"
	for name := range in.Volumes {
		in.Volumes[name] = spec.Volume{HostPath: filepath.Join(m.dir, "volume")}
	}
	return in
}

// ociRuntime runs bundles; its command line may be wrapped.
type ociRuntime struct {
	name    string
	command []string
}

// runtimes are runc, and crun in a mount namespace without the unified hierarchy, which it refuses beside v1.
func runtimes(t *testing.T) []ociRuntime {
	t.Helper()
	var all []ociRuntime
	for _, name := range []string{"runc", "crun"} {
		path, err := exec.LookPath(name)
		must(t, err)
		r := ociRuntime{name, []string{path}}
		if name == "crun" && exists("/sys/fs/cgroup/unified/cgroup.procs") {
			r.command = []string{"unshare", "-m", "sh", "-c", "umount /sys/fs/cgroup/unified && exec " + path + ` "$@"`, "crun"}
		}
		all = append(all, r)
	}
	return all
}

// result is what was seen of a container.
type result struct {
	// sections of the output, by the words after ##.
	sections map[string]string
	// cgroup holds limits read from the host between create and start.
	cgroup map[string]string
}

// run builds a container's spec, runs it and waits for its end.
func (m *machine) run(t *testing.T, r ociRuntime, in spec.Input) result {
	t.Helper()
	s, err := Spec(in)
	must(t, err)
	return m.runSpec(t, r, s)
}

// runSpec creates and starts a container and waits for its end.
func (m *machine) runSpec(t *testing.T, r ociRuntime, s *specs.Spec) result {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(m.dir, "config.json"), text, 0o600))
	id := strings.Trim(m.parent, "/") + "-" + r.name
	reader, writer, err := os.Pipe()
	must(t, err)
	defer reader.Close()
	err = r.call(m, writer, "create", "--bundle", m.dir, id)
	writer.Close()
	if err != nil {
		out, _ := io.ReadAll(reader)
		t.Fatalf("%v\n%s", err, out)
	}
	defer func() {
		if err := r.call(m, nil, "delete", "--force", id); err != nil {
			t.Error(err)
		}
	}()
	res := result{cgroup: readCgroup(s.Linux.CgroupsPath)}
	must(t, r.call(m, nil, "start", id))
	must(t, reader.SetReadDeadline(time.Now().Add(20*time.Second)))
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatalf("read output: %v\n%s", err, out)
	}
	res.sections = map[string]string{}
	for _, part := range strings.Split("\n"+string(out), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		res.sections[name] = strings.TrimRight(body, "\n")
	}
	if len(res.sections) == 0 {
		t.Fatalf("no output but %q", out)
	}
	return res
}

// call runs the OCI runtime; a container that is created inherits stdio.
func (r ociRuntime) call(m *machine, stdio *os.File, args ...string) error {
	args = slices.Concat(r.command[1:], []string{"--root", filepath.Join(m.dir, "state", r.name)}, args)
	cmd := exec.Command(r.command[0], args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if stdio != nil {
		cmd.Stdout, cmd.Stderr = stdio, stdio
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", r.name, args, err, stderr.String())
	}
	return nil
}

// readCgroup reads the limits of a created container on cgroup v1.
func readCgroup(path string) map[string]string {
	got := map[string]string{}
	for _, file := range []string{
		"memory/memory.limit_in_bytes", "memory/memory.memsw.limit_in_bytes", "cpu/cpu.shares", "cpu/cpu.cfs_quota_us", "pids/pids.max",
	} {
		controller, name := filepath.Split(file)
		if b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, path, name)); err == nil {
			got[name] = strings.TrimSpace(string(b))
		}
	}
	return got
}

// look prints what the tests check. Each section is the output of one command, errors included.
const look = `
p() { echo "## $1"; shift; "$@" 2>&1; }
p status cat /proc/self/status
p env env
p cwd pwd
p hostname hostname
p net readlink /proc/self/ns/net
p ipc readlink /proc/self/ns/ipc
p uts readlink /proc/self/ns/uts
p pid readlink /proc/self/ns/pid
p links ls /sys/class/net
p oom cat /proc/self/oom_score_adj
p mounts cat /proc/self/mounts
p hosts cat /etc/hosts
p resolv cat /etc/resolv.conf
p root-write touch /written
p hosts-write touch /etc/hosts
p resolv-write touch /etc/resolv.conf
p volume-write touch /data/rw/x
p volume-ro touch /data/ro/x
p interrupts cat /proc/interrupts
p firmware ls /sys/firmware
p sysctl sh -c 'cat /proc/sys/net/ipv4/ip_forward > /proc/sys/net/ipv4/ip_forward'
p cgroup-write touch /sys/fs/cgroup/memory/x
p devices ls /dev
p zero sh -c 'head -c 3 /dev/zero; echo'
p mknod sh -c 'mknod /tmp/blk b 7 0 && head -c 1 /tmp/blk'
p end sh -c 'echo bye > /dev/termination-log'
`

// expect compares one section.
func (r result) expect(t *testing.T, section, want string) {
	t.Helper()
	if got := r.sections[section]; got != want {
		t.Errorf("%s: %q, want %q", section, got, want)
	}
}

// expectHas looks for a text in one section.
func (r result) expectHas(t *testing.T, section, want string) {
	t.Helper()
	if got := r.sections[section]; !strings.Contains(got+"\n", want) {
		t.Errorf("%s: %q does not have %q", section, got, want)
	}
}

// hostNamespace is the test's own namespace.
func hostNamespace(t *testing.T, kind string) string {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/" + kind)
	must(t, err)
	return link
}

// checkCgroup compares what the kernel enforces.
func checkCgroup(t *testing.T, got, want map[string]string) {
	t.Helper()
	if !exists("/sys/fs/cgroup/memory/memory.limit_in_bytes") {
		t.Fatal("this test reads the limits of cgroup v1")
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %s", name, got[name], w)
		}
	}
}
