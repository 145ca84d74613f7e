package build

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"monopod/internal/cause"
	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestBuildRefuses(t *testing.T) {
	context := func(s corev1.SecurityContext) func(*corev1.Pod, *corev1.Container) {
		return func(_ *corev1.Pod, c *corev1.Container) { c.SecurityContext = &s }
	}
	env := func(from corev1.EnvVarSource) func(*corev1.Pod, *corev1.Container) {
		return func(_ *corev1.Pod, c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &from}} }
	}
	mount := func(m ...corev1.VolumeMount) func(*corev1.Pod, *corev1.Container) {
		return func(p *corev1.Pod, c *corev1.Container) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			c.VolumeMounts = m
		}
	}
	tests := []struct {
		name string
		pod  func(*corev1.Pod, *corev1.Container)
		in   func(*spec.Input)
		want string
	}{
		{name: "an image and a manifest without command", in: func(in *spec.Input) { in.Image.Cmd = nil }, want: "no command specified"},
		{name: "an unknown container", in: func(in *spec.Input) { in.Container = "other" }, want: "container other not found"},
		{name: "a sandbox without network", in: func(in *spec.Input) { in.Sandbox.NetNS = "" }, want: "the pod's network namespace does not exist"},
		{name: "a sandbox without uts", in: func(in *spec.Input) { in.Sandbox.UTSNS = "" }, want: "the pod's network namespace does not exist"},
		{name: "a sandbox without ipc", in: func(in *spec.Input) { in.Sandbox.IPCNS = "" }, want: "the pod's ipc namespace does not exist"},
		{name: "a container without id", in: func(in *spec.Input) { in.ID = "" }, want: "the id of the container or of its pod is missing"},
		{name: "unknown capabilities of the machine", in: func(in *spec.Input) { in.Host.Capabilities = nil }, want: "the capabilities of this machine are not known"},
		{name: "unknown memory of the machine", in: func(in *spec.Input) { in.Host.MemoryBytes = 0 }, want: "the memory of this machine is not known"},
		{
			name: "runAsUser 0 with runAsNonRoot",
			pod:  context(corev1.SecurityContext{RunAsUser: ptr.To[int64](0), RunAsNonRoot: new(true)}),
			want: `container's runAsUser breaks non-root policy (pod: "web_default(u1)", container: app)`,
		},
		{
			name: "an image without user with runAsNonRoot",
			pod:  context(corev1.SecurityContext{RunAsNonRoot: new(true)}),
			want: `container has runAsNonRoot and image will run as root (pod: "web_default(u1)", container: app)`,
		},
		{
			name: "an image with a named user with runAsNonRoot",
			pod:  context(corev1.SecurityContext{RunAsNonRoot: new(true)}),
			in:   func(in *spec.Input) { in.Image.User = "nobody:nogroup"; in.User.UID = 65534 },
			want: `container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root (pod: "web_default(u1)", container: app)`,
		},
		{
			name: "an image with an impossible user with runAsNonRoot",
			pod:  context(corev1.SecurityContext{RunAsNonRoot: new(true)}),
			in:   func(in *spec.Input) { in.Image.User = "4294967295" },
			want: `container has runAsNonRoot and image has an invalid user id (4294967295). (Must be 1-(2147483647)) (pod: "web_default(u1)", container: app)`,
		},
		{
			name: "a user that was resolved wrongly",
			pod:  context(corev1.SecurityContext{RunAsUser: ptr.To[int64](1000)}),
			want: "container app: user resolved to 0 instead of 1000",
		},
		{
			name: "a group that was resolved wrongly",
			pod:  context(corev1.SecurityContext{RunAsGroup: ptr.To[int64](1000)}),
			want: "container app: group resolved to 0 instead of 1000",
		},
		{
			name: "a capability that monopod does not have",
			pod:  context(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_RESOURCE"}}}),
			want: "securityContext.capabilities.add: monopod does not have CAP_SYS_RESOURCE on this machine and cannot grant it",
		},
		{
			name: "a capability to drop with a typo",
			pod:  context(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"NET_RWA"}}}),
			want: `securityContext.capabilities.drop: "NET_RWA" is not a capability`,
		},
		{
			name: "a volume that is not there", pod: mount(corev1.VolumeMount{Name: "other", MountPath: "/x"}),
			want: `cannot find volume "other" to mount into container "app"`,
		},
		{
			name: "two volumes at one place",
			pod:  mount(corev1.VolumeMount{Name: "v", MountPath: "/x"}, corev1.VolumeMount{Name: "v", MountPath: "/x/"}),
			want: `container "app" mounts two volumes at /x`,
		},
		{
			name: "a subPath that nobody prepared", pod: mount(corev1.VolumeMount{Name: "v", MountPath: "/x", SubPath: "a"}),
			want: `cannot find volume "v" to mount into container "app"`,
		},
		{
			name: "recursive read-only mounts where there are none",
			pod:  mount(corev1.VolumeMount{Name: "v", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: ptr.To(corev1.RecursiveReadOnlyEnabled)}),
			want: `volumeMount "v" of container "app": recursiveReadOnly: Enabled needs Linux 5.12 and an OCI runtime with the mount option rro`,
		},
		{
			name: "a sandbox without the process namespace to share",
			pod:  func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ShareProcessNamespace = new(true) },
			in:   func(in *spec.Input) { in.Sandbox.PIDNS = "" },
			want: "the pod's process namespace does not exist",
		},
		{
			name: "a sandbox without user namespace",
			pod:  func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostUsers = new(false) },
			in:   func(in *spec.Input) { in.Sandbox.UserNS = "" },
			want: "the pod's user namespace does not exist",
		},
		{
			name: "a user that the user namespace does not have",
			pod:  func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostUsers = new(false) },
			in: func(in *spec.Input) {
				in.Sandbox.UserNS, in.Sandbox.FirstID, in.User.UID = "/run/monopod/ns/s1/user", 65536, 65536
			},
			want: "hostUsers: false: the pod has user and group ids up to 65535, not 65536",
		},
		{
			name: "envFrom without its object",
			pod: func(_ *corev1.Pod, c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}
			},
			want: `configmap "a" not found`,
		},
		{
			name: "variables from nowhere", pod: env(corev1.EnvVarSource{}),
			want: "env X: this kind of valueFrom is not supported by this release",
		},
		{
			name: "fields that variables cannot have",
			pod:  env(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.phase"}}),
			want: "env X: field status.phase is not available to environment variables",
		},
		{
			name: "the address of a pod without network",
			pod:  env(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}),
			in:   func(in *spec.Input) { in.Sandbox.IPs = nil },
			want: "env X: the pod has no address yet",
		},
		{
			name: "resources that variables cannot have",
			pod:  env(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.example.com/gpu"}}),
			want: "env X: unsupported container resource: limits.example.com/gpu",
		},
		{
			name: "resources of containers that do not exist",
			pod:  env(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "no", Resource: "limits.cpu"}}),
			want: "env X: container no not found",
		},
		{
			name: "a storage limit when the machine's is not known",
			pod:  env(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.ephemeral-storage"}}),
			want: "env X: the ephemeral storage of this machine is not known",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := spectest.Input(spectest.Pod(tt.pod), "app")
			if tt.in != nil {
				tt.in(&in)
			}
			s, err := Spec(in)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error\n %v\nwant\n %s", err, tt.want)
			}
			if root := cause.Of(err).Kind == cause.NonRoot; root != (strings.Contains(tt.want, "non-root") || strings.Contains(tt.want, "runAsNonRoot")) {
				t.Errorf("the cause of %v is %+v", err, cause.Of(err))
			}
			if s != nil {
				t.Error("a spec was returned with the error")
			}
		})
	}
}

