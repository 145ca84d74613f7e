//go:build e2e

package usage_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd"
)

// usagePod writes 1 MiB into its writable layer, 2 MiB into volume v, 1 MiB into w and 128 KiB into its log, waits for a
// line at its standard input, and writes 4 MiB more into its writable layer.
func usagePod(t testing.TB, name, limits, limit string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    stdin: true
    resources: {limits: {%s}}
    command: [sh, -c, "f() { dd if=/dev/zero of=$1 bs=64k count=$2 2>/dev/null; }; f /f 16; f /v/f 32; f /w/f 16; f /m/f 16;
      head -c 128k /dev/zero | tr '\\0' x | fold -w 99; echo; echo written; read go; f /g 64; echo more; exec sleep 1000"]
    volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}, {name: m, mountPath: /m}]
  volumes: [{name: v, emptyDir: {%s}}, {name: w, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]
`, name, ctrdtest.TestImage, limits, limit))
}

// TestTheUseOfTheDiskIsMeasured of pods that have a limit, and of them what counts for it.
func TestTheUseOfTheDiskIsMeasured(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.UsagePeriod = 20 * time.Millisecond })
	defer a.End(t)
	told := make(chan manifests.Key, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = a.Watch(ctx, func(k manifests.Key) { told <- k }) }()
	volume := usagePod(t, "volume", "", "sizeLimit: 1Mi")
	all := usagePod(t, "all", "ephemeral-storage: 7Mi", "")
	none := usagePod(t, "none", "", "")
	for _, pod := range []*manifests.Pod{none, volume, all} {
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		a.Says(t, pod.Key(), "written")
	}
	disk := func(pod *manifests.Pod) *runner.DiskUsage { return a.State(t, pod.Key()).Sandbox.Disk }
	const mi = 1 << 20
	near := func(got, want int64) bool { return got >= want && got < want+mi/2 }
	ctrdtest.Within(t, 10*time.Second, "the volume with a limit is measured, and nothing else of its pod", func() bool {
		d := disk(volume)
		return d != nil && near(d.EmptyDirs["v"], 2*mi) && len(d.EmptyDirs) == 1 && len(d.Containers) == 0
	})
	ctrdtest.Within(t, 10*time.Second, "all that counts is measured", func() bool {
		d := disk(all)
		return d != nil && near(d.EmptyDirs["v"], 2*mi) && near(d.EmptyDirs["w"], mi) && len(d.EmptyDirs) == 2 && near(d.Containers["c"], mi+128<<10)
	})
	tells := func(pod *manifests.Pod) {
		t.Helper()
		for deadline := time.After(ctrdtest.Patience); ; {
			select {
			case k := <-told:
				if k == pod.Key() {
					return
				}
			case <-deadline:
				t.Fatalf("nobody is told of %s", pod.Key())
			}
		}
	}
	tells(volume)
	if got := runner.Overuse(&all.Object.Spec, disk(all)).Detail; got != "" {
		t.Errorf("before it writes more: %s", got)
	}
	a.TypeIn(t, all.Key(), "go")
	a.Says(t, all.Key(), "more")
	ctrdtest.Within(t, 10*time.Second, "the container has more", func() bool { return near(disk(all).Containers["c"], 5*mi+128<<10) })
	tells(all)
	if got, want := runner.Overuse(&all.Object.Spec, disk(all)).Detail, "Pod ephemeral local storage usage exceeds the total limit of containers 7Mi."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	ctrdtest.Check(t, a.Apply(t.Context(), all.Key(), all, runner.Action{Kind: runner.FailPod, Failure: runner.ReasonEvicted, Message: "too much"}))
	ctrdtest.Within(t, 10*time.Second, "a pod that has failed is not measured", func() bool { return disk(all) == nil })
	if d := disk(none); d != nil {
		t.Errorf("a pod without a limit is measured: %+v", d)
	}
	d, err := a.Meter.MeasureDisk(t.Context(), none.Key())
	ctrdtest.Check(t, err)
	if !near(d.Volumes["v"].Bytes, 2*mi) || !near(d.Volumes["w"].Bytes, mi) || !near(d.Volumes["m"].Bytes, mi) || d.InMemory["v"] || !d.InMemory["m"] {
		t.Errorf("volumes when somebody asks: %+v", d)
	}
	if !near(d.Layers["c"].Bytes, mi) || d.Layers["c"].Inodes < 1 || d.Logs["c"].Bytes < 128<<10 || !near(d.Logs["c"].Bytes, 0) {
		t.Errorf("layers and logs when somebody asks: %+v", d)
	}
	placesAreThere(t, a, none.Key())
	for _, pod := range []*manifests.Pod{none, volume, all} {
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	}
	a.Idle(t)
}

// TestFilesThatAreRemovedWhileTheyAreOpenCount: no walk sees them, and they take room all the same.
func TestFilesThatAreRemovedWhileTheyAreOpenCount(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.UsagePeriod = 20 * time.Millisecond })
	defer a.End(t)
	pod := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: hidden}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    resources: {limits: {ephemeral-storage: 5Mi}}
    securityContext: {runAsUser: 1000}
    command: [sh, -c, "f() { dd if=/dev/zero bs=64k count=$1 2>/dev/null; }; exec 3>/tmp/f 4>/v/f 5>/m/f; rm /tmp/f /v/f /m/f; f 32 >&3; f 64 >&4; f 16 >&5; echo written; exec sleep 1000"]
    volumeMounts: [{name: v, mountPath: /v}, {name: m, mountPath: /m}, {name: t, mountPath: /tmp}]
  volumes: [{name: v, emptyDir: {sizeLimit: 3Mi}}, {name: m, emptyDir: {medium: Memory}}, {name: t, emptyDir: {}}]
`, ctrdtest.TestImage))
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	a.Says(t, pod.Key(), "written")
	const mi = 1 << 20
	ctrdtest.Within(t, 10*time.Second, "both files count", func() bool {
		d := a.State(t, pod.Key()).Sandbox.Disk
		return d != nil && d.EmptyDirs["v"] >= 4*mi && d.EmptyDirs["v"] < 5*mi && d.EmptyDirs["t"] >= 2*mi && d.EmptyDirs["t"] < 3*mi && d.Containers["c"] < mi
	})
	if got, want := runner.Overuse(&pod.Object.Spec, a.State(t, pod.Key()).Sandbox.Disk).Detail, `Usage of EmptyDir volume "v" exceeds the limit "3Mi".`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d, err := a.Meter.MeasureDisk(t.Context(), pod.Key())
	ctrdtest.Check(t, err)
	if d.Volumes["v"].Bytes < 4*mi || d.Volumes["t"].Bytes < 2*mi {
		t.Errorf("for the order of eviction: %+v", d.Volumes)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	// The same in the root file system, as root.
	root := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: hidden-root}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %s, resources: {limits: {ephemeral-storage: 1Mi}}, command: [sh, -c, "exec 3>/f; rm /f; dd if=/dev/zero bs=64k count=32 >&3; echo written; exec sleep 1000"]}]
