package volumeplan

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"monopod/internal/cause"
	"monopod/runner/spec/spectest"
)

// volumePod mounts all the volumes.
func volumePod(volumes ...corev1.Volume) *corev1.Pod {
	return spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Volumes = volumes
		for _, v := range volumes {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
		}
	})
}

func hostPath(name, path string, kind *corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
}

func TestVolumes(t *testing.T) {
	pod := volumePod(
		hostPath("a", "/data/", ptr.To(corev1.HostPathDirectory)),
		hostPath("b", "/x", nil),
		spectest.EmptyDir("c", "", "1Gi"),
		spectest.EmptyDir("d", corev1.StorageMediumMemory, ""),
	)
	pod.Spec.Volumes = append(pod.Spec.Volumes, spectest.EmptyDir("unused", "", ""))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
	got, err := ForPod(pod, spectest.Host())
	if err != nil {
		t.Fatal(err)
	}
	want := []Plan{
		{Name: "a", HostPath: &HostPath{Path: "/data", Type: corev1.HostPathDirectory}},
		{Name: "b", HostPath: &HostPath{Path: "/x"}},
		{Name: "c", EmptyDir: &EmptyDir{Mode: 0o777, GID: ptr.To[int64](2000)}},
		{Name: "d", EmptyDir: &EmptyDir{Memory: true, SizeBytes: 8 << 30, Mode: 0o777 | fs.ModeSticky, GID: ptr.To[int64](2000)}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVolumesRefuses(t *testing.T) {
	for want, v := range map[string]corev1.Volume{
		`volume "v": this kind of volume is not supported by this release`: {
			Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}},
		},
		`volume "v": unknown storage medium "Paper"`:                                                                 spectest.EmptyDir("v", "Paper", ""),
		`volume "v": medium HugePages: hugePages storage requested, but there is no resource request for huge pages`: spectest.EmptyDir("v", corev1.StorageMediumHugePages, ""),
	} {
		if _, err := ForPod(volumePod(v), spectest.Host()); err == nil || err.Error() != want {
			t.Errorf("Volumes: %v, want %s", err, want)
		}
	}
}

func TestTmpfsSize(t *testing.T) {
	tests := []struct {
		name     string
		size     string
		limits   []string
		initial  []string
		sidecars []string
		pod      string
		want     int64
	}{
		{name: "the machine's memory", limits: []string{""}, want: 8 << 30},
		{name: "sizeLimit", size: "1Mi", limits: []string{""}, want: 1 << 20},
		{name: "a sizeLimit beyond the machine", size: "1Ti", limits: []string{""}, want: 8 << 30},
		{name: "a sizeLimit of zero is none", size: "0", limits: []string{""}, want: 8 << 30},
		{name: "the limits of all containers together", limits: []string{"1Mi", "2Mi"}, want: 3 << 20},
		{name: "a container without limit", limits: []string{"1Mi", ""}, want: 8 << 30},
		{name: "a larger init container", limits: []string{"1Mi"}, initial: []string{"5Mi", "4Mi"}, want: 5 << 20},
		{name: "an init container without limit", limits: []string{"1Mi"}, initial: []string{""}, want: 8 << 30},
		{name: "a sidecar beside the others", limits: []string{"1Mi"}, sidecars: []string{"2Mi"}, want: 3 << 20},
		{name: "the limit of the pod as a whole", limits: []string{"", ""}, pod: "4Mi", want: 4 << 20},
		{name: "the least of all", size: "2Mi", limits: []string{"1Mi", "2Mi"}, want: 2 << 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := spectest.EmptyDir("v", corev1.StorageMediumMemory, tt.size)
			pod := &corev1.Pod{}
			for _, l := range tt.limits {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Limits: spectest.Amounts("", l)}})
			}
			for _, l := range tt.initial {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Resources: corev1.ResourceRequirements{Limits: spectest.Amounts("", l)}})
			}
			for _, l := range tt.sidecars {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
					RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Limits: spectest.Amounts("", l)},
				})
			}
			if tt.pod != "" {
				pod.Spec.Resources = &corev1.ResourceRequirements{Limits: spectest.Amounts("", tt.pod)}
			}
			if got := tmpfsSize(pod, spectest.Host(), v.EmptyDir); got != tt.want {
				t.Errorf("tmpfsSize = %d, want %d", got, tt.want)
			}
		})
	}
}

// stat is a FileInfo of a mode.
type stat fs.FileMode

func (s stat) Name() string       { return "x" }
func (s stat) Size() int64        { return 0 }
func (s stat) Mode() fs.FileMode  { return fs.FileMode(s) }
func (s stat) ModTime() time.Time { return time.Time{} }
func (s stat) IsDir() bool        { return fs.FileMode(s).IsDir() }
func (s stat) Sys() any           { return nil }

