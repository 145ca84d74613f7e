package usage

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/ctrd/openfiles"
)

func TestAFileWithoutANameCountsWhereItWas(t *testing.T) {
	_, rec := diskMeter(t)
	spec := &rec.Pod.Object.Spec
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}})
	spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{
		{Name: "v", MountPath: "/v/"}, {Name: "host", MountPath: "/v/host"}, {Name: "v", MountPath: "v2", SubPath: "x"}, {Name: "memory", MountPath: "/m"},
	}}, {Name: "root", VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/"}}}}
	for path, want := range map[string]string{
		"/tmp/f": "container c", "/vast/f": "container c", "/#123": "container c",
		"/v/f": "volume v", "/v/#123": "volume v", "/v/a/b": "volume v", "/v2/f": "volume v",
		"/v/host/f": "", "/m/f": "",
	} {
		u := unnamed{emptyDirs: map[string]runner.Size{}, containers: map[string]runner.Size{}}
		for range 2 {
			u.add(spec, "c", openfiles.File{Path: path, Bytes: 4096})
		}
		got := ""
		for name, size := range u.emptyDirs {
			if got = "volume " + name; size != (runner.Size{Bytes: 8192, Inodes: 2}) {
				t.Errorf("%s: %+v", path, size)
			}
		}
		for name := range u.containers {
			got = "container " + name
		}
		if got != want {
			t.Errorf("%s counts for %q, want %q", path, got, want)
		}
	}
	u := unnamed{emptyDirs: map[string]runner.Size{}, containers: map[string]runner.Size{}}
	u.add(spec, "root", openfiles.File{Path: "/f", Bytes: 1})
	if len(u.emptyDirs)+len(u.containers) > 0 {
		t.Errorf("a volume at the root: %+v", u)
	}
}
