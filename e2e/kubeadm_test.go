package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
	"monopod/runner/spec/volumeplan"
)

// kubeadmPod is the expected result of one of kubeadm's manifests according to kubelet-behaviour.md. It was written by hand from the
// manifest and those rules, not from the output of monopod.
type kubeadmPod struct {
	program string
	args    int
	// binds are "source destination access" of the volumes, in mount order (4.8).
	binds []string
	// volumes are "name path kind to create if it is missing" (6.2).
	volumes []string
	// shares are milliCPU*1024/1000 (5.1).
	shares uint64
	// user, capabilities: 4.5 and 4.6.
	uid, gid     uint32
	capabilities []string
	noNewPrivs   bool
	// probes are "kind scheme://host:port path delay period timeout successes failures" (3.1, 3.3), with numeric ports.
	probes []string
}

// defaultCapabilities returns containerd's default set (4.6).
func defaultCapabilities() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
		"CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

func kubeadmPods() map[string]kubeadmPod {
	pki := []string{
		"/etc/ssl/certs /etc/ssl/certs ro", "/etc/kubernetes/pki /etc/kubernetes/pki ro",
	}
	pkiVolumes := []string{"ca-certs /etc/ssl/certs directory", "k8s-certs /etc/kubernetes/pki directory"}
	const controllerConf, schedulerConf = "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf"
	manager := func(host string, args int) kubeadmPod {
		return kubeadmPod{
			program: "kube-controller-manager", args: args, shares: 204, uid: 65532, gid: 65532, capabilities: defaultCapabilities(),
			binds:   append(slices.Clone(pki), controllerConf+" "+controllerConf+" ro"),
			volumes: append(slices.Clone(pkiVolumes), "kubeconfig "+controllerConf+" file"),
			probes: []string{
				"startup HTTPS://" + host + ":10257 /healthz 10 10 15 1 24",
				"liveness HTTPS://" + host + ":10257 /healthz 10 10 15 1 8",
			},
		}
	}
	scheduler := kubeadmPod{
		program: "kube-scheduler", args: 6, shares: 102, uid: 65532, gid: 65532, capabilities: defaultCapabilities(),
		binds:   []string{schedulerConf + " " + schedulerConf + " ro"},
		volumes: []string{"kubeconfig " + schedulerConf + " file"},
		probes: []string{
			"startup HTTPS://127.0.0.1:10259 /livez 10 10 15 1 24",
			"liveness HTTPS://127.0.0.1:10259 /livez 10 10 15 1 8",
			"readiness HTTPS://127.0.0.1:10259 /readyz 0 1 15 1 3",
		},
	}
	rootless := scheduler
	rootless.uid, rootless.gid, rootless.capabilities, rootless.noNewPrivs = 105, 109, nil, true
	scheduler.args++ // --v=4
	etcd := func(host, data string, args int) kubeadmPod {
		return kubeadmPod{
			program: "etcd", args: args, shares: 102, uid: 65532, gid: 65532, capabilities: defaultCapabilities(),
			binds:   []string{data + " " + data + " rw", "/etc/kubernetes/pki/etcd /etc/kubernetes/pki/etcd rw"},
			volumes: []string{"etcd-certs /etc/kubernetes/pki/etcd directory", "etcd-data " + data + " directory"},
			probes: []string{
				"startup HTTP://" + host + ":2381 /readyz 10 10 15 1 24",
				"liveness HTTP://" + host + ":2381 /livez 10 10 15 1 8",
				"readiness HTTP://" + host + ":2381 /readyz 0 1 15 1 3",
			},
		}
	}
	return map[string]kubeadmPod{
		"c1-etcd": etcd("127.0.0.1", "/var/lib/etcd", 20),
		"c2-etcd": etcd("::1", "/mnt/etcd", 21),
		"c1-kube-apiserver": {
			program: "kube-apiserver", args: 28, shares: 256, uid: 65532, gid: 65532, capabilities: defaultCapabilities(),
			binds: pki, volumes: pkiVolumes,
			probes: []string{
				"startup HTTPS://192.0.2.10:6443 /livez 10 10 15 1 24",
				"liveness HTTPS://192.0.2.10:6443 /livez 10 10 15 1 8",
				"readiness HTTPS://192.0.2.10:6443 /readyz 0 1 15 1 3",
			},
		},
		"c1-kube-controller-manager": manager("127.0.0.1", 18),
		"c2-kube-controller-manager": manager("", 19),
		"c2-kube-scheduler":          scheduler,
		"c3-kube-scheduler":          rootless,
	}
}