func TestRunAsNonRootAccepts(t *testing.T) {
	nonRoot := func(user *int64) *corev1.Pod {
		return spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{RunAsUser: user, RunAsNonRoot: new(true)}
		})
	}
	in := spectest.Input(nonRoot(ptr.To[int64](7)), "app")
	in.User.UID, in.Image.User = 7, "root" // the manifest's user counts, not the image's
	if _, err := Spec(in); err != nil {
		t.Errorf("runAsUser 7: %v", err)
	}
	in = spectest.Input(nonRoot(nil), "app")
	in.User.UID, in.Image.User = 1000, "1000:0"
	if _, err := Spec(in); err != nil {
		t.Errorf("image user 1000: %v", err)
	}
}

func TestCheckNeedsNoSandbox(t *testing.T) {
	pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		p.UID = ""
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/x"}}
		c.Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	})
	in := spec.Input{Pod: pod, Container: "app", Host: spectest.Host()}
	if err := Check(in); err == nil || err.Error() != "no command specified" {
		t.Errorf("Check of an image without command: %v", err)
	}
	in.Image.Cmd = []string{"/bin/app"}
	if err := Check(in); err != nil {
		t.Errorf("Check: %v", err)
	}
	if pod.UID != "" || in.Volumes != nil {
		t.Error("Check changed its input")
	}
}

func TestSpecTakesNothingFromItsInput(t *testing.T) {
	in := loadFixture(t, "testdata/privileged.yaml")
	in.Host.Annotations = map[string]string{"a": "b"}
	s, err := Spec(in)
	if err != nil {
		t.Fatal(err)
	}
	s.Annotations["a"] = "changed"
	s.Process.Args[0] = "changed"
	s.Process.Capabilities.Bounding[0] = "changed"
	again, err := Spec(in)
	if err != nil {
		t.Fatal(err)
	}
	if again.Annotations["a"] != "b" || again.Process.Args[0] == "changed" || again.Process.Capabilities.Bounding[0] == "changed" {
		t.Error("changing a spec changes the next one")
	}
	if again.Process.Capabilities.Effective[0] == "changed" {
		t.Error("capability sets share memory")
	}
}

