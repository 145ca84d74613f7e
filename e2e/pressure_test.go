//go:build e2e

package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
	"monopod/node/capacity"
)

// hog is a pod that writes so many MiB to a volume, in memory or on disk, when triggered, but only once: not after it was evicted and
// started again.
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

// strained is an instance on a small disk of its own, with little memory for pods.
type strained struct {
	*instance
	root, host string
	began      time.Time
}

const mib = 1 << 20

// newStrained starts one: all pods together have 400 MiB of memory, and disk pressure starts when 300 of 800 MiB are free.
func newStrained(t *testing.T) *strained {
	t.Helper()
	dir, root := t.TempDir(), filepath.Join(t.TempDir(), "root")
	loopDisk(t, root, 800)
	m, err := capacity.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	in := &strained{instance: newInstanceIn(t, dir), root: root, host: filepath.Join(dir, "host"), began: time.Now()}
	t.Cleanup(in.cleanup)
	testimages.ArchiveOf(t, filepath.Join(dir, "images", "spare.tar"), testimages.Busybox(t, nil, testimages.File{Path: "spare", Content: []byte("spare")}), spareImage)
	in.write(in.config, strings.NewReplacer("rootDirectory: "+filepath.Join(dir, "root"), "rootDirectory: "+root, "evictionHard: {memory.available: 10Mi}", fmt.Sprintf(`systemReserved: {memory: "%d", cpu: "%dm"}
evictionHard: {memory.available: 100Mi, nodefs.available: 300Mi}
evictionCheckFrequency: 1s
evictionPressureTransitionPeriod: 2s
imageMinimumGCAge: 0s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
nodeLabels: {disk: small}`, m.Memory-400*mib, m.MilliCPU-1000)).Replace(in.read("config.yaml")))
	if err := errors.Join(os.Mkdir(in.host, 0o777), os.Chmod(in.host, 0o777)); err != nil {
		t.Fatal(err)
	}
	in.start()
	return in
}

func (in *strained) step(what string) {
	in.t.Logf("%4.1f s: %s", time.Since(in.began).Seconds(), what)
}

// spareImage is in an archive, and no pod uses it.
const spareImage = "monopod.test/spare:1"

// quiet is a protected, idle pod, with additional fields in its spec and container.
func quiet(name, spec, container string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {monopod.dev/protected: \"true\"}}\nspec:\n  %s\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: c, image: %s, command: [sh, -c, \"trap exit TERM; while :; do sleep 1; done\"]%s}\n", name, spec, image, container)
}

// waits waits until a pod may not start for this reason.
func (in *strained) waits(name, reason string) corev1.Pod {
	in.t.Helper()
	return in.pod(name, "waits with "+reason, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodPending && p.Status.Reason == reason })
}

