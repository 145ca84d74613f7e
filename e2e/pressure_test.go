//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/capacity"
)

// hog is a pod that writes so many MiB to a volume, of memory or on disk, when it is told to, but only once: not when it comes back.
func hog(name, host, medium string, mib int, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  %[6]s
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %[2]s
    command: [sh, -c, "trap exit TERM; test -e /host/%[1]s || { until test -e /host/go-%[1]s; do sleep 0.2; done; touch /host/%[1]s; dd if=/dev/zero of=/v/f bs=1M count=%[5]d; }; while :; do sleep 1; done"]
    volumeMounts: [{name: v, mountPath: /v}, {name: host, mountPath: /host}]
  volumes: [{name: v, emptyDir: {%[4]s}}, {name: host, hostPath: {path: %[3]s}}]
`, name, image, host, medium, mib, more)
}

// loopDisk mounts a file system of so many MiB.
func loopDisk(t *testing.T, dir string, mib int) {
	t.Helper()
	file := dir + ".img"
	for _, args := range [][]string{
		{"truncate", "-s", fmt.Sprintf("%dM", mib), file}, {"mkfs.ext4", "-q", "-m", "0", file}, {"mkdir", "-p", dir}, {"mount", "-o", "loop", file, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
}

// TestPressure: pods together have 400 MiB and a disk of 600 MiB.
func TestPressure(t *testing.T) {
	t.Parallel()
	dir, root := t.TempDir(), filepath.Join(t.TempDir(), "root")
	loopDisk(t, root, 600)
	m, err := capacity.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	in := newInstanceIn(t, dir)
	t.Cleanup(in.cleanup)
	began := time.Now()
	step := func(what string) { t.Logf("%4.1f s: %s", time.Since(began).Seconds(), what) }
	in.write(in.config, strings.NewReplacer("rootDirectory: "+filepath.Join(dir, "root"), "rootDirectory: "+root, "evictionHard: {memory.available: 10Mi}", fmt.Sprintf(`systemReserved: {memory: "%d", cpu: "%dm"}
evictionHard: {memory.available: 100Mi, nodefs.available: 400Mi}
evictionCheckFrequency: 1s
evictionPressureTransitionPeriod: 4s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
nodeLabels: {disk: small}`, m.Memory-400*mib, m.MilliCPU-1000)).Replace(in.read("config.yaml")))
	host := filepath.Join(dir, "host")
	if err := os.Mkdir(host, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(host, 0o777); err != nil {
		t.Fatal(err)
	}
	in.start()
	drop := func(name string) {
		t.Helper()
		if err := os.Remove(filepath.Join(in.manifests, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func(name, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {monopod.dev/protected: \"true\"}}\nspec:\n  %s\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: c, image: %s, command: [sh, -c, \"trap exit TERM; while :; do sleep 1; done\"]%s}\n", name, strings.SplitN(more, "|", 2)[0], image, strings.SplitN(more, "|", 2)[1])
	}
	waits := func(name, reason string) corev1.Pod {
		t.Helper()
		return in.pod(name, "waits with "+reason, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodPending && p.Status.Reason == reason })
	}
	comesBack := func(name, low string) {
		t.Helper()
		first := in.ready(name)
		in.write(filepath.Join(host, "go-"+name), "")
		p := in.pod(name, "is evicted", func(p corev1.Pod) bool { return p.Status.Reason == "Evicted" })
		if p.UID != first.UID || p.Status.Phase != corev1.PodFailed || !strings.HasPrefix(p.Status.Message, "The node was low on resource: "+low+". Threshold quantity: ") {
			t.Errorf("%s: %s", brief(p), p.Status.Message)
		}
		in.put("late", quiet("late", "priority: 0|"))
		if late := waits("late", "Evicted"); !strings.HasPrefix(late.Status.Message, "The node had condition: [") {
			t.Errorf("a new pod: %s", late.Status.Message)
		}
		step(name + " is evicted")
		in.pod(name, "comes back", func(p corev1.Pod) bool { return isReady(p) && p.UID != first.UID })
		step(name + " is back")
		in.ready("late")
		drop("late")
		drop(name)
	}
	in.put("stays", quiet("stays", "priority: 0|"))
	stays := in.ready("stays")

	in.put("memory", hog("memory", host, "medium: Memory", 330, ""))
	comesBack("memory", "memory")
	in.put("disk", hog("disk", host, "", 250, ""))
	comesBack("disk", "ephemeral-storage")

	const cpu = ", resources: {requests: {cpu: %s}}"
	in.put("first", quiet("first", "priority: 1|"+fmt.Sprintf(cpu, "700m")))
	in.ready("first")
	in.put("second", quiet("second", "priority: 1|"+fmt.Sprintf(cpu, "700m")))
	if p := waits("second", "OutOfcpu"); p.Status.Message != "Node didn't have enough resource: cpu, requested: 700, used: 700, capacity: 1000" {
		t.Errorf("%s", p.Status.Message)
	}
	in.put("other", quiet("other", "nodeSelector: {disk: large}|"))
	waits("other", "NodeAffinity")
	step("kill the agent")
	in.kill9()
	in.start()
	in.ready("first")
	waits("second", "OutOfcpu")
	drop("first")
	in.ready("second")
	in.put("second", strings.Replace(quiet("second", "priority: 1|"+fmt.Sprintf(cpu, "700m")), ", annotations: {monopod.dev/protected: \"true\"}", "", 1))
	in.put("classes", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n")
	in.eventually("the annotation is gone", func() error {
		if p := in.ready("second"); p.Annotations["monopod.dev/protected"] != "" {
			return fmt.Errorf("%v", p.Annotations)
		}
		return nil
	})
	in.put("important", quiet("important", "priorityClassName: high|"+fmt.Sprintf(cpu, "600m")))
	if p := in.ready("important"); p.Spec.Priority == nil || *p.Spec.Priority != 1000 {
		t.Errorf("priority %v", p.Spec.Priority)
	}
	in.pod("second", "has made room", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Preempting" })
	drop("important")
	in.ready("second")
	step("preempted and back")
	if p := in.ready("stays"); p.UID != stays.UID || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the protected pod: %s", brief(p))
	}
}