func TestHostPathCheck(t *testing.T) {
	kinds := map[string]fs.FileInfo{
		"missing": nil, "file": stat(0o644), "directory": stat(fs.ModeDir | 0o755), "socket": stat(fs.ModeSocket | 0o600),
		"char": stat(fs.ModeDevice | fs.ModeCharDevice), "block": stat(fs.ModeDevice), "pipe": stat(fs.ModeNamedPipe),
	}
	tests := []struct {
		kind corev1.HostPathType
		ok   []string
		what string
		make Creation
	}{
		{corev1.HostPathUnset, []string{"missing", "file", "directory", "socket", "char", "block", "pipe"}, "", CreateDirectory},
		{corev1.HostPathDirectory, []string{"directory"}, "a directory", CreateNothing},
		{corev1.HostPathDirectoryOrCreate, []string{"missing", "directory"}, "a directory", CreateDirectory},
		{corev1.HostPathFile, []string{"file"}, "a file", CreateNothing},
		{corev1.HostPathFileOrCreate, []string{"missing", "file"}, "a file", CreateFile},
		{corev1.HostPathSocket, []string{"socket"}, "a socket file", CreateNothing},
		{corev1.HostPathCharDev, []string{"char"}, "a character device", CreateNothing},
		{corev1.HostPathBlockDev, []string{"block"}, "a block device", CreateNothing},
	}
	for _, tt := range tests {
		h := HostPath{Path: "/p", Type: tt.kind}
		if got := h.Missing(); got != tt.make {
			t.Errorf("%q: a missing path makes %q, want %q", tt.kind, got, tt.make)
		}
		good := map[string]bool{}
		for _, k := range tt.ok {
			good[k] = true
		}
		for name, info := range kinds {
			err := h.Check(info)
			if good[name] && err != nil {
				t.Errorf("%q on %s: %v", tt.kind, name, err)
			}
			if want := "hostPath type check failed: /p is not " + tt.what; !good[name] && (err == nil || err.Error() != want) {
				t.Errorf("%q on %s: %v, want %s", tt.kind, name, err, want)
			}
			if want := (cause.Cause{Kind: cause.HostPath, Path: "/p", Expected: tt.what}); !good[name] && cause.Of(err) != want {
				t.Errorf("%q on %s: the cause is %+v", tt.kind, name, cause.Of(err))
			}
		}
	}
	if err := (HostPath{Path: "/p", Type: "Odd"}).Check(stat(0)); err == nil || err.Error() != "Odd is an invalid volume type" {
		t.Errorf("an unknown type: %v", err)
	}
}

func TestHugePagesOfAVolume(t *testing.T) {
	requests := func(names ...corev1.ResourceName) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
		for _, name := range names {
			r.Requests[name] = resource.MustParse("1Gi")
		}
		return r
	}
	const mega, giga = "hugepages-2Mi", "hugepages-1Gi"
	for _, tt := range []struct {
		name, medium, limit string
		init, app           corev1.ResourceRequirements
		pod                 *corev1.ResourceRequirements
		want                EmptyDir
		err                 string
	}{
		{name: "of the only size", medium: "HugePages", app: requests(mega, "cpu"), want: EmptyDir{PageBytes: 2 << 20}},
		{name: "of an init container", medium: "HugePages", init: requests(giga), want: EmptyDir{PageBytes: 1 << 30}},
		{name: "of the pod", medium: "HugePages", pod: new(requests(giga)), want: EmptyDir{PageBytes: 1 << 30}},
		{name: "with a limit", medium: "HugePages", limit: "4Mi", app: requests(mega), want: EmptyDir{PageBytes: 2 << 20, SizeBytes: 4 << 20}},
		{name: "of one of two sizes", medium: "HugePages-1Gi", app: requests(mega), init: requests(giga), want: EmptyDir{PageBytes: 1 << 30}},
		{name: "written in another way", medium: "HugePages-2048Ki", app: requests(mega), want: EmptyDir{PageBytes: 2 << 20}},
		{name: "of two sizes", medium: "HugePages", app: requests(mega, giga), err: "medium: HugePages can't be used if container requests multiple huge page sizes"},
		{name: "of another size", medium: "HugePages-1Gi", app: requests(mega), err: "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"},
		{name: "of no size", medium: "HugePages-big", app: requests(mega), err: "medium HugePages-big: quantities must match"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMedium(tt.medium)}}}
			if tt.limit != "" {
				v.EmptyDir.SizeLimit = new(resource.MustParse(tt.limit))
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{
				Resources:      tt.pod,
				InitContainers: []corev1.Container{{Name: "i", Resources: tt.init}},
				Containers:     []corev1.Container{{Name: "c", Resources: tt.app, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
				Volumes:        []corev1.Volume{v},
			}}
			plans, err := ForPod(pod, spectest.Host())
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), `volume "v": `+tt.err) {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				return
			}
			tt.want.Mode = 0o777
			if err != nil || len(plans) != 1 || *plans[0].EmptyDir != tt.want {
				t.Errorf("%v, %v", plans, err)
			}
		})
	}
}

func TestModesOfEmptyDirs(t *testing.T) {
	for mode, want := range map[int32]fs.FileMode{0: 0, 0o750: 0o750, 0o1777: 0o777 | fs.ModeSticky} {
		if got := EmptyDirMode(&corev1.EmptyDirVolumeSource{Mode: &mode}); got != want {
			t.Errorf("%#o: %s, want %s", mode, got, want)
		}
	}
	if got := EmptyDirMode(&corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}); got != 0o777|fs.ModeSticky {
		t.Errorf("in memory without: %s", got)
	}
	if got := EmptyDirMode(&corev1.EmptyDirVolumeSource{}); got != 0o777 {
		t.Errorf("without one: %s", got)
	}
}
