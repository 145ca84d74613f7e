//go:build e2e

package build

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/limits"
	"monopod/runner/spec/spectest"
)

func TestRestrictedContainerInAPodNetwork(t *testing.T) {
	for _, r := range runtimes(t) {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t)
			in := m.input(m.pin(t), look, func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{
					RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](3000), RunAsNonRoot: new(true),
					FSGroup: ptr.To[int64](2000), SupplementalGroups: []int64{4000},
				}
				c.SecurityContext = &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
				}
				c.WorkingDir = "/srv"
				c.Env = []corev1.EnvVar{
					{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
					{Name: "URL", Value: "http://$(IP)/"},
				}
				c.Resources = corev1.ResourceRequirements{Limits: spectest.Amounts("500m", "32Mi"), Requests: spectest.Amounts("250m", "32Mi")}
				v := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
				p.Spec.Volumes = []corev1.Volume{{Name: "rw", VolumeSource: v}, {Name: "ro", VolumeSource: v}}
				c.VolumeMounts = []corev1.VolumeMount{{Name: "rw", MountPath: "/data/rw"}, {Name: "ro", MountPath: "/data/ro", ReadOnly: true}}
			})
			in.User = spec.User{UID: 1000, GID: 3000, Groups: []uint32{50}}
			got := m.run(t, r, in)

			status := got.sections["status"]
			for field, want := range map[string]string{
				"Uid": "1000 1000 1000 1000", "Gid": "3000 3000 3000 3000", "Groups": "50 2000 3000 4000", "NoNewPrivs": "1",
				"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
			} {
				if v := statusField(status, field); v != want {
					t.Errorf("%s: %s, want %s", field, v, want)
				}
			}
			if caps := capabilitySet(t, statusField(status, "CapBnd")); !slices.Equal(caps, []string{"CAP_NET_BIND_SERVICE"}) {
				t.Errorf("bounding set %v", caps)
			}
			got.expect(t, "cwd", "/srv")
			got.expect(t, "hostname", "web")
			got.expect(t, "links", "lo")
			for _, e := range []string{"HOSTNAME=web", "IP=10.9.8.7", "URL=http://10.9.8.7/", "PATH=" + environ.DefaultPath} {
				got.expectHas(t, "env", e+"\n")
			}
			for _, ns := range []string{"net", "ipc", "uts", "pid"} {
				if got.sections[ns] == hostNamespace(t, ns) {
					t.Errorf("the %s namespace is the host's", ns)
				}
			}
			got.expect(t, "hosts", "10.9.8.7 here")
			got.expect(t, "resolv", "nameserver 192.0.2.1")
			got.expectHas(t, "root-write", "Read-only file system")
			got.expect(t, "hosts-write", "")
			got.expectHas(t, "resolv-write", "Read-only file system")
			got.expect(t, "volume-write", "")
			got.expectHas(t, "volume-ro", "Read-only file system")
			got.expectHas(t, "mounts", " /dev/shm ")
			if s := statusField(status, "Seccomp"); s != "0" {
				t.Errorf("seccomp mode %s before ctrd adds a profile", s)
			}
			checkCgroup(t, got.cgroup, map[string]string{
				"memory.limit_in_bytes": "33554432", "memory.memsw.limit_in_bytes": "33554432", "cpu.shares": "256",
				"cpu.cfs_quota_us": "50000", "pids.max": "max",
			})
			log, err := os.ReadFile(filepath.Join(m.dir, "termination-log"))
			if err != nil || string(log) != "bye\n" {
				t.Errorf("termination log %q, %v", log, err)
			}
			got.expect(t, "oom", "997") // 32 MiB of 8 GiB
		})
	}
}

func TestDefaultContainer(t *testing.T) {
	for _, r := range runtimes(t) {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t)
			in := m.input(m.pin(t), look, nil)
			got := m.run(t, r, in)
			status := got.sections["status"]
			for _, set := range []string{"CapBnd", "CapEff", "CapPrm"} {
				if caps := capabilitySet(t, statusField(status, set)); !slices.Equal(caps, sorted(defaultCapabilities())) {
					t.Errorf("%s %v", set, caps)
				}
			}
			got.expect(t, "root-write", "")
			got.expect(t, "interrupts", "") // a masked file reads as empty
			got.expect(t, "firmware", "")   // and a masked directory has nothing in it
			got.expectHas(t, "sysctl", "Read-only file system")
			got.expectHas(t, "cgroup-write", "Read-only file system")
			got.expect(t, "zero", "\x00\x00\x00")
			got.expectHas(t, "mknod", "Operation not permitted")
			got.expect(t, "oom", "1000")
			got.expect(t, "cwd", "/")
			checkCgroup(t, got.cgroup, map[string]string{"cpu.shares": "2", "cpu.cfs_quota_us": "-1"})
		})
	}
}

func TestContainerInTheHostsNamespaces(t *testing.T) {
	for _, r := range runtimes(t) {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t)
			in := m.input(m.sandbox(), look, func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
				c.Resources = corev1.ResourceRequirements{Limits: spectest.Amounts("1", "64Mi"), Requests: spectest.Amounts("1", "64Mi")}
			})
			got := m.run(t, r, in)
			name, err := os.Hostname()
			must(t, err)
			got.expect(t, "hostname", name)
			got.expectHas(t, "env", "HOSTNAME="+name+"\n")
			for _, ns := range []string{"net", "ipc", "uts", "pid"} {
				got.expect(t, ns, hostNamespace(t, ns))
			}
			// A guaranteed pod wants -997; without CAP_SYS_RESOURCE it gets what this process may give.
			got.expect(t, "oom", strconv.Itoa(max(limits.OOMGuaranteed, m.host.MinOOMScoreAdj)))
			got.expect(t, "interrupts", "")
		})
	}
}

