package runner_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

func TestDiskLimitsEvictPod(t *testing.T) {
	const mi = 1 << 20
	for _, tt := range []struct {
		name            string
		dirs, container map[string]int64
		others          int64
		want            string
	}{
		{name: "nothing", want: ""},
		{name: "all that is allowed", dirs: map[string]int64{"v": mi, "w": mi}, container: map[string]int64{"a": 2 * mi}},
		{name: "a volume", dirs: map[string]int64{"v": mi + 1}, want: `Usage of EmptyDir volume "v" exceeds the limit "1Mi".`},
		{name: "a volume in memory has another limit", dirs: map[string]int64{"m": 2 * mi}},
		{name: "a container", container: map[string]int64{"b": 2*mi + 1}, want: `Container b exceeded its local ephemeral storage limit "2Mi".`},
		{name: "the whole pod", dirs: map[string]int64{"w": 2 * mi}, container: map[string]int64{"a": mi, "side": mi + 1}, want: "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi."},
		{name: "what is in no container", container: map[string]int64{"a": mi}, others: 3*mi + 1, want: "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi."},
		{name: "the whole pod comes before a container", container: map[string]int64{"a": 5 * mi}, want: "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi."},
		{name: "a volume comes before all", dirs: map[string]int64{"v": 9 * mi}, container: map[string]int64{"a": 5 * mi}, want: `Usage of EmptyDir volume "v" exceeds the limit "1Mi".`},
	} {
		used := &runner.DiskUsage{EmptyDirs: tt.dirs, Containers: tt.container, Others: tt.others}
		if got := runner.Overuse(&runtimetest.DiskPod().Object.Spec, used).Detail; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := runner.Overuse(&runtimetest.DiskPod().Object.Spec, nil).Detail; got != "" {
		t.Errorf("before it is measured: %s", got)
	}
}

func TestContainerDiskLimit(t *testing.T) {
	const mi = 1 << 20
	spec := runtimetest.DiskPod().Object.Spec
	for container, want := range map[string]int64{"a": 2 * mi, "b": 2 * mi, "side": 4 * mi} {
		if got := runner.ContainerDiskLimit(&spec, container); got != want {
			t.Errorf("%s: %d, want %d", container, got, want)
		}
	}
	if got := runner.ContainerDiskLimit(&corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}, "a"); got != 0 {
		t.Errorf("without limits: %d", got)
	}
}

func TestLimitsDisk(t *testing.T) {
	for want, pods := range map[bool][]*manifests.Pod{
		true: {
			runtimetest.DiskPod(),
			runtimetest.Edited(runtimetest.DiskPod(), func(p *corev1.Pod) { p.Spec.Volumes = nil }),
			runtimetest.Edited(runtimetest.DiskPod(), func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:0] }),
		},
		false: {
			runtimetest.NewPod("plain", runtimetest.NewContainer("a", runtimetest.ScriptServe)),
			runtimetest.Edited(runtimetest.DiskPod(), func(p *corev1.Pod) { p.Spec.Containers, p.Spec.Volumes = nil, p.Spec.Volumes[1:] }),
		},
	} {
		for i, pod := range pods {
			if got := runner.LimitsDisk(&pod.Object.Spec); got != want {
				t.Errorf("pod %d: %t, want %t", i, got, want)
			}
		}
	}
}

func TestOveruseNamesTheLimit(t *testing.T) {
	spec := &runtimetest.DiskPod().Object.Spec
	for limit, used := range map[cause.Fault]runner.DiskUsage{
		cause.VolumeLimit:    {EmptyDirs: map[string]int64{"v": 2 << 20}},
		cause.PodLimit:       {Others: 5 << 20},
		cause.ContainerLimit: {Containers: map[string]int64{"b": 3 << 20}},
	} {
		if got := runner.Overuse(spec, &used); got.Kind != cause.Evicted || got.Fault != limit {
			t.Errorf("%+v: %+v, want %s", used, got, limit)
		}
	}
}

// More usage never ends an eviction, and a pod without limits is never evicted.
func TestOveruseIsMonotonic(t *testing.T) {
	limited, free := &runtimetest.DiskPod().Object.Spec, &runtimetest.NewPod("web", runtimetest.NewContainer("a", "")).Object.Spec
	bytes := rapid.Int64Range(0, 8<<20)
	rapid.Check(t, func(rt *rapid.T) {
		usage := func(label string) runner.DiskUsage {
			return runner.DiskUsage{
				EmptyDirs:  map[string]int64{"v": bytes.Draw(rt, label+" v"), "w": bytes.Draw(rt, label+" w")},
				Containers: map[string]int64{"a": bytes.Draw(rt, label+" a"), "side": bytes.Draw(rt, label+" side")},
				Others:     bytes.Draw(rt, label+" others"),
			}
		}
		less, growth := usage("first"), usage("growth")
		more := runner.DiskUsage{EmptyDirs: map[string]int64{}, Containers: map[string]int64{}, Others: less.Others + growth.Others}
		for name, n := range less.EmptyDirs {
			more.EmptyDirs[name] = n + growth.EmptyDirs[name]
		}
		for name, n := range less.Containers {
			more.Containers[name] = n + growth.Containers[name]
		}
		if runner.Overuse(limited, &less).Kind != "" && runner.Overuse(limited, &more).Kind == "" {
			rt.Fatalf("%+v exceeds a limit, %+v does not", less, more)
		}
		if over := runner.Overuse(free, &more); over != (cause.Cause{}) {
			rt.Fatalf("a pod without limits: %+v", over)
		}
	})
}
