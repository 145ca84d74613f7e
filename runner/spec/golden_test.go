package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// fixture is a testdata file: what differs from the usual Input.
type fixture struct {
	Pod          *corev1.Pod
	Container    string
	Image        ocispec.ImageConfig
	User         User
	Host         Host
	ImageVolumes map[string]string
}

// testHost is an 8 GiB machine with 2 cpus and every capability but CAP_SYS_RESOURCE.
func testHost() Host {
	var caps []string
	for c := range strings.FieldsSeq(knownCapabilities) {
		if c != "SYS_RESOURCE" {
			caps = append(caps, capPrefix+c)
		}
	}
	return Host{
		NodeName: "node1", NodeIPs: []string{"192.0.2.10", "2001:db8::10"}, Cgroups: Cgroups{Root: "/monopod"},
		MemoryBytes: 8 << 30, MilliCPU: 2000, Capabilities: caps,
	}
}

// testInput is an Input for a pod whose sandbox and volumes are ready.
func testInput(pod *corev1.Pod, container string) Input {
	in := Input{
		Pod: pod, Container: container, ID: "c1",
		Image: ocispec.ImageConfig{Cmd: []string{"/bin/app"}},
		Sandbox: Sandbox{
			ID: "s1", Hostname: pod.Name,
			NetNS: "/run/monopod/ns/s1/net", IPCNS: "/run/monopod/ns/s1/ipc", UTSNS: "/run/monopod/ns/s1/uts",
			IPs:     []string{"10.1.0.5", "fd00::5"},
			ShmPath: "/run/monopod/s1/shm", HostsPath: "/run/monopod/s1/hosts", HostnamePath: "/run/monopod/s1/hostname",
			ResolvConfPath: "/run/monopod/s1/resolv.conf", TerminationLogPath: "/run/monopod/c1/termination-log",
		},
		Volumes: map[string]Volume{},
		Host:    testHost(),
	}
	if pod.Spec.HostNetwork {
		in.Sandbox.Hostname, in.Sandbox.NetNS, in.Sandbox.UTSNS, in.Sandbox.IPs = "node1", "", "", in.Host.NodeIPs
	}
	if pod.Spec.HostIPC {
		in.Sandbox.IPCNS, in.Sandbox.ShmPath = "", ""
	}
	if isTrue(pod.Spec.ShareProcessNamespace) {
		in.Sandbox.PIDNS = "/run/monopod/ns/s1/pid"
	}
	if users := pod.Spec.HostUsers; users != nil && !*users {
		in.Sandbox.UserNS, in.Sandbox.FirstID = "/run/monopod/ns/s1/user", 2*UserIDs
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			in.Volumes[v.Name] = Volume{HostPath: v.HostPath.Path}
		} else {
			in.Volumes[v.Name] = Volume{HostPath: "/var/lib/monopod/volumes/" + v.Name}
		}
	}
	applyDefaults(pod)
	return in
}

// applyDefaults does what the API server does to the fields that matter here.
func applyDefaults(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.TerminationMessagePath == "" {
			c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		}
		for name, q := range c.Resources.Limits {
			if _, ok := c.Resources.Requests[name]; !ok {
				if c.Resources.Requests == nil {
					c.Resources.Requests = corev1.ResourceList{}
				}
				c.Resources.Requests[name] = q
			}
		}
	}
}

// loadFixture reads a testdata file.
func loadFixture(t testing.TB, file string) Input {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{Host: testHost()}
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	in := testInput(f.Pod, f.Container)
	in.Image, in.User, in.Host, in.ImageVolumes = f.Image, f.User, f.Host, f.ImageVolumes
	return in
}

func TestGoldenSpecs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d fixtures found: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			s, err := Build(loadFixture(t, file))
			if err != nil {
				t.Fatal(err)
			}
			sameAsGolden(t, strings.TrimSuffix(file, ".yaml")+".json", s)
		})
	}
}