func TestPrivilegedContainer(t *testing.T) {
	for _, r := range runtimes(t) {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t)
			m.host.Devices = []spec.Device{{Path: "/dev/monopod-kmsg", Type: "c", Major: 1, Minor: 11, FileMode: 0o640, GID: 5}}
			in := m.input(m.pin(t), look+"p device stat -c '%t %T %a %g' /dev/monopod-kmsg\np sys-write sh -c 'grep \" /sys sysfs rw\" /proc/self/mounts'\n",
				func(_ *corev1.Pod, c *corev1.Container) {
					c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
				})
			got := m.run(t, r, in)
			for _, set := range []string{"CapBnd", "CapEff", "CapPrm"} {
				if caps := capabilitySet(t, statusField(got.sections["status"], set)); !slices.Equal(caps, m.host.Capabilities) {
					t.Errorf("%s %v", set, caps)
				}
			}
			got.expect(t, "device", "1 b 640 5")
			got.expectHas(t, "sys-write", " /sys sysfs rw")
			if got.sections["interrupts"] == "" || strings.Contains(got.sections["mounts"], " /proc/interrupts ") || strings.Contains(got.sections["mounts"], " /proc/sys ") {
				t.Error("paths are masked")
			}
			got.expect(t, "sysctl", "")
			if strings.Contains(got.sections["mknod"], "Operation not permitted") {
				t.Errorf("the device cgroup forbids a block device: %q", got.sections["mknod"])
			}
		})
	}
}

// TestEveryGoldenSpecRuns runs all golden specs in both runtimes with real, empty sources for their mounts. What this
// machine cannot do is taken out: keys of cgroup v2 and oom scores that need CAP_SYS_RESOURCE.
func TestEveryGoldenSpecRuns(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden specs: %v", err)
	}
	for _, r := range runtimes(t) {
		t.Run(r.name, func(t *testing.T) {
			m := newMachine(t)
			pinned := m.pin(t)
			for _, file := range files {
				t.Run(filepath.Base(file), func(t *testing.T) {
					text, err := os.ReadFile(file)
					must(t, err)
					var s specs.Spec
					must(t, json.Unmarshal(text, &s))
					m.makeReal(t, &s, pinned)
					s.Process.Args = []string{"/bin/sh", "-c", "echo '## status'; cat /proc/self/status"}
					got := m.runSpec(t, r, &s)
					if want := fmt.Sprint(s.Process.User.UID); !strings.HasPrefix(statusField(got.sections["status"], "Uid"), want+" ") {
						t.Errorf("uid %s, want %s", statusField(got.sections["status"], "Uid"), want)
					}
					if caps := capabilitySet(t, statusField(got.sections["status"], "CapBnd")); !slices.Equal(caps, s.Process.Capabilities.Bounding) {
						t.Errorf("bounding set %v, want %v", caps, s.Process.Capabilities.Bounding)
					}
				})
			}
		})
	}
}

// makeReal points a golden spec to things that exist.
func (m *machine) makeReal(t *testing.T, s *specs.Spec, pinned spec.Sandbox) {
	t.Helper()
	sources := filepath.Join(t.TempDir(), "sources")
	for i := range s.Mounts {
		if s.Mounts[i].Type != "bind" {
			continue
		}
		source := filepath.Join(sources, strconv.Itoa(i))
		switch s.Mounts[i].Destination {
		case "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log", "/var/run/why", "/run/xtables.lock":
			must(t, os.MkdirAll(sources, 0o755))
			must(t, os.WriteFile(source, nil, 0o666))
		default:
			must(t, os.MkdirAll(source, 0o777))
		}
		if s.Mounts[i].Destination == "/dev" {
			must(t, syscall.Mknod(filepath.Join(source, "null"), syscall.S_IFCHR|0o666, 1<<8|3))
		}
		s.Mounts[i].Source = source
	}
	paths := map[specs.LinuxNamespaceType]string{
		specs.NetworkNamespace: pinned.NetNS, specs.IPCNamespace: pinned.IPCNS, specs.UTSNamespace: pinned.UTSNS,
	}
	for i, n := range s.Linux.Namespaces {
		if n.Path != "" {
			s.Linux.Namespaces[i].Path = paths[n.Type]
		}
	}
	s.Process.Terminal = false // who makes one hands over a socket for it, as the shim does
	s.Linux.CgroupsPath = m.parent + "/golden"
	s.Linux.Resources.Unified = nil
	*s.Process.OOMScoreAdj = max(*s.Process.OOMScoreAdj, m.host.MinOOMScoreAdj)
	s.Process.Capabilities.Bounding = intersect(s.Process.Capabilities.Bounding, m.host.Capabilities)
	s.Process.Capabilities.Effective, s.Process.Capabilities.Permitted = s.Process.Capabilities.Bounding, s.Process.Capabilities.Bounding
}

// intersect returns the elements of a that are in b.
func intersect(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}
