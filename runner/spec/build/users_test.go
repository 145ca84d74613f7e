package build

import (
	"reflect"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/spec/spectest"
)

func TestAUserNamespaceMapsVolumesAndNotWhatIsMadeForThePod(t *testing.T) {
	pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.HostUsers = new(false)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	})
	in := spectest.Input(pod, "app")
	in.Sandbox.UserNS, in.Sandbox.FirstID = "/run/monopod/ns/s1/user", 131072
	s, err := Spec(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 131072, Size: 65536}}
	if !reflect.DeepEqual(s.Linux.UIDMappings, want) || !reflect.DeepEqual(s.Linux.GIDMappings, want) {
		t.Errorf("ids are mapped as %v and %v", s.Linux.UIDMappings, s.Linux.GIDMappings)
	}
	if path, _ := namespace(s, specs.UserNamespace); path != in.Sandbox.UserNS {
		t.Errorf("the user namespace is %q", path)
	}
	mapped := map[string]bool{}
	for _, m := range s.Mounts {
		if m.Type == "bind" {
			mapped[m.Destination] = reflect.DeepEqual(m.UIDMappings, want) && reflect.DeepEqual(m.GIDMappings, want)
		} else if m.UIDMappings != nil || m.GIDMappings != nil {
			t.Errorf("%s is mapped, though it is made in the namespace", m.Destination)
		}
	}
	for _, own := range []string{hostsFile, hostnameFile, resolvFile, "/dev/termination-log", shmDir} {
		if is, there := mapped[own]; is || !there {
			t.Errorf("%s has the ids of the pod already: %v", own, mapped)
		}
	}
	if !mapped["/v"] {
		t.Errorf("mapped binds: %v", mapped)
	}
}
