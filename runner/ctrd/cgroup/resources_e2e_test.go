//go:build e2e

package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/spec"
)

// sized returns a pod of one container with these resources, which runs a script.
func sized(t testing.TB, name, resources, script string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
    resources: %s
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: NotRequired}]
`, name, ctrdtest.TestImage, script, resources))
}

// TestPodsThatAreMadeTogetherWeighTogether creates many sandboxes in parallel.
func TestPodsThatAreMadeTogetherWeighTogether(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	const n = 8
	var g errgroup.Group
	for i := range n {
		pod := sized(t, fmt.Sprintf("p%d", i), "{requests: {cpu: 250m}}", "exec sleep 1000")
		g.Go(func() error {
			return a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateSandbox, UID: "uid-" + pod.Object.Name})
		})
	}
	ctrdtest.Check(t, g.Wait())
	if got, want := a.Weight(t, w.Config().CgroupParent+"/burstable"), a.WeightOf(n*256); got != want {
		t.Errorf("the cgroup of all burstable pods weighs %s, want %s", got, want)
	}
	for i := range n {
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, manifests.Key{Namespace: "default", Name: fmt.Sprintf("p%d", i)}))
	}
}

func TestPodsAreInTheCgroupsOfTheirClass(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.Enforce.PodPidsLimit = 77 })
	defer a.End(t)
	root := w.Config().CgroupParent
	for _, c := range []struct {
		name, resources string
		parent          string
		limits          string
		shares          uint64
	}{
		{"best", "{}", root + "/besteffort", "quota -1 memory -1", 2},
		{"half", "{requests: {cpu: 250m}, limits: {memory: 64Mi}}", root + "/burstable", "quota -1 memory 67108864", 256},
		{"burst", "{requests: {cpu: 250m}, limits: {cpu: 500m}}", root + "/burstable", "quota 50000 memory -1", 256},
		{"sure", "{limits: {cpu: 200m, memory: 32Mi}}", root, "quota 20000 memory 33554432", 204},
	} {
		pod := sized(t, c.name, c.resources, "exec sleep 1000")
		a.Drive(t, pod.Key(), pod)
		cg := a.ContainerCgroup(t, pod.Key())
		if dir := filepath.Dir(cg); dir != c.parent+"/poduid-"+c.name {
			t.Errorf("%s: its cgroup is %s", c.name, dir)
		}
		pid := a.PID(t, pod.Key())
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		ctrdtest.Check(t, err)
		if !strings.Contains(string(b), cg+"\n") {
			t.Errorf("%s: its process is in\n%s", c.name, b)
		}
		if got := a.Limits(t, filepath.Dir(cg)); got != c.limits {
			t.Errorf("%s: the pod has %s, want %s", c.name, got, c.limits)
		}
		if got := a.Weight(t, filepath.Dir(cg)); got != a.WeightOf(c.shares) {
			t.Errorf("%s: the pod weighs %s, want %s", c.name, got, a.WeightOf(c.shares))
		}
		if got := a.Cgroup(t, filepath.Dir(cg), "pids.max", "pids/pids.max"); got != "77" {
			t.Errorf("%s: pids.max of the pod is %s", c.name, got)
		}
	}
	if got := a.Weight(t, root+"/burstable"); got != a.WeightOf(512) {
		t.Errorf("both burstable pods weigh %s", got)
	}
	if got := a.Weight(t, root+"/besteffort"); got != a.WeightOf(2) {
		t.Errorf("best-effort pods weigh %s", got)
	}
	for _, name := range []string{"best", "half", "burst", "sure"} {
		a.Drive(t, manifests.Key{Namespace: "default", Name: name}, nil)
	}
	a.Idle(t)
	if left := a.PodCgroups.Cgroups.Pods(); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
	if got := a.Weight(t, root+"/burstable"); got != a.WeightOf(2) {
		t.Errorf("no burstable pods weigh %s", got)
	}
}

func TestResourcesAreChangedInPlace(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	pod := sized(t, "resized", "{requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 32Mi}}", "exec sleep 1000")
	key := pod.Key()
	a.Drive(t, key, pod)
	pid, cg := a.PID(t, key), a.ContainerCgroup(t, key)
	for _, c := range []struct {
		resources, limits string
		shares            uint64
	}{
		{"{requests: {cpu: 300m, memory: 16Mi}, limits: {cpu: 900m, memory: 128Mi}}", "quota 90000 memory 134217728", 307},
		{"{requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 300m, memory: 24Mi}}", "quota 30000 memory 25165824", 102},
		{"{requests: {cpu: 50m, memory: 16Mi}, limits: {memory: 48Mi}}", "quota -1 memory 50331648", 51},
		{"{requests: {cpu: 50m, memory: 16Mi}}", "quota -1 memory -1", 51},
	} {
		pod = sized(t, "resized", c.resources, "exec sleep 1000")
		if did := fmt.Sprint(a.Drive(t, key, pod)); did != "[UpdateResources c RecordPod UpdateResources]" {
			t.Errorf("%s: it took %s", c.resources, did)
		}
		for what, path := range map[string]string{"container": cg, "pod": filepath.Dir(cg)} {
			if got := a.Limits(t, path); got != c.limits {
				t.Errorf("%s: the %s has %s, want %s", c.resources, what, got, c.limits)
			}
		}
		if got := a.Weight(t, filepath.Dir(cg)); got != a.WeightOf(c.shares) {
			t.Errorf("%s: the pod weighs %s, want %s", c.resources, got, a.WeightOf(c.shares))
		}
		if got := a.PID(t, key); got != pid {
			t.Errorf("%s: the process is %d, was %d", c.resources, got, pid)
		}
	}
	a.Stop(t)
	a = w.Open(t)
	if did := a.Drive(t, key, pod); len(did) > 0 {
		t.Errorf("after a restart of the agent it took %v", did)
	}
	has := a.State(t, key).Containers[0].Resources
	if has == nil || has.Limits != nil || has.Requests.Cpu().String() != "50m" {
		t.Errorf("after a restart of the agent the resources are %+v", has)
	}
	a.Drive(t, key, nil)
}

func TestAResizePolicyRestarts(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	pod := sized(t, "strict", "{requests: {memory: 16Mi}, limits: {memory: 32Mi}}", "exec sleep 1000")
	pod.Object.Spec.Containers[0].ResizePolicy[1].RestartPolicy = corev1.RestartContainer
	key := pod.Key()
	a.Drive(t, key, pod)
	pid := a.PID(t, key)
	bigger := sized(t, "strict", "{requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 48Mi}}", "exec sleep 1000")
	bigger.Object.Spec.Containers[0].ResizePolicy[1].RestartPolicy = corev1.RestartContainer
	a.Drive(t, key, bigger)
	st := a.State(t, key)
	if c := st.Containers[0]; len(st.Containers) != 1 || c.PID == pid || c.RestartCount != 1 || c.State != runner.ContainerRunning {
		t.Errorf("%+v", st.Containers)
	}
	cg := a.ContainerCgroup(t, key)
	for _, path := range []string{cg, filepath.Dir(cg)} {
		if got := a.Limits(t, path); got != "quota -1 memory 50331648" {
			t.Errorf("%s has %s", path, got)
		}
	}
	a.Drive(t, key, nil)
}

func TestMemoryInUseIsNotTakenAway(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	pod := sized(t, "holds", "{limits: {cpu: 500m, memory: 96Mi}}", "dd if=/dev/zero of=/dev/shm/x bs=1M count=40 && touch /dev/shm/done; exec sleep 1000")
	key := pod.Key()
	a.Drive(t, key, pod)
	pid, cg := a.PID(t, key), a.ContainerCgroup(t, key)
	ctrdtest.Within(t, 20*time.Second, "memory is in use", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/shm/done", pid))
		return err == nil
	})
	less := sized(t, "holds", "{limits: {cpu: 500m, memory: 24Mi}}", "dd if=/dev/zero of=/dev/shm/x bs=1M count=40 && touch /dev/shm/done; exec sleep 1000")
	c := a.State(t, key).Containers[0]
	err := a.Apply(t.Context(), key, less, runner.Action{Kind: runner.UpdateResources, Container: "c", ContainerID: c.ID})
	if se, ok := errors.AsType[*runner.StepError](err); !ok || se.Reason != runner.ReasonResizeError || !strings.Contains(se.Error(), "memory limit (25165824) below current usage (") {
		t.Errorf("taking memory away that is in use: %v", err)
	}
	if err := a.Apply(t.Context(), key, less, runner.Action{Kind: runner.UpdateResources}); err == nil || !strings.Contains(err.Error(), "memory limit (25165824) below current usage (") {
		t.Error("the pod's memory can be taken away")
	}
	st := a.State(t, key)
	if now := st.Containers[0]; now.PID != pid || !ctrdtest.Alive(pid) || now.Resources.Limits.Memory().String() != "96Mi" || st.Sandbox.ResourcesHash != podhash.PodResources(pod.Object) {
		t.Errorf("after the refusal: %+v", now)
	}
	if got := a.Limits(t, cg); got != "quota 50000 memory 100663296" {
		t.Errorf("after the refusal the container has %s", got)
	}
	ctrdtest.Check(t, os.Remove(fmt.Sprintf("/proc/%d/root/dev/shm/x", pid)))
	a.Drive(t, key, less)
	if got := a.Limits(t, cg); got != "quota 50000 memory 25165824" || a.PID(t, key) != pid {
		t.Errorf("when the memory is given back the container has %s", got)
	}
	a.Drive(t, key, nil)
}

func TestResourcesOfThePodAsAWhole(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	whole := func(resources string) *manifests.Pod {
		pod := ctrdtest.Load(t, `
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  resources: `+resources+`
  containers:
  - {name: c, image: `+ctrdtest.TestImage+`, command: [sleep, "1000"]}
  - {name: d, image: `+ctrdtest.TestImage+`, command: [sleep, "1000"], resources: {limits: {memory: 16Mi}}}
