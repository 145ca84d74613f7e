//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/capacity"
)

// cgroupFile reads a file of the container's cgroup: its v2 name, or controller/name on v1.
func cgroupFile(t *testing.T, in *instance, p corev1.Pod, v2, v1 string) string {
	t.Helper()
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	return readCgroup(t, in.cgroups.Container(podCgroup(in, p), id), v2, v1)
}

// podCgroup is the cgroup of a pod.
func podCgroup(in *instance, p corev1.Pod) string {
	return in.cgroups.Pod(p.Status.QOSClass, string(p.UID))
}

// readCgroup reads a file of a cgroup: its v2 name, or controller/name on v1.
func readCgroup(t *testing.T, cgroup, v2, v1 string) string {
	t.Helper()
	path := filepath.Join("/sys/fs/cgroup", cgroup, v2)
	if !cgroupV2() {
		controller, name, _ := strings.Cut(v1, "/")
		path = filepath.Join("/sys/fs/cgroup", controller, cgroup, name)
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
	in := newInstance(t, "podPidsLimit: 64", `systemReserved: {cpu: 100m, memory: 64Mi, pid: "1000"}`)
	m, err := capacity.Read(in.dir)
	if err != nil {
		t.Fatal(err)
	}
	in.start()
	in.put("limited", sleeper("limited", "echo", `    resources: {requests: {cpu: 250m, memory: 16Mi}, limits: {cpu: 500m, memory: 32Mi}}`))
	p := in.ready("limited")
	want := []struct{ v2, v1, on2, on1 string }{
		{"memory.max", "memory/memory.limit_in_bytes", "33554432", "33554432"},
		{"cpu.max", "cpu/cpu.cfs_quota_us", "50000 100000", "50000"},
		{"cpu.weight", "cpu/cpu.shares", "", "256"},
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
	for _, w := range []struct{ v2, v1, on2, on1 string }{
		{"memory.max", "memory/memory.limit_in_bytes", "33554432", "33554432"},
		{"cpu.max", "cpu/cpu.cfs_quota_us", "50000 100000", "50000"},
		{"cpu.weight", "cpu/cpu.shares", "10", "256"},
		{"pids.max", "pids/pids.max", "64", "64"},
	} {
		if got, want := readCgroup(t, podCgroup(in, p), w.v2, w.v1), choose(w.on2, w.on1); got != want {
			t.Errorf("%s of the pod is %q, want %q", w.v2, got, want)
		}
	}
	page := int64(os.Getpagesize())
	for name, want := range map[[2]string]int64{{"memory.max", "memory/memory.limit_in_bytes"}: (m.Memory - 64<<20) / page * page, {"pids.max", "pids/pids.max"}: m.PIDs - 1000} {
		if got := readCgroup(t, in.cgroups.Class(corev1.PodQOSGuaranteed), name[0], name[1]); got != fmt.Sprint(want) {
			t.Errorf("%s of all pods is %s, want %d", name[0], got, want)
		}
	}
	if p.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("QoS class is %s", p.Status.QOSClass)
	}
}

// choose returns the value for the cgroup version of this machine.
func choose(v2, v1 string) string {
	if cgroupV2() {
		return v2
	}
	return v1
}

// TestResourcesAreChangedWhileThePodRuns edits only cpu and memory, and checks from outside and inside of the container.
func TestResourcesAreChangedWhileThePodRuns(t *testing.T) {
	in := newInstance(t)
	in.start()
	manifest := func(limits string) string {
		look := "(while :; do cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; sleep 1; done) & true"
		return sleeper("resized", look, "    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: "+limits+"}")
	}
	in.put("resized", manifest("{cpu: 500m, memory: 48Mi}"))
	before := in.ready("resized")
	in.put("resized", manifest("{cpu: 250m, memory: 64Mi}"))
	p := in.pod("resized", "has other resources", func(p corev1.Pod) bool {
		r := p.Status.ContainerStatuses[0].Resources
		return r != nil && r.Limits.Memory().String() == "64Mi" && r.Limits.Cpu().String() == "250m"
	})
	if containerID(p, "c") != containerID(before, "c") || p.Status.ContainerStatuses[0].RestartCount != 0 || p.UID != before.UID {
		t.Errorf("the edit restarted it: %s", brief(p))
	}
	for _, of := range []string{"container", "pod"} {
		cg := podCgroup(in, p)
		if of == "container" {
			cg = in.cgroups.Container(cg, strings.TrimPrefix(containerID(p, "c"), "containerd://"))
		}
		in.eventually("the "+of+" has the new limits", func() error {
			memory, quota := readCgroup(t, cg, "memory.max", "memory/memory.limit_in_bytes"), readCgroup(t, cg, "cpu.max", "cpu/cpu.cfs_quota_us")
			if memory != "67108864" || quota != choose("25000 100000", "25000") {
				return fmt.Errorf("memory %s, cpu %s", memory, quota)
			}
			return nil
		})
	}
	in.eventually("the container itself sees the new limit", func() error {
		out, err := in.run("logs", "resized")
		if err == nil && !strings.Contains(out, "67108864") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
}

// TestResourcesInUseAreNotTakenAway lowers a memory limit below current usage: nothing is killed, and the status shows why.
func TestResourcesInUseAreNotTakenAway(t *testing.T) {
	in := newInstance(t)
	in.start()
	manifest := func(memory string) string {
		return sleeper("full", "dd if=/dev/zero of=/dev/shm/x bs=1M count=40; echo filled", "    resources: {limits: {memory: "+memory+"}}")
	}
	in.put("full", manifest("96Mi"))
	before := in.ready("full")
	in.eventually("memory is in use", func() error {
		out, err := in.run("logs", "full")
		if err == nil && !strings.Contains(out, "filled") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	in.put("full", manifest("24Mi"))
	p := in.pod("full", "says that the resize does not work", func(p corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizeInProgress && c.Reason == "Error" && c.Message != "" {
				return true
			}
		}
		return false
	})
	st := p.Status.ContainerStatuses[0]
	if st.ContainerID != containerID(before, "c") || st.State.Running == nil || st.Resources.Limits.Memory().String() != "96Mi" {
		t.Errorf("after the refusal: %s", brief(p))
	}
	if got := cgroupFile(t, in, p, "memory.max", "memory/memory.limit_in_bytes"); got != "100663296" {
		t.Errorf("the limit is %s", got)
	}
}

// TestResourcesOfMemoryQuality tests features of cgroup v2.
func TestResourcesOfMemoryQuality(t *testing.T) {
	if !cgroupV2() {
		t.Skip("memory.high, memory.low and memory.min exist on cgroup v2 only; .ci/vm runs this")
	}
	in := newInstance(t, "memoryThrottlingFactor: 0.9\nmemoryReservationPolicy: TieredReservation\nsingleProcessOOMKill: true")
	in.start()
	in.put("some", sleeper("some", "echo", "    resources: {requests: {memory: 20Mi}, limits: {memory: 40Mi}}"))
	in.put("sure", sleeper("sure", "echo", "    resources: {limits: {cpu: 100m, memory: 24Mi}}"))
	some, sure := in.ready("some"), in.ready("sure")
	container := func(p corev1.Pod) string {
		return in.cgroups.Container(podCgroup(in, p), strings.TrimPrefix(containerID(p, "c"), "containerd://"))
	}
	for _, w := range []struct{ cgroup, file, want string }{
		{container(some), "memory.high", "39845888"},
		{container(some), "memory.low", "20971520"},
		{container(some), "memory.min", "0"},
		{container(some), "memory.oom.group", "0"},
		{podCgroup(in, some), "memory.low", "20971520"},
		{in.cgroups.Class(corev1.PodQOSBurstable), "memory.low", "20971520"},
		{container(sure), "memory.high", "max"},
		{container(sure), "memory.min", "25165824"},
		{podCgroup(in, sure), "memory.min", "25165824"},
	} {
		if got := readCgroup(t, w.cgroup, w.file, ""); got != w.want {
			t.Errorf("%s of %s is %s, want %s", w.file, w.cgroup, got, w.want)
		}
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
    command: [sh, -c, "sleep 1000 & exec dd if=/dev/zero of=/dev/null bs=200M count=1"]
    resources: {limits: {memory: 24Mi}}
`, image))
	p := in.pod("hungry", "has failed", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.Reason != "OOMKilled" || term.ExitCode != 137 {
		t.Errorf("the end is %s", brief(p))
	}
	// With cgroup v2, all processes of the container are killed, and the kernel reports each of them.
	in.eventually("an event names the victim", func() error {
		all, err := in.events("hungry")
		if err != nil {
			return err
		}
		var told []string
		for _, e := range all {
			if e.Reason == "OOMKilling" {
				told = append(told, fmt.Sprintf("%d x %s", e.Count, eventText(e)))
			}
		}
		if len(told) != 1 || !regexp.MustCompile(`^1 x Warning OOMKilling hungry spec.containers\{c\} Memory cgroup out of memory: Killed process \d+ \(dd\)$`).MatchString(told[0]) {
			return fmt.Errorf("%q", told)
		}
		return nil
	})
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
    command: [sh, -c, "id -u; id -g; id -G; pwd; hostname; touch /x 2>&1; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; cat /etc/hosts; echo masked $(wc -c </proc/timer_list)"]
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
	for _, want := range []string{"1000\n2000\n", "4242", "/tmp\nmeekhost\n", "Read-only file system", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "meekhost", "masked 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