// randomPod draws a pod that the API server would accept.
func randomPod(rt *rapid.T) *corev1.Pod {
	flag := func(name string) bool { return rapid.Bool().Draw(rt, name) }
	pod := spectest.Pod(nil)
	pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = flag("net"), flag("pid"), flag("ipc")
	paths := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"/dev", "/dev/shm", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/data", "/data/sub", "/proc", "/sys",
		"/dev/termination-log", "/sys/fs/cgroup", "/x/", "rel", "/a/../b",
	}), 0, 6, rapid.ID[string]).Draw(rt, "paths")
	c := &pod.Spec.Containers[0]
	for _, p := range paths {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: p, ReadOnly: flag("ro")})
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	names := rapid.SliceOf(rapid.SampledFrom([]corev1.Capability{"ALL", "NET_ADMIN", "chown", "CAP_KILL", "SYS_TIME"}))
	c.SecurityContext = &corev1.SecurityContext{
		Privileged: new(flag("privileged")), ReadOnlyRootFilesystem: new(flag("rootfs")),
		Capabilities: &corev1.Capabilities{Add: names.Draw(rt, "add"), Drop: names.Draw(rt, "drop")},
	}
	for _, v := range rapid.SliceOf(rapid.String()).Draw(rt, "env") {
		c.Env = append(c.Env, corev1.EnvVar{Name: rapid.SampledFrom([]string{"A", "B", "PATH"}).Draw(rt, "name"), Value: v})
	}
	c.Args = rapid.SliceOf(rapid.StringMatching(`[$()AB]*`)).Draw(rt, "args")
	return pod
}

func TestLawsOfBuild(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pod := randomPod(rt)
		in := spectest.Input(pod, "app")
		in.Host.CgroupV2 = rapid.Bool().Draw(rt, "v2")
		in.Host.MinOOMScoreAdj = rapid.IntRange(-1000, 500).Draw(rt, "oom")
		before := pod.DeepCopy()
		s, err := Spec(in)
		if err != nil {
			rt.Fatal(err)
		}
		again, _ := Spec(in)
		if !reflect.DeepEqual(s, again) {
			rt.Fatal("the same input gave two specs")
		}
		if !reflect.DeepEqual(before, pod) {
			rt.Fatal("Build changed the pod")
		}
		checkMountLaws(rt, s)
		caps := s.Process.Capabilities
		if len(caps.Ambient)+len(caps.Inheritable) > 0 {
			rt.Fatal("ambient or inheritable capabilities")
		}
		for _, c := range caps.Bounding {
			if !slices.Contains(in.Host.Capabilities, c) {
				rt.Fatalf("%s is not ours to give", c)
			}
		}
		if privileged := *pod.Spec.Containers[0].SecurityContext.Privileged; privileged == (len(s.Linux.MaskedPaths) > 0) {
			rt.Fatalf("privileged %t has %d masked paths", privileged, len(s.Linux.MaskedPaths))
		}
		if *s.Process.OOMScoreAdj < in.Host.MinOOMScoreAdj {
			rt.Fatalf("oom score %d is below %d", *s.Process.OOMScoreAdj, in.Host.MinOOMScoreAdj)
		}
		checkNamespaceLaws(rt, s, pod)
	})
}

// checkMountLaws: one mount per destination, and none hides an earlier one.
func checkMountLaws(rt *rapid.T, s *specs.Spec) {
	for i, m := range s.Mounts {
		for _, later := range s.Mounts[i+1:] {
			if later.Destination == m.Destination {
				rt.Fatalf("two mounts at %s", m.Destination)
			}
			if strings.HasPrefix(m.Destination, later.Destination+"/") && m.Type == "bind" {
				rt.Fatalf("%s is hidden by the later %s", m.Destination, later.Destination)
			}
			if strings.HasPrefix(m.Destination, "/dev/") && later.Destination == "/dev" {
				rt.Fatalf("%s is hidden by /dev", m.Destination)
			}
		}
	}
}

// checkNamespaceLaws: a namespace is missing exactly when the pod asks for the host's.
func checkNamespaceLaws(rt *rapid.T, s *specs.Spec, pod *corev1.Pod) {
	has := map[specs.LinuxNamespaceType]bool{}
	for _, n := range s.Linux.Namespaces {
		if has[n.Type] {
			rt.Fatalf("namespace %s twice", n.Type)
		}
		has[n.Type] = true
	}
	want := map[specs.LinuxNamespaceType]bool{
		specs.MountNamespace: true, specs.PIDNamespace: !pod.Spec.HostPID, specs.IPCNamespace: !pod.Spec.HostIPC,
		specs.NetworkNamespace: !pod.Spec.HostNetwork, specs.UTSNamespace: !pod.Spec.HostNetwork,
	}
	for n, w := range want {
		if has[n] != w {
			rt.Fatalf("namespace %s: %t, want %t", n, has[n], w)
		}
	}
	if s.Hostname != "" {
		rt.Fatal("the hostname belongs to the pinned namespace")
	}
}

func BenchmarkBuild(b *testing.B) {
	in := loadFixture(b, "testdata/downward.yaml")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Spec(in); err != nil {
			b.Fatal(err)
		}
	}
}

func namespace(s *specs.Spec, kind specs.LinuxNamespaceType) (path string, ok bool) {
	i := slices.IndexFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
	if i < 0 {
		return "", false
	}
	return s.Linux.Namespaces[i].Path, true
}
