package podhash_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner/runtimetest"
)

// TestEphemeralContainersChangeNoHash: they are added to a running pod, and must not recreate any part of it.
func TestEphemeralContainersChangeNoHash(t *testing.T) {
	t.Parallel()
	pod := runtimetest.WithInit("x", runtimetest.NewContainer("init", "true"))
	c := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(runtimetest.NewContainer("dbg", "true"))}
	now := manifests.WithEphemeral(pod, []corev1.EphemeralContainer{c})
	if manifests.FindContainer(&now.Object.Spec, "dbg") == nil || manifests.FindContainer(&pod.Object.Spec, "dbg") != nil {
		t.Fatal("only the new pod has it")
	}
	for name, hash := range map[string]func(*corev1.Pod) string{"pod": podhash.Pod, "sandbox": podhash.Sandbox, "resources of the pod": podhash.PodResources} {
		if hash(pod.Object) != hash(now.Object) {
			t.Errorf("the hash of the %s differs", name)
		}
	}
	for _, name := range []string{"init", "main"} {
		if podhash.Container(pod.Object, name) != podhash.Container(now.Object, name) || podhash.Resources(pod.Object, name) != podhash.Resources(now.Object, name) {
			t.Errorf("the hash of container %s differs", name)
		}
	}
	if podhash.Container(now.Object, "dbg") == podhash.Container(now.Object, "main") {
		t.Error("it has no hash of its own")
	}
}