`, ctrdtest.TestImage))
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, root))
	a.Says(t, root.Key(), "written")
	ctrdtest.Within(t, 10*time.Second, "its container has them", func() bool {
		d := a.State(t, root.Key()).Sandbox.Disk
		return d != nil && d.Containers["c"] >= 2*mi && d.Containers["c"] < 3*mi
	})
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, root.Key()))
	a.Idle(t)
}

// placesAreThere compares the place of a pod's container with what the kernel says of its process.
func placesAreThere(t *testing.T, a *ctrdtest.Agent, key manifests.Key) {
	t.Helper()
	places, err := a.Meter.Places(t.Context())
	ctrdtest.Check(t, err)
	c := a.State(t, key).Containers[0]
	for _, p := range places {
		if p.Key != key {
			continue
		}
		cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.PID))
		ctrdtest.Check(t, err)
		if len(p.Containers) != 1 || p.Containers[0].ID != c.ID || !strings.Contains(string(cgroups), ":"+p.Containers[0].Cgroup+"\n") || !strings.HasPrefix(p.Containers[0].Cgroup, p.Cgroup+"/") {
			t.Errorf("place %+v of a process in\n%s", p, cgroups)
		}
		if !p.HostNetwork || p.UID == "" || p.Containers[0].Name != "c" || p.Containers[0].Started.IsZero() {
			t.Errorf("place %+v", p)
		}
		return
	}
	t.Errorf("%s has no place in %+v", key, places)
}
