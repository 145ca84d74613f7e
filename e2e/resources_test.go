//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// cgroupFile reads a file of the container's cgroup: its v2 name, or controller/name on v1.
func cgroupFile(t *testing.T, in *instance, p corev1.Pod, v2, v1 string) string {
	t.Helper()
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	parent := in.cgroup + "/pod" + string(p.UID) + "/" + id
	path := filepath.Join("/sys/fs/cgroup", parent, v2)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		controller, name, _ := strings.Cut(v1, "/")
		path = filepath.Join("/sys/fs/cgroup", controller, parent, name)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func cgroupV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func TestResourcesReachTheCgroup(t *testing.T) {
	in := newInstance(t, "podPidsLimit: 64")
	in.start()
	in.put("limited", sleeper("limited", "echo", `    resources: {requests: {cpu: 250m, memory: 16Mi}, limits: {cpu: 500m, memory: 32Mi}}`))
	p := in.ready("limited")
	want := []struct{ v2, v1, on2, on1 string }{
		{"memory.max", "memory/memory.limit_in_bytes", "33554432", "33554432"},
		{"cpu.max", "cpu/cpu.cfs_quota_us", "50000 100000", "50000"},
		{"cpu.weight", "cpu/cpu.shares", "", "256"},
		{"pids.max", "pids/pids.max", "64", "64"},
		{"memory.swap.max", "memory/memory.limit_in_bytes", "0", "33554432"},
		{"memory.oom.group", "memory/memory.limit_in_bytes", "1", "33554432"},
	}
	for _, w := range want {
		expected := w.on1
		if cgroupV2() {
			expected = w.on2
			if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil && strings.HasPrefix(w.v2, "memory.swap") && !swapAccounting() {
				continue
			}
		}
		if got := cgroupFile(t, in, p, w.v2, w.v1); expected != "" && got != expected {
			t.Errorf("%s is %q, want %q", w.v2, got, expected)
		}
	}
	if p.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("QoS class is %s", p.Status.QOSClass)
	}
}

func swapAccounting() bool {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/memory.swap.max")
	return len(found) > 0
}

func TestAContainerThatEatsItsMemoryIsOOMKilled(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("hungry", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: hungry}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: %s
    command: [dd, if=/dev/zero, of=/dev/null, bs=200M, count=1]
    resources: {limits: {memory: 24Mi}}
`, image))
	p := in.pod("hungry", "has failed", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Reason != "OOMKilled" || term.ExitCode != 137 {
		t.Errorf("the end is %s", brief(p))
	}
}

func TestProcessesAreLimitedInNumber(t *testing.T) {
	in := newInstance(t, "podPidsLimit: 8")
	in.start()
	in.put("forks", sleeper("forks", "i=0; while [ $i -lt 20 ]; do sleep 100 & i=$((i+1)); done; echo all"))
	in.eventually("the shell says that it cannot fork", func() error {
		out, err := in.run("logs", "forks")
		if err == nil && !strings.Contains(out, "fork") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
}

func TestIdentityAndRightsAreThoseOfTheManifest(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("meek", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: meek}
spec:
  restartPolicy: Never
  hostname: meekhost
  securityContext: {supplementalGroups: [4242]}
  containers:
  - name: c
    image: %s
    workingDir: /tmp
    command: [sh, -c, "id -u; id -g; id -G; pwd; hostname; touch /x 2>&1; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; cat /etc/hosts; echo masked $(wc -c </proc/timer_list)"]
    securityContext:
      runAsUser: 1000
      runAsGroup: 2000
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
`, image))
	in.pod("meek", "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	out, err := in.run("logs", "meek")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000\n2000\n", "4242", "/tmp\nmeekhost\n", "Read-only file system", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "meekhost", "masked 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
