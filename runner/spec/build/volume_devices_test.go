package build

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestImageVolumePaths(t *testing.T) {
	in := loadFixture(t, "testdata/image-volumes.yaml")
	got, err := ImageVolumePaths(in)
	if diff := cmp.Diff([]string{"/var/cache"}, got); err != nil || diff != "" {
		t.Errorf("ImageVolumePaths: %v\n%s", err, diff)
	}
}

// TestVolumesAsDevices: a device and the right to use it, in place of what the machine has there; and nothing that is
// mounted as what it is not.
func TestVolumesAsDevices(t *testing.T) {
	disk := spec.Volume{HostPath: "/dev/sdb", Device: &spec.Device{Path: "/dev/sdb", Type: "b", Major: 8, Minor: 16, FileMode: 0o660, GID: 6}}
	rule := func(access string) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: true, Type: "b", Major: ptr.To[int64](8), Minor: ptr.To[int64](16), Access: access}
	}
	use := func(privileged bool, v spec.Volume) (*specs.Spec, error) {
		in := spectest.Input(spectest.Pod(func(*corev1.Pod, *corev1.Container) {}), "app")
		c := &in.Pod.Spec.Containers[0]
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev//xvda"}}
		c.SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
		in.Host.Devices = []spec.Device{{Path: "/dev/xvda", Type: "b", Major: 1, Minor: 1}}
		in.Volumes = maps.Clone(in.Volumes)
		if in.Volumes == nil {
			in.Volumes = map[string]spec.Volume{}
		}
		in.Volumes["disk"] = v
		return Spec(in)
	}
	mode, uid, gid := os.FileMode(0o660), uint32(0), uint32(6)
	want := []specs.LinuxDevice{{Path: "/dev/xvda", Type: "b", Major: 8, Minor: 16, FileMode: &mode, UID: &uid, GID: &gid}}
	readOnly := disk
	readOnly.ReadOnly = true
	for _, tt := range []struct {
		privileged bool
		volume     spec.Volume
		rules      []specs.LinuxDeviceCgroup
	}{
		{false, disk, []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, rule("rwm")}},
		{false, readOnly, []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, rule("r")}},
		{true, disk, []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}, rule("rwm")}},
	} {
		s, err := use(tt.privileged, tt.volume)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.Linux.Devices); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(tt.rules, s.Linux.Resources.Devices); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := use(false, spec.Volume{HostPath: "/x"}); err == nil || !strings.Contains(err.Error(), "volume disk has volumeMode Filesystem, but is specified in volumeDevices") {
		t.Errorf("a directory as a device: %v", err)
	}
	in := spectest.Input(spectest.Pod(func(*corev1.Pod, *corev1.Container) {}), "app")
	in.Pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: "/x"}}
	in.Volumes = map[string]spec.Volume{"disk": disk}
	if _, err := Spec(in); err == nil || !strings.Contains(err.Error(), "volume disk has volumeMode Block, but is specified in volumeMounts") {
		t.Errorf("a device as a directory: %v", err)
	}
}
