package build

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

// mountOptions builds the spec of a container with one mount and returns its options and the root's propagation.
func mountOptions(t *testing.T, m corev1.VolumeMount, change func(*spec.Input)) ([]string, string) {
	t.Helper()
	m.Name, m.MountPath = "v", "/x"
	in := spectest.Input(spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Volumes = []corev1.Volume{spectest.EmptyDir("v", "", "")}
		c.VolumeMounts = []corev1.VolumeMount{m}
	}), "app")
	if change != nil {
		change(&in)
	}
	s, err := Spec(in)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/x" })
	return s.Mounts[i].Options, s.Linux.RootfsPropagation
}

func TestMountOptions(t *testing.T) {
	rro := func(in *spec.Input) { in.Host.RecursiveReadOnly = true }
	for _, c := range []struct {
		name   string
		mount  corev1.VolumeMount
		change func(*spec.Input)
		want   []string
		root   string
	}{
		{name: "nothing said", want: []string{"rbind", "rprivate", "rw"}},
		{name: "read-only", mount: corev1.VolumeMount{ReadOnly: true}, want: []string{"rbind", "rprivate", "ro"}},
		{
			name:  "no propagation",
			mount: corev1.VolumeMount{MountPropagation: ptr.To(corev1.MountPropagationNone)},
			want:  []string{"rbind", "rprivate", "rw"},
		},
		{
			name:  "from the host",
			mount: corev1.VolumeMount{MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)},
			want:  []string{"rbind", "rslave", "rw"}, root: "rslave",
		},
		{
			name:  "both ways",
			mount: corev1.VolumeMount{MountPropagation: ptr.To(corev1.MountPropagationBidirectional)},
			want:  []string{"rbind", "rshared", "rw"}, root: "rshared",
		},
		{
			name:  "recursively read-only",
			mount: corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(corev1.RecursiveReadOnlyEnabled)}, change: rro,
			want: []string{"rbind", "rprivate", "rro"},
		},
		{
			name:  "recursively read-only if possible",
			mount: corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(corev1.RecursiveReadOnlyIfPossible)}, change: rro,
			want: []string{"rbind", "rprivate", "rro"},
		},
		{
			name:  "recursively read-only if possible, and it is not",
			mount: corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: ptr.To(corev1.RecursiveReadOnlyIfPossible)},
			want:  []string{"rbind", "rprivate", "ro"},
		},
		{
			name:  "further options",
			mount: corev1.VolumeMount{BindMountOptions: []string{"nosuid", "nodev", "noexec"}},
			want:  []string{"rbind", "rprivate", "rw", "nodev", "noexec", "nosuid"},
		},
		{
			name: "a volume that nobody may write to",
			change: func(in *spec.Input) {
				in.Volumes["v"] = spec.Volume{HostPath: "/v", ReadOnly: true}
			},
			want: []string{"rbind", "rprivate", "ro"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, root := mountOptions(t, c.mount, c.change)
			if diff := cmp.Diff(c.want, got); diff != "" || root != c.root {
				t.Errorf("root propagation %q, want %q\n%s", root, c.root, diff)
			}
		})
	}
}

func TestSubPaths(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount corev1.VolumeMount
		want  map[int]string
		err   string
	}{
		{name: "a whole volume"},
		{name: "a path", mount: corev1.VolumeMount{SubPath: "a/b"}, want: map[int]string{0: "a/b"}},
		{name: "no expansion in a path", mount: corev1.VolumeMount{SubPath: "$(POD)"}, want: map[int]string{0: "$(POD)"}},
		{name: "an expression", mount: corev1.VolumeMount{SubPathExpr: "x/$(POD)/$(A)-$$(A)"}, want: map[int]string{0: "x/web/one-$(A)"}},
		{
			name: "variables that are missing or empty", mount: corev1.VolumeMount{SubPathExpr: "$(NONE)/$(EMPTY)/$(NONE)/$(PATH)"},
			err: `volumeMount "v" of container "app": missing value for "EMPTY", "NONE", "PATH"`,
		},
		{
			name: "an expression that climbs", mount: corev1.VolumeMount{SubPathExpr: "$(UP)/etc"},
			err: `volumeMount "v" of container "app": subPath "../etc" must not contain '..'`,
		},
		{
			name: "an expression that is absolute", mount: corev1.VolumeMount{SubPathExpr: "$(ROOT)"},
			err: `volumeMount "v" of container "app": subPath "/etc" must not be an absolute path`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.mount.Name, c.mount.MountPath = "v", "/x"
			in := spectest.Input(spectest.Pod(func(p *corev1.Pod, app *corev1.Container) {
				p.Name = "web"
				p.Spec.Volumes = []corev1.Volume{spectest.EmptyDir("v", "", "")}
				app.VolumeMounts = []corev1.VolumeMount{c.mount}
				app.Env = []corev1.EnvVar{
					{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "A", Value: "one"},
					{Name: "EMPTY"},
					{Name: "UP", Value: ".."},
					{Name: "ROOT", Value: "/etc"},
				}
			}), "app")
			got, err := SubPaths(in)
			if err != nil && err.Error() != c.err || err == nil && c.err != "" {
				t.Fatalf("error %v, want %s", err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestASubPathIsMountedWhereItWasPrepared(t *testing.T) {
	in := spectest.Input(spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		p.Spec.Volumes = []corev1.Volume{spectest.EmptyDir("v", "", "")}
		c.VolumeMounts = []corev1.VolumeMount{
			{Name: "v", MountPath: "/a", SubPath: "one"}, {Name: "v", MountPath: "/b"}, {Name: "v", MountPath: "/c", SubPath: "two"},
		}
	}), "app")
	in.SubPaths = map[int]string{0: "/run/one", 2: "/run/two"}
	s, err := Spec(in)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range s.Mounts {
		got[m.Destination] = m.Source
	}
	for destination, want := range map[string]string{"/a": "/run/one", "/b": in.Volumes["v"].HostPath, "/c": "/run/two"} {
		if got[destination] != want {
			t.Errorf("%s is %s, want %s", destination, got[destination], want)
		}
	}
	if err := Check(in); err != nil {
		t.Error(err)
	}
}
