package plan_test

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
)

func withImages(p *manifests.Pod, images map[string]string) *manifests.Pod {
	return &manifests.Pod{Object: p.Object, Origin: p.Origin, Images: images}
}

func TestPodRunsRequestedDigests(t *testing.T) {
	old := limited("1", "1Gi")
	pinned := func(digest string) *manifests.Pod { return withImages(old, map[string]string{"a": digest}) }
	for _, c := range []struct {
		name     string
		desired  *manifests.Pod
		recorded *manifests.Pod
		change   func(*runner.Container)
		want     string
	}{
		{"another digest runs", pinned("sha256:b"), old, nil, "[EnsureImage a CreateContainer a (definition changed) StopContainer a (definition changed)]"},
		{"it runs already", pinned("sha256:a"), old, nil, "[RecordPod (manifest changed)]"},
		{"it is recorded", pinned("sha256:a"), pinned("sha256:a"), nil, "[]"},
		{"the digest is removed from the manifest", old, pinned("sha256:a"), nil, "[RecordPod (manifest changed)]"},
		{"the running digest is unknown", pinned("sha256:b"), pinned("sha256:b"), func(c *runner.Container) { c.ImageDigest = "" }, "[]"},
		{"a volume is of another digest", withImages(old, map[string]string{"volume/v": "sha256:b"}), old, nil, "[EnsureImage a CreateContainer a (definition changed) StopContainer a (definition changed)]"},
		{"a volume has the requested digest", withImages(old, map[string]string{"volume/v": "sha256:v"}), old, nil, "[RecordPod (manifest changed)]"},
		{"a volume of that name elsewhere", withImages(old, map[string]string{"volume/w": "sha256:b"}), old, nil, "[RecordPod (manifest changed)]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(old)
			o.Sandbox.Pod = c.recorded
			o.Containers[0].ImageDigest, o.Containers[0].VolumeImages = "sha256:a", map[string]string{"v": "sha256:v"}
			if c.change != nil {
				c.change(&o.Containers[0])
			}
			actions, _ := plan.Plan(zero, c.desired, o)
			if got := fmt.Sprint(actions); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestStatusContainsRunningDigests(t *testing.T) {
	pod := edited(testPod("web", testContainer("a", ""), testContainer("b", ""), testContainer("c", "")), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{testContainer("init", "")}
	})
	in := podstatus.Input{Now: zero, Key: pod.Key(), Desired: pod}
	in.Sandbox = &runner.Sandbox{ID: "s", Alive: true, Pod: pod}
	in.Containers = []runner.Container{
		with(exited("0", "init", 0, 5), func(c *runner.Container) { c.ImageDigest = "sha256:init" }),
		with(exited("1", "a", 1, 5), func(c *runner.Container) { c.ImageDigest = "sha256:former" }),
		with(running("2", "a", 6), func(c *runner.Container) {
			c.ImageDigest, c.VolumeImages = "sha256:a", map[string]string{"v": "sha256:v"}
		}),
		with(created("3", "a"), func(c *runner.Container) { c.ImageDigest = "sha256:next" }),
		running("4", "b", 6), // its digest is unknown
	}
	want := map[string]string{"init": "sha256:init", "a": "sha256:a", "volume/v": "sha256:v"}
	if got := podstatus.Of(in).Images; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