// TestKubeadmPods: kubeadm's own output, in the corpus, gives the same result as with a kubelet and containerd.
func TestKubeadmPods(t *testing.T) {
	want := kubeadmPods()
	for _, b := range borrow(t, "A") {
		_, name, ok := strings.Cut(b.file, "kubeadm-v1.36-generated-")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, ".yaml")
		pod, known := want[name]
		delete(want, name)
		if !known || b.pod == nil {
			t.Errorf("%s is not known here, or not run: %s", b, b.why)
			continue
		}
		t.Run(name, func(t *testing.T) { pod.check(t, b.pod) })
	}
	for name := range want {
		t.Errorf("%s is not in the corpus", name)
	}
}

func (want kubeadmPod) check(t *testing.T, p *manifests.Pod) {
	t.Helper()
	c := &p.Object.Spec.Containers[0]
	var kinds []runner.ActionKind
	actions, _ := plan.Plan(time.Unix(1, 0), p, plan.Observed{NewUID: "uid"})
	for _, a := range actions {
		kinds = append(kinds, a.Kind)
	}
	same(t, "plan", kinds, []runner.ActionKind{runner.CreateSandbox, runner.EnsureImage, runner.CreateContainer, runner.StartContainer})
	plans, err := volumeplan.ForPod(p.Object, spec.Host{})
	if err != nil {
		t.Fatal(err)
	}
	var volumes []string
	for _, v := range plans {
		if v.HostPath == nil {
			t.Fatalf("volume %s is no hostPath", v.Name)
		}
		volumes = append(volumes, fmt.Sprintf("%s %s %s", v.Name, v.HostPath.Path, v.HostPath.Missing()))
	}
	same(t, "volumes", volumes, want.volumes)
	same(t, "probes", probesOf(c), want.probes)
	if profile := build.SeccompFor(p.Object, c.Name, false); profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp profile is %v", profile)
	}
	s, err := specOf(p, c.Name)
	if err != nil {
		t.Fatal(err)
	}
	want.checkProcess(t, s)
	want.checkMounts(t, s)
	want.checkLinux(t, s)
}

