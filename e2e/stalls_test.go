//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/capacity"
	"monopod/node/pressure"
)

// thrash keeps a process outside of all pods waiting for memory, until the test ends.
func thrash(t *testing.T) {
	t.Helper()
	dir := fmt.Sprintf("/sys/fs/cgroup/thrash-%d", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.high"), []byte("4194304"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	c := exec.Command("dd", "if=/dev/zero", "of=/dev/null", "bs=32M")
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
}

// forks is a pod that starts this many processes on request, but only once.
func forks(name, host string, n int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %[2]s
    command: [sh, -c, "trap exit TERM; test -e /host/%[1]s || { until test -e /host/go-%[1]s; do sleep 0.2; done; touch /host/%[1]s; i=0; while test $i -lt %[4]d; do sleep 1000 & i=$((i+1)); done; }; while :; do sleep 1; done"]
    volumeMounts: [{name: host, mountPath: /host}]
  volumes: [{name: host, hostPath: {path: %[3]s}}]
`, name, image, host, n)
}

// TestStalls: the agent itself checks only every five minutes. It learns of pressure immediately because the kernel reports that programs
// wait for memory (PSI). There is a hard threshold for the memory of all pods, and a soft one for processes.
func TestStalls(t *testing.T) {
	if !cgroupV2() {
		t.Skip("needs cgroup v2, where one program can be made to wait for memory without harm: .ci/vm has it")
	}
	in := newInstance(t)
	m, err := capacity.Read(in.dir)
	if err != nil {
		t.Fatal(err)
	}
	levels := pressure.Observations{}
	(&pressure.Kernel{}).Read(levels)
	host := filepath.Join(in.dir, "host")
	in.write(in.config, strings.Replace(in.read("config.yaml"), "evictionHard: {memory.available: 10Mi}", fmt.Sprintf(`systemReserved: {memory: "%d"}
evictionHard: {memory.available: 100Mi}
evictionSoft: {pid.available: "%d"}
evictionSoftGracePeriod: {pid.available: 2s}
evictionMaxPodGracePeriod: 30
evictionCheckFrequency: 5m
evictionPressureTransitionPeriod: 1s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}`, m.Memory-300*mib, levels[pressure.PIDAvailable].Available-400), 1))
	if err := os.Mkdir(host, 0o777); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	in.start()
	pods := map[string]string{"memory": hog("memory", host, "medium: Memory", 230, ""), "pids": forks("pids", host, 500)}
	for name, text := range pods {
		in.put(name, text)
	}
	first := map[string]corev1.Pod{}
	for name := range pods {
		first[name] = in.ready(name)
	}
	all := in.cgroups.Class(corev1.PodQOSGuaranteed)
	if got := readCgroup(t, all, "memory.max", "memory/memory.limit_in_bytes"); got != strconv.Itoa(300*mib) {
		t.Errorf("all pods have %s", got)
	}
	in.write(filepath.Join(host, "go-memory"), "")
	in.eventually("the memory is used", func() error {
		used, err := strconv.Atoi(readCgroup(t, all, "memory.current", "memory/memory.usage_in_bytes"))
		if err == nil && used < 220*mib {
			err = fmt.Errorf("%d bytes", used)
		}
		return err
	})
	if p := in.ready("memory"); p.UID != first["memory"].UID {
		t.Errorf("somebody has looked: %s", brief(p))
	}
	thrash(t)
	for _, s := range []struct{ name, want string }{
		{"memory", "The node was low on resource: memory. Threshold quantity: 100Mi, available: "},
		{"pids", "The node was low on resource: pids. Threshold quantity: "},
	} {
		in.write(filepath.Join(host, "go-"+s.name), "")
		p := in.pod(s.name, "is evicted", func(p corev1.Pod) bool { return p.Status.Reason == "Evicted" })
		if p.UID != first[s.name].UID || !strings.HasPrefix(p.Status.Message, s.want) {
			t.Errorf("%s: %s", s.name, p.Status.Message)
		}
		t.Logf("%s is evicted after %s: %s", s.name, time.Since(began).Round(time.Second/10), p.Status.Message)
		in.pod(s.name, "recreated", func(p corev1.Pod) bool { return isReady(p) && p.UID != first[s.name].UID })
		t.Logf("%s is back after %s", s.name, time.Since(began).Round(time.Second/10))
	}
}
