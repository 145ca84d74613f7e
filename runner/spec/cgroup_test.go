package spec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
