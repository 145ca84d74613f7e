package build

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner/spec"
	"monopod/runner/spec/etcfiles"
	"monopod/runner/spec/limits"
	"monopod/runner/spec/spectest"
	"monopod/runner/spec/volumeplan"
)

// goldenPod is everything that this package says of one pod.
type goldenPod struct {
	Class       corev1.PodQOSClass
	Hostname    string
	Hosts       string
	ResolvConf  string
	CgroupPath  string
	Cgroup      limits.Values
	Volumes     []volumeplan.Plan            `json:",omitempty"`
	VolumeFiles map[string]map[string]string `json:",omitempty"`
	Pause       *specs.Spec                  `json:",omitempty"`
	Containers  map[string]goldenContainer
}

type goldenContainer struct {
	Seccomp  corev1.SeccompProfile
	AppArmor *corev1.AppArmorProfile `json:",omitempty"`
	SubPaths map[int]string          `json:",omitempty"`
	Spec     *specs.Spec
}

// TestGoldenPods reads manifests as a user writes them, and compares all that is made of them.
func TestGoldenPods(t *testing.T) {
	files, err := filepath.Glob("testdata/pods/*.yaml")
	fixtures, _ := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files)+len(fixtures) < 40 {
		t.Fatalf("%d pods and %d containers found: %v", len(files), len(fixtures), err)
	}
	machines := map[string]func(in *spec.Input){
		"hugepages": func(in *spec.Input) { in.Host.HugePageSizes = []int64{2 << 20, 1 << 30} },
		"swap-v2": func(in *spec.Input) {
			in.Host.CgroupV2, in.Host.SwapAccounting, in.Host.SwapBytes = true, true, 4<<30
			in.Host.Enforce = spec.Enforcement{LimitedSwap: true, ReserveMemory: true, MemoryThrottling: 0.9, PodPidsLimit: 1000}
		},
		"pinned-cpus": func(in *spec.Input) {
			in.CPUs, in.ExclusiveCPUs, in.Host.Enforce.StaticCPUs = "0-1", true, true
		},
		"storage-driver": func(in *spec.Input) {
			in.Host.RecursiveReadOnly = true
			in.Host.Devices = []spec.Device{{Path: "/dev/vda", Type: "b", Major: 252, FileMode: 0o660, GID: 6}}
		},
		"systemd-cgroups": func(in *spec.Input) { in.Host.Cgroups = spec.Cgroups{Driver: spec.SystemdDriver, Root: "/kube"} },
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			machine := machines[name]
			delete(machines, name)
			if machine == nil {
				machine = func(*spec.Input) {}
			}
			sameAsGolden(t, strings.TrimSuffix(file, ".yaml")+".json", podFacts(t, loadPod(t, file), machine))
		})
	}
	for name := range machines {
		t.Errorf("a machine for no pod: %s", name)
	}
}

// loadPod returns the only pod of a file, with what it refers to.
func loadPod(t *testing.T, file string) *manifests.Pod {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := decode.All(file, data, decode.Options{Source: "file"})
	if err != nil || len(content.Pods) != 1 {
		t.Fatalf("one pod is wanted: %v", err)
	}
	pod := *content.Pods[0]
	if pod.Object.UID == "" {
		pod.Object = pod.Object.DeepCopy()
		pod.Object.UID = "11111111-2222-3333-4444-555555555555"
	}
	return manifests.WithRefs(&pod, nil, manifests.NewObjects(content.Objects))
}

// podFacts builds everything for a pod.
func podFacts(t *testing.T, p *manifests.Pod, machine func(*spec.Input)) goldenPod {
	t.Helper()
	in := spectest.Input(p.Object, "")
	in.Refs = p.Refs
	in.Image = ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Entrypoint: []string{"/bin/app"}}
	in.Host.MinOOMScoreAdj = -1000
	machine(&in)
	pod := p.Object
	out := goldenPod{
		Class: manifests.QOSClass(pod), CgroupPath: podCgroup(in), Cgroup: limits.ForPod(pod, in.Host),
		VolumeFiles: map[string]map[string]string{}, Containers: map[string]goldenContainer{},
	}
	var err error
	out.Hostname, err = etcfiles.Hostname(pod, in.Host.NodeName, "cluster.local")
	must(t, err)
	in.Sandbox.Hostname = out.Hostname
	out.Hosts, err = etcfiles.HostsFile(etcfiles.Hosts{Pod: pod, IPs: in.Sandbox.IPs, ClusterDomain: "cluster.local", NodeFile: "127.0.0.1 node1\n"})
	must(t, err)
	out.ResolvConf, _ = etcfiles.ResolvConf(etcfiles.DNS{Pod: pod, ClusterDomain: "cluster.local", ClusterDNS: []string{"192.0.2.2"}, HostFile: new("nameserver 192.0.2.3\n")})
	out.Volumes, err = volumeplan.ForPod(pod, in.Host)
	must(t, err)
	for _, v := range out.Volumes {
		if v.Files != nil {
			out.VolumeFiles[v.Name] = texts(t, in, v.Files)
		}
	}
	if in.Sandbox.PIDNS != "" {
		out.Pause = Pause(in, "/usr/bin/shim")
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out.Containers[list[i].Name] = containerFacts(t, in, list[i].Name)
		}
	}
	return out
}

func containerFacts(t *testing.T, in spec.Input, name string) goldenContainer {
	t.Helper()
	in.Container = name
	if uid, gid, _ := RequestedUser(in.Pod, name); uid != nil {
		in.User = spec.User{UID: uint32(*uid)}
		if gid != nil {
			in.User.GID = uint32(*gid)
		}
	}
	out := goldenContainer{Seccomp: SeccompFor(in.Pod, name, false)}
	out.AppArmor, _ = AppArmorFor(in.Pod, name)
	var err error
	out.SubPaths, err = SubPaths(in)
	must(t, err)
	in.SubPaths = map[int]string{}
	for i, path := range out.SubPaths {
		in.SubPaths[i] = "/run/monopod/subpaths/" + path
	}
	out.Spec, err = Spec(in)
	must(t, err)
	return out
}

// texts are the files of a volume: "mode content" by path.
func texts(t *testing.T, in spec.Input, v *corev1.VolumeSource) map[string]string {
	t.Helper()
	files, err := volumeplan.Files(in, v)
	must(t, err)
	out := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		out[path] = files[path].Mode.String() + " " + string(files[path].Data)
	}
	return out
}

// sameAsGolden compares a value with a JSON file, or rewrites the file.
func sameAsGolden(t *testing.T, golden string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	must(t, err)
	testfiles.Compare(t, golden, string(got)+"\n")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
