//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
)

// process is what the tests need to know of a process.
type process struct {
	pid, parent int
	cmdline     string
	// shim is the ID of the container whose shim the process is.
	shim string
	// mine means that it is in a cgroup of the instance.
	mine bool
}

// table reads the process table: the processes in the instance's cgroups and its shims. Zombies are left out.
func (in *instance) table() map[int]process {
	all := map[int]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if f[0] == "Z" || f[0] == "X" {
			continue
		}
		p := process{pid: pid}
		p.parent, _ = strconv.Atoi(f[1])
		cmdline, _ := os.ReadFile(d + "/cmdline")
		p.cmdline = strings.ReplaceAll(string(cmdline), "\x00", " ")
		cgroup, _ := os.ReadFile(d + "/cgroup")
		p.mine = strings.Contains(string(cgroup), in.cgroups.Class(corev1.PodQOSGuaranteed)+"/")
		if cwd, _ := os.Readlink(d + "/cwd"); (strings.HasPrefix(cwd, in.state+"/") || in.shims != "" && strings.HasPrefix(cwd, in.shims+"/")) && strings.Contains(p.cmdline, "containerd-shim") {
			p.shim = filepath.Base(cwd)
		}
		if p.mine || p.shim != "" {
			all[pid] = p
		}
	}
	return all
}

// census counts everything that pods leave on the machine.
func (in *instance) census() map[string]int {
	n := map[string]int{}
	for _, p := range in.table() {
		if p.shim != "" {
			n["shims"]++
		} else {
			n["processes"]++
		}
	}
	for _, d := range []string{"ns", "shm", "logs", "exits", "runc/monopod"} {
		n[d] = count(filepath.Join(in.state, d, "*"))
	}
	n["pod directories"] = count(filepath.Join(in.dir, "root/pods/*"))
	n["log directories"] = count(filepath.Join(in.dir, "logs/pods/*"))
	n["log links"] = count(filepath.Join(in.dir, "logs/containers/*"))
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		n["cgroups"] += count(root+in.cgroup+"/pod*") + count(root+in.cgroup+"/*/pod*")
	}
	addresses := strings.Split(in.subnet, ".")
	n["addresses"] = count(filepath.Join(in.dir, "root/cni/*", strings.Join(addresses[:3], ".")+".*")) +
		count(filepath.Join(in.dir, "root/cni/*/*", strings.Join(addresses[:3], ".")+".*"))
	n["cni results"] = count(filepath.Join(in.dir, "root/cni/results/*")) + count(filepath.Join(in.dir, "root/cni/*/results/*"))
	n["links"] = len(in.bridgePorts())
	rules, _ := exec.Command("sh", "-c", "iptables-save; nft -s list ruleset").Output()
	n["rules"] = strings.Count(string(rules), " "+strings.Join(addresses[:3], ".")+".")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, in.state+"/") || strings.Contains(line, in.dir+"/") || in.shims != "" && strings.Contains(line, in.shims+"/") {
			n["mounts"]++
		}
	}
	return n
}

func count(pattern string) int {
	all, _ := filepath.Glob(pattern)
	return len(all)
}

// bridgePorts lists the interfaces of the bridge that has an address in the instance's subnet.
func (in *instance) bridgePorts() []string {
	_, subnet, err := net.ParseCIDR(in.subnet)
	if err != nil {
		in.t.Fatal(err)
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		addresses, _ := l.Addrs()
		for _, a := range addresses {
			if ip, ok := a.(*net.IPNet); ok && subnet.Contains(ip.IP) {
				ports, _ := filepath.Glob("/sys/class/net/" + l.Name + "/brif/*")
				return ports
			}
		}
	}
	return nil
}

// sameCensus waits until nothing is left that did not exist before.
func (in *instance) sameCensus(before map[string]int) {
	in.t.Helper()
	in.eventually("nothing is left behind", func() error {
		var more []string
		for what, n := range in.census() {
			if n > before[what] {
				more = append(more, fmt.Sprintf("%s: %d, were %d", what, n, before[what]))
			}
		}
		if len(more) > 0 {
			slices.Sort(more)
			return fmt.Errorf("left behind: %s", strings.Join(more, "; "))
		}
		return nil
	})
}

// records counts the records in the database of the embedded containerd. The agent must have exited.
func (in *instance) records() map[string]int {
	in.t.Helper()
	return recordsIn(in.t, filepath.Join(in.dir, "root"))
}

// recordsIn is records for an agent with this root directory.
func recordsIn(t *testing.T, root string) map[string]int {
	t.Helper()
	return recordsAt(t, filepath.Join(root, "containerd"))
}

// recordsAt is records for a containerd with this root directory.
func recordsAt(t *testing.T, root string) map[string]int {
	t.Helper()
	db, err := bolt.Open(filepath.Join(root, "io.containerd.metadata.v1.bolt/meta.db"), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	n := map[string]int{}
	err = db.View(func(tx *bolt.Tx) error {
		v1 := tx.Bucket([]byte("v1"))
		if v1 == nil {
			return nil
		}
		return v1.ForEachBucket(func(ns []byte) error {
			for _, kind := range []string{"containers", "sandboxes", "leases"} {
				b := v1.Bucket(ns).Bucket([]byte(kind))
				if b == nil {
					continue
				}
				_ = b.ForEachBucket(func([]byte) error { n[kind]++; return nil })
			}
			snapshotters := v1.Bucket(ns).Bucket([]byte("snapshots"))
			if snapshotters == nil {
				return nil
			}
			return snapshotters.ForEachBucket(func(name []byte) error {
				return snapshotters.Bucket(name).ForEachBucket(func([]byte) error { n["snapshots"]++; return nil })
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// open counts the file descriptors of the agent.
func (in *instance) open() int { return count(fmt.Sprintf("/proc/%d/fd/*", in.cmd.Process.Pid)) }

func TestTheCensusSeesWhatAPodMakes(t *testing.T) {
	in := newInstance(t)
	in.start()
	before := in.census()
	in.put("seen", sleeper("seen", "echo start", fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]", ports.Take(t))))
	in.ready("seen")
	during := in.census()
	for _, what := range []string{"shims", "processes", "ns", "shm", "logs", "pod directories", "log directories", "log links", "cgroups", "addresses", "links", "rules", "mounts"} {
		if during[what] <= before[what] {
			t.Errorf("%s: %d with a pod, %d without", what, during[what], before[what])
		}
	}
	in.drop("seen")
	in.gone("seen")
	in.sameCensus(before)
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if n := in.records(); n["containers"]+n["sandboxes"]+n["leases"] != 0 || n["snapshots"] != 1 {
		t.Errorf("records left in containerd: %v", n)
	}
}
