package spec

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestWhereCgroupsAre(t *testing.T) {
	tests := []struct {
		name    string
		cgroups Cgroups
		class   corev1.PodQOSClass
		pod     string
		dir     string
		oci     string
	}{
		{"guaranteed", Cgroups{Root: "/monopod"}, corev1.PodQOSGuaranteed, "/monopod/poda-b", "/monopod/poda-b/c1", "/monopod/poda-b/c1"},
		{"burstable", Cgroups{Root: "/a/b", Driver: CgroupfsDriver}, corev1.PodQOSBurstable, "/a/b/burstable/poda-b", "/a/b/burstable/poda-b/c1", "/a/b/burstable/poda-b/c1"},
		{"best effort", Cgroups{Root: "/monopod"}, corev1.PodQOSBestEffort, "/monopod/besteffort/poda-b", "/monopod/besteffort/poda-b/c1", "/monopod/besteffort/poda-b/c1"},
		{
			"systemd, guaranteed",
			Cgroups{Root: "/monopod", Driver: SystemdDriver},
			corev1.PodQOSGuaranteed,
			"/monopod.slice/monopod-poda_b.slice", "/monopod.slice/monopod-poda_b.slice/monopod-c1.scope", "monopod-poda_b.slice:monopod:c1",
		},
		{
			"systemd, burstable, below others",
			Cgroups{Root: "/edge.slice/my-pods", Driver: SystemdDriver},
			corev1.PodQOSBurstable,
			"/edge.slice/edge-my_pods.slice/edge-my_pods-burstable.slice/edge-my_pods-burstable-poda_b.slice",
			"/edge.slice/edge-my_pods.slice/edge-my_pods-burstable.slice/edge-my_pods-burstable-poda_b.slice/monopod-c1.scope",
			"edge-my_pods-burstable-poda_b.slice:monopod:c1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := tt.cgroups.Pod(tt.class, "a-b")
			dir, oci := tt.cgroups.Container(pod, "c1"), tt.cgroups.OCIPath(pod, "c1")
			if pod != tt.pod || dir != tt.dir || oci != tt.oci {
				t.Errorf("pod %s\ncontainer %s\nOCI %s", pod, dir, oci)
			}
			if IsSystemd(oci) != (tt.cgroups.Driver == SystemdDriver) {
				t.Errorf("%s is meant for systemd: %t", oci, IsSystemd(oci))
			}
		})
	}
	for elem, want := range map[string]string{"c1": "c1", "monopod-c1.scope": "c1", "other-c1.scope": "other-c1.scope", "a.slice": "a.slice"} {
		if got := ContainerOf(elem); got != want {
			t.Errorf("%s is the cgroup of container %s", elem, got)
		}
	}
}

func TestClassesOfQuality(t *testing.T) {
	for name, tt := range map[string]struct {
		cgroups                           Cgroups
		guaranteed, burstable, bestEffort string
	}{
		"cgroupfs": {Cgroups{Root: "/monopod"}, "/monopod", "/monopod/burstable", "/monopod/besteffort"},
		"systemd":  {Cgroups{Root: "/monopod", Driver: SystemdDriver}, "/monopod.slice", "/monopod.slice/monopod-burstable.slice", "/monopod.slice/monopod-besteffort.slice"},
		"the root": {Cgroups{Root: "/"}, "/", "/burstable", "/besteffort"},
	} {
		for class, want := range map[corev1.PodQOSClass]string{
			corev1.PodQOSGuaranteed: tt.guaranteed, corev1.PodQOSBurstable: tt.burstable, corev1.PodQOSBestEffort: tt.bestEffort,
		} {
			if got := tt.cgroups.Class(class); got != want {
				t.Errorf("%s: pods of class %s are in %s, want %s", name, class, got, want)
			}
		}
	}
}

// TestCgroupsBelongToOnePod: with both drivers a pod's cgroup is directly in that of its class, and what is found in it leads back to the
// container.
func TestCgroupsBelongToOnePod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]{1,8}(-[a-z0-9]{1,8})?`)
		c := Cgroups{
			Driver: rapid.SampledFrom([]CgroupDriver{"", CgroupfsDriver, SystemdDriver}).Draw(t, "driver"),
			Root:   "/" + strings.Join(rapid.SliceOfN(name, 1, 3).Draw(t, "root"), "/"),
		}
		class := rapid.SampledFrom([]corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}).Draw(t, "class")
		uid, id := name.Draw(t, "uid"), name.Draw(t, "id")
		pod := c.Pod(class, uid)
		if path.Dir(pod) != c.Class(class) || !path.IsAbs(pod) || path.Clean(pod) != pod {
			t.Fatalf("the pod is in %s, its class in %s", pod, c.Class(class))
		}
		dir := c.Container(pod, id)
		if path.Dir(dir) != pod || ContainerOf(path.Base(dir)) != id {
			t.Fatalf("container %s is in %s", id, dir)
		}
		if other := c.Pod(class, uid+"1"); other == pod || c.Container(other, id) == dir {
			t.Fatalf("two pods have %s", pod)
		}
		if got := c.OCIPath(pod, id); IsSystemd(got) != (c.Driver == SystemdDriver) || !strings.HasSuffix(got, id) {
			t.Fatalf("an OCI runtime is given %s", got)
		}
	})
}
