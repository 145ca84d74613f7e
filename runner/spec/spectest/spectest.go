// Package spectest is test support: it makes the pods and inputs that the tests of the packages below runner/spec share.
// Only tests import it. It must not import packages that build a spec, whose tests use it.
package spectest

import (
	"fmt"
	"runtime"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
	"monopod/runner/spec"
)

// Allocated returns how many bytes a function allocates.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// BigMap returns a ConfigMap whose values have this many bytes in all.
func BigMap(name string, keys, bytes int) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for i := range keys {
		m.Data[fmt.Sprintf("k%d", i)] = strings.Repeat("y", bytes/keys)
	}
	return m
}

// Pod is a pod with one container, changed by edit.
func Pod(edit func(*corev1.Pod, *corev1.Container)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "web"}}},
	}
	if edit != nil {
		edit(pod, &pod.Spec.Containers[0])
	}
	return pod
}

// Host is an 8 GiB machine with 2 cpus and every capability but CAP_SYS_RESOURCE.
func Host() spec.Host {
	var caps []string
	for c := range strings.FieldsSeq(hostCapabilities) {
		caps = append(caps, "CAP_"+c)
	}
	return spec.Host{
		NodeName: "node1", NodeIPs: []string{"192.0.2.10", "2001:db8::10"}, Cgroups: spec.Cgroups{Root: "/monopod"},
		MemoryBytes: 8 << 30, MilliCPU: 2000, Capabilities: caps,
	}
}

// Input is an Input for a pod whose sandbox and volumes are ready.
func Input(pod *corev1.Pod, container string) spec.Input {
	in := spec.Input{
		Pod: pod, Container: container, ID: "c1",
		Image: ocispec.ImageConfig{Cmd: []string{"/bin/app"}},
		Sandbox: spec.Sandbox{
			ID: "s1", Hostname: pod.Name,
			NetNS: "/run/monopod/ns/s1/net", IPCNS: "/run/monopod/ns/s1/ipc", UTSNS: "/run/monopod/ns/s1/uts",
			IPs:     []string{"10.1.0.5", "fd00::5"},
			ShmPath: "/run/monopod/s1/shm", HostsPath: "/run/monopod/s1/hosts", HostnamePath: "/run/monopod/s1/hostname",
			ResolvConfPath: "/run/monopod/s1/resolv.conf", TerminationLogPath: "/run/monopod/c1/termination-log",
		},
		Volumes: map[string]spec.Volume{},
		Host:    Host(),
	}
	if pod.Spec.HostNetwork {
		in.Sandbox.Hostname, in.Sandbox.NetNS, in.Sandbox.UTSNS, in.Sandbox.IPs = "node1", "", "", in.Host.NodeIPs
	}
	if pod.Spec.HostIPC {
		in.Sandbox.IPCNS, in.Sandbox.ShmPath = "", ""
	}
	if ptr.Deref(pod.Spec.ShareProcessNamespace, false) {
		in.Sandbox.PIDNS = "/run/monopod/ns/s1/pid"
	}
	if users := pod.Spec.HostUsers; users != nil && !*users {
		in.Sandbox.UserNS, in.Sandbox.FirstID = "/run/monopod/ns/s1/user", 2*manifests.UserIDs
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			in.Volumes[v.Name] = spec.Volume{HostPath: v.HostPath.Path}
		} else {
			in.Volumes[v.Name] = spec.Volume{HostPath: "/var/lib/monopod/volumes/" + v.Name}
		}
	}
	applyDefaults(pod)
	return in
}

// applyDefaults does what the API server does to the fields that matter here.
func applyDefaults(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.TerminationMessagePath == "" {
			c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		}
		for name, q := range c.Resources.Limits {
			if _, ok := c.Resources.Requests[name]; !ok {
				if c.Resources.Requests == nil {
					c.Resources.Requests = corev1.ResourceList{}
				}
				c.Resources.Requests[name] = q
			}
		}
	}
}

// Requirements returns the resources of a container.
func Requirements(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// Refs returns two ConfigMaps, app and other, and a Secret app.
func Refs() *manifests.Refs {
	return &manifests.Refs{
		ConfigMaps: map[string]*corev1.ConfigMap{
			"app":   {Data: map[string]string{"a": "1", "b.c": "2"}, BinaryData: map[string][]byte{"bin": {0, 1}}},
			"other": {Data: map[string]string{"a": "other"}},
		},
		Secrets: map[string]*corev1.Secret{"app": {Data: map[string][]byte{"password": []byte("hush"), "a": []byte("secret")}}},
	}
}

// Named refers to an object by its name.
func Named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// Amounts makes a list from cpu and memory texts; empty ones are left out.
func Amounts(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

// EmptyDir returns an emptyDir volume; an empty size sets no limit.
func EmptyDir(name string, medium corev1.StorageMedium, size string) corev1.Volume {
	e := &corev1.EmptyDirVolumeSource{Medium: medium}
	if size != "" {
		e.SizeLimit = new(resource.MustParse(size))
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: e}}
}

// hostCapabilities are all capabilities of Linux but SYS_RESOURCE, without the prefix.
const hostCapabilities = "AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN" +
	" DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD" +
	" NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYS_ADMIN SYS_BOOT SYS_CHROOT" +
	" SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_TIME SYS_TTY_CONFIG SYSLOG WAKE_ALARM"