`)
		return pod
	}
	pod := whole("{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 300m, memory: 64Mi}}")
	key := pod.Key()
	a.Drive(t, key, pod)
	cgroups := func() map[string]string {
		got := map[string]string{}
		for _, c := range a.Index.OfPod(key) {
			got[c.Meta.Name] = a.Limits(t, a.PodCgroups.CgroupOf(c))
			got["pod"] = a.Limits(t, filepath.Dir(a.PodCgroups.CgroupOf(c)))
		}
		return got
	}
	want := map[string]string{"pod": "quota 30000 memory 67108864", "c": "quota 30000 memory 67108864", "d": "quota 30000 memory 16777216"}
	if got := cgroups(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := a.State(t, key).Sandbox.Resources; got == nil || got.Requests.Cpu().String() != "100m" || got.Limits.Cpu().String() != "300m" || got.Limits.Memory().String() != "64Mi" {
		t.Errorf("the record of the pod has %+v", got)
	}
	before := fmt.Sprint(a.State(t, key).Containers[0].PID, a.State(t, key).Containers[1].PID)
	a.Drive(t, key, whole("{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 400m, memory: 80Mi}}"))
	want = map[string]string{"pod": "quota 40000 memory 83886080", "c": "quota 40000 memory 83886080", "d": "quota 40000 memory 16777216"}
	if got := cgroups(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after an edit: got  %v\nwant %v", got, want)
	}
	if got := a.State(t, key).Sandbox.Resources; got == nil || got.Limits.Cpu().String() != "400m" || got.Limits.Memory().String() != "80Mi" {
		t.Errorf("after an edit the record of the pod has %+v", got)
	}
	if after := fmt.Sprint(a.State(t, key).Containers[0].PID, a.State(t, key).Containers[1].PID); after != before {
		t.Errorf("the edit restarted something: %s, was %s", after, before)
	}
	a.Drive(t, key, nil)
}

func TestQuotasFollowTheConfiguration(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	for _, c := range []struct {
		enforce       spec.Enforcement
		quota, period string
	}{
		{spec.Enforcement{NoCPUQuota: true}, "-1", "100000"},
		{spec.Enforcement{CPUPeriod: 10_000}, "5000", "10000"},
	} {
		a := w.OpenWith(t, func(cfg *ctrd.Config) { cfg.Enforce = c.enforce })
		pod := sized(t, "quota", "{limits: {cpu: 500m, memory: 64Mi}}", "exec sleep 1000")
		a.Drive(t, pod.Key(), pod)
		cg := a.ContainerCgroup(t, pod.Key())
		for _, path := range []string{cg, filepath.Dir(cg)} {
			v := a.PodCgroups.Cgroups.Values(path)
			if got := cgroup.OrUnlimited(v.Quota); got != c.quota || fmt.Sprint(v.Period) != c.period {
				t.Errorf("%+v: %s has %s of %d", c.enforce, path, got, v.Period)
			}
		}
		a.Drive(t, pod.Key(), nil)
		a.End(t)
	}
}