func (want kubeadmPod) checkProcess(t *testing.T, s *specs.Spec) {
	t.Helper()
	p := s.Process
	if p.Args[0] != want.program || len(p.Args) != want.args {
		t.Errorf("%d args: %v", len(p.Args), p.Args)
	}
	same(t, "environment", p.Env, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=node"})
	if p.User.UID != want.uid || p.User.GID != want.gid || p.NoNewPrivileges != want.noNewPrivs || p.Cwd != "/" || s.Root.Readonly {
		t.Errorf("user %+v, no new privileges %v, directory %s, root %+v", p.User, p.NoNewPrivileges, p.Cwd, s.Root)
	}
	for _, set := range [][]string{p.Capabilities.Bounding, p.Capabilities.Effective, p.Capabilities.Permitted} {
		same(t, "capabilities", slices.Sorted(slices.Values(set)), want.capabilities)
	}
	if len(p.Capabilities.Inheritable)+len(p.Capabilities.Ambient)+len(p.Rlimits) > 0 {
		t.Errorf("capabilities %+v, limits %v", p.Capabilities, p.Rlimits)
	}
	if p.OOMScoreAdj == nil || *p.OOMScoreAdj != -997 { // system-node-critical, 5.4
		t.Errorf("oom_score_adj is %v", p.OOMScoreAdj)
	}
}

func (want kubeadmPod) checkMounts(t *testing.T, s *specs.Spec) {
	t.Helper()
	var got, binds []string
	for _, m := range s.Mounts {
		access := m.Options[len(m.Options)-1]
		switch {
		case m.Type != "bind":
			got = append(got, m.Destination+" "+m.Type+" "+strings.Join(m.Options, ","))
		case strings.HasPrefix(m.Source, "/sandbox/"):
			got = append(got, m.Destination+" bind "+access)
		default:
			same(t, "options of "+m.Destination, m.Options[:len(m.Options)-1], []string{"rbind", "rprivate"})
			binds = append(binds, m.Source+" "+m.Destination+" "+access)
		}
	}
	slices.Sort(got)
	same(t, "mounts", got, []string{
		"/dev tmpfs nosuid,strictatime,mode=755,size=65536k",
		"/dev/mqueue mqueue nosuid,noexec,nodev",
		"/dev/pts devpts nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5",
		"/dev/shm bind rw",
		"/dev/termination-log bind rw",
		"/etc/hostname bind rw",
		"/etc/hosts bind rw",
		"/etc/resolv.conf bind rw",
		"/proc proc nosuid,noexec,nodev",
		"/sys sysfs nosuid,noexec,nodev,ro",
		"/sys/fs/cgroup cgroup nosuid,noexec,nodev,relatime,ro",
	})
	same(t, "binds", binds, want.binds)
}

func (want kubeadmPod) checkLinux(t *testing.T, s *specs.Spec) {
	t.Helper()
	var namespaces []string
	for _, n := range s.Linux.Namespaces {
		namespaces = append(namespaces, string(n.Type)+" "+n.Path)
	}
	slices.Sort(namespaces)
	// The network and uts namespaces are those of the machine (4.4).
	same(t, "namespaces", namespaces, []string{"cgroup ", "ipc /ns/ipc", "mount ", "pid "})
	if s.Hostname != "" || s.Linux.CgroupsPath != "/monopod/burstable/poduid/id" {
		t.Errorf("hostname %q, cgroup %q", s.Hostname, s.Linux.CgroupsPath)
	}
	r := s.Linux.Resources
	if *r.CPU.Shares != want.shares || *r.CPU.Period != 100_000 || r.CPU.Quota != nil || r.Memory.Limit != nil || r.Pids != nil {
		t.Errorf("shares %d period %d: %+v %+v", *r.CPU.Shares, *r.CPU.Period, r.CPU, r.Memory)
	}
	if len(r.Unified) != 2 || r.Unified["memory.oom.group"] != "1" || r.Unified["memory.swap.max"] != "0" {
		t.Errorf("unified %v", r.Unified)
	}
	if len(r.Devices) != 1 || r.Devices[0].Allow || r.Devices[0].Access != "rwm" {
		t.Errorf("devices %v", r.Devices)
	}
	same(t, "masked paths", slices.Sorted(slices.Values(s.Linux.MaskedPaths)), []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	})
	same(t, "read-only paths", slices.Sorted(slices.Values(s.Linux.ReadonlyPaths)), []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
	})
}

// probesOf prints the probes of a container, with numbers instead of port names.
func probesOf(c *corev1.Container) []string {
	var all []string
	for _, p := range []struct {
		kind  string
		probe *corev1.Probe
	}{{"startup", c.StartupProbe}, {"liveness", c.LivenessProbe}, {"readiness", c.ReadinessProbe}} {
		if p.probe == nil || p.probe.HTTPGet == nil {
			continue
		}
		get := p.probe.HTTPGet
		port := get.Port.IntVal
		for _, named := range c.Ports {
			if get.Port == intstr.FromString(named.Name) {
				port = named.ContainerPort
			}
		}
		all = append(all, fmt.Sprintf("%s %s://%s:%d %s %d %d %d %d %d", p.kind, get.Scheme, get.Host, port, get.Path, p.probe.InitialDelaySeconds,
			p.probe.PeriodSeconds, p.probe.TimeoutSeconds, p.probe.SuccessThreshold, p.probe.FailureThreshold))
	}
	return all
}

func same[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%v\nwant\n%v", what, got, want)
	}
}