// TestPressure: under pressure, unused images and dead containers are removed first, then pods are evicted, which start again later.
func TestPressure(t *testing.T) {
	t.Parallel()
	in := newStrained(t)
	// It has more on the disk than any other pod: only its protection keeps it.
	in.put("stays", quiet("stays", "priority: 0\n  volumes: [{name: kept, emptyDir: {}}]", ", volumeMounts: [{name: kept, mountPath: /kept}], "+
		"lifecycle: {postStart: {exec: {command: [dd, if=/dev/zero, of=/kept/f, bs=1M, count=40]}}}"))
	stays := in.ready("stays")
	in.put("disk", hog("disk", in.host, "", 20, ""))
	in.put("memory", hog("memory", in.host, "medium: Memory", 330, ""))
	in.diskRunsFull()
	in.memoryRunsOut()

	// Pods have only one processor.
	cpu := func(milli int) string { return fmt.Sprintf(", resources: {requests: {cpu: %dm}}", milli) }
	in.put("first", quiet("first", "priority: 1", cpu(700)))
	in.ready("first")
	in.put("second", quiet("second", "priority: 1", cpu(700)))
	if p := in.waits("second", "OutOfcpu"); p.Status.Message != "Node didn't have enough resource: cpu, requested: 700, used: 700, capacity: 1000" {
		t.Errorf("%s", p.Status.Message)
	}
	in.put("other", quiet("other", "nodeSelector: {disk: large}", ""))
	in.waits("other", "NodeAffinity")
	for name, term := range map[string]string{
		"labeled": "{matchExpressions: [{key: disk, operator: In, values: [large]}]}",
		"named":   "{matchFields: [{key: metadata.name, operator: NotIn, values: [e2e]}]}",
	} {
		in.put(name, quiet(name, "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["+term+"]}}}", ""))
		in.waits(name, "NodeAffinity")
		in.drop(name)
	}
	in.step("kill the agent")
	in.kill9()
	in.start()
	in.ready("first")
	in.waits("second", "OutOfcpu")
	in.drop("first")
	in.ready("second")
	in.put("second", strings.Replace(quiet("second", "priority: 1", cpu(700)), ", annotations: {monopod.dev/protected: \"true\"}", "", 1))
	in.put("classes", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n")
	in.eventually("the annotation is gone", func() error {
		if p := in.ready("second"); p.Annotations["monopod.dev/protected"] != "" {
			return fmt.Errorf("%v", p.Annotations)
		}
		return nil
	})
	in.put("important", quiet("important", "priorityClassName: high\n  preemptionPolicy: Never", cpu(600)))
	in.waits("important", "OutOfcpu")
	in.ready("second")
	in.put("important", quiet("important", "priorityClassName: high", cpu(600)))
	if p := in.ready("important"); p.Spec.Priority == nil || *p.Spec.Priority != 1000 {
		t.Errorf("priority %v", p.Spec.Priority)
	}
	in.pod("second", "has made room", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Preempting" })
	in.drop("important")
	in.ready("second")
	in.step("preempted and back")
	if p := in.ready("stays"); p.UID != stays.UID || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the protected pod: %s", brief(p))
	}
}

// free returns the free space of the disk.
func (in *strained) free() int64 {
	in.t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(in.root, &s); err != nil {
		in.t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// fill fills the disk until so many bytes are left.
func (in *strained) fill(left int64) {
	in.t.Helper()
	f, err := os.OpenFile(filepath.Join(in.root, "filler"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		in.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	at, err := f.Seek(0, 2)
	if err != nil {
		in.t.Fatal(err)
	}
	more := in.free() - left
	for err = unix.Fallocate(int(f.Fd()), 0, at, more); errors.Is(err, unix.ENOSPC) && left == 0 && more > mib; err = unix.Fallocate(int(f.Fd()), 0, at, more) {
		more -= mib / 4
	}
	if err != nil {
		in.t.Fatalf("fill the disk by %d bytes: %v", more, err)
	}
	in.step(fmt.Sprintf("%d MiB of the disk are left", in.free()/mib))
}

// images returns the output of `monopod images`.
func (in *strained) images() string {
	in.t.Helper()
	out, err := in.run("images")
	if err != nil {
		in.t.Fatal(err)
	}
	return out
}

// diskRunsFull: the files of a dead container are removed first, then an unused image, then a pod.
func (in *strained) diskRunsFull() {
	in.t.Helper()
	registry := testimages.Registry(in.t)
	content := make([]byte, 40*mib)
	if _, err := rand.Read(content); err != nil {
		in.t.Fatal(err)
	}
	unused := registry + "/unused:1"
	testimages.Push(in.t, unused, testimages.Busybox(in.t, nil, testimages.File{Path: "content", Content: content}))
	in.put("done", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: done}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: %s, command: [sh, -c, \"head -c 31457280 /dev/zero >/f\"]}\n", image))
	if out, err := in.run("pull", unused); err != nil {
		in.t.Fatalf("%v: %s", err, out)
	}
	first := in.ready("disk")
	in.write(filepath.Join(in.host, "go-disk"), "")
	in.pod("done", "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	in.eventually("the volume is written to", func() error {
		if list, _ := filepath.Glob(filepath.Join(in.root, "pods", "*", "volumes", "*", "v", "f")); len(list) != 1 {
			return fmt.Errorf("%v", list)
		} else if s, err := os.Stat(list[0]); err != nil || s.Size() < 20*mib {
			return fmt.Errorf("%w %v", err, s)
		}
		return nil
	})
	unix.Sync()

	enough := func(what string) {
		in.t.Helper()
		in.eventually(what+" was enough", func() error {
			if free := in.free(); free < 300*mib {
				return fmt.Errorf("%d MiB are free", free/mib)
			}
			return nil
		})
		in.step(what + " was enough")
	}
	in.fill(290 * mib)
	enough("what a container has left")
	if out := in.images(); !strings.Contains(out, unused) {
		in.t.Errorf("an image went while containers had left enough:\n%s", out)
	}
	in.fill(270 * mib)
	enough("an image")
	if out := in.images(); strings.Contains(out, unused) || !strings.Contains(out, spareImage) {
		in.t.Errorf("images:\n%s", out)
	}
	in.fill(0)
	in.evicted("disk", "ephemeral-storage", first)
	in.put("late", quiet("late", "priority: 0", ""))
	if late := in.waits("late", "Evicted"); !strings.HasPrefix(late.Status.Message, "The node had condition: [") {
		in.t.Errorf("a new pod: %s", late.Status.Message)
	}
	in.happens([]string{}, "EvictionInVain", "nodefs.available")
	in.fill(0)
	if out := in.images(); !strings.Contains(out, spareImage) || !strings.Contains(out, image) {
		in.t.Errorf("images when the disk is full:\n%s", out)
	}
	if out, err := in.run("status"); err != nil || !regexp.MustCompile(`DiskPressure +True +\d+s +kubelet has disk pressure\nPIDPressure +False`).MatchString(out) {
		in.t.Errorf("status: %v\n%s", err, out)
	}
	if out := in.curl("/metrics"); !strings.Contains(out, `monopod_node_condition{condition="DiskPressure"} 1`) || !strings.Contains(out, `kubelet_evictions{eviction_signal="nodefs.available"} 1`) {
		in.t.Errorf("metrics:\n%s", out)
	}
	in.step("kill the agent while the disk is full")
	in.kill9()
	in.start()
	in.ready("stays")
	if err := os.Remove(filepath.Join(in.root, "filler")); err != nil {
		in.t.Fatal(err)
	}
	in.back("disk", first)
	in.ready("late")
	in.drop("late")
	in.gone("late")
}

func (in *strained) memoryRunsOut() {
	in.t.Helper()
	first := in.ready("memory")
	in.write(filepath.Join(in.host, "go-memory"), "")
	in.evicted("memory", "memory", first)
	in.back("memory", first)
}

// evicted waits until a pod is evicted, and checks the events.
func (in *strained) evicted(name, low string, first corev1.Pod) {
	in.t.Helper()
	p := in.pod(name, "is evicted", func(p corev1.Pod) bool { return p.Status.Reason == "Evicted" })
	if p.UID != first.UID || p.Status.Phase != corev1.PodFailed || !strings.HasPrefix(p.Status.Message, "The node was low on resource: "+low+". Threshold quantity: ") {
		in.t.Errorf("%s: %s", brief(p), p.Status.Message)
	}
	in.step(name + " is evicted")
}

// back waits until an evicted pod runs again.
func (in *strained) back(name string, first corev1.Pod) {
	in.t.Helper()
	in.pod(name, "recreated", func(p corev1.Pod) bool { return isReady(p) && p.UID != first.UID })
	in.step(name + " is back")
	in.drop(name)
}
