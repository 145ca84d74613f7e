package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/corpus"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
	"monopod/runner/spec/volumeplan"
)

// TestWhatBecomesOfPodsOfOthers compares the expected fate of each pod in groups A and B of the corpus with a readable table.
// TestPodsOfOthersReachTheirPhase checks the same with real containers.
func TestWhatBecomesOfPodsOfOthers(t *testing.T) {
	all := borrow(t, "AB")
	lines := []string{"file\tpod\tphase\twaiting\twhy"}
	seen, run := map[string]bool{}, map[string]bool{}
	for _, b := range all {
		run[b.file] = run[b.file] || b.pod != nil
		// An image of a template that was not rendered is refused here; a kubelet accepts the pod, which then waits for ever.
		seen[b.file] = run[b.file] || strings.Contains(b.why, "not supported") || strings.Contains(b.why, "is not an image name")
		if b.pod == nil {
			lines = append(lines, fmt.Sprintf("%s\tnot run\t-\t%s", b, b.why))
			continue
		}
		f := expected(b)
		reason := f.reason
		if reason == "" {
			reason = "-"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", b, f.phase, reason, f.why))
	}
	for _, f := range corpus.Open(t) {
		if strings.ContainsAny(f.Name[:1], "AB") && f.Kubelet == "ok" && !seen[f.Name] {
			t.Errorf("a kubelet runs %s, and it is neither run here nor refused for a field that is not supported or an image that is none", f.Name)
		}
		if strings.HasPrefix(f.Kubelet, "invalid pod") && run[f.Name] {
			t.Errorf("%s is run, and a kubelet says of it: %s", f.Name, f.Kubelet)
		}
	}
	testfiles.Compare(t, filepath.Join("testdata", "corpus-pods.tsv"), strings.Join(lines, "\n")+"\n")
}

// TestNodePodsOfOthersHaveAPlanAndSpecs: each pod of the corpus that is meant for nodes gets a plan that starts it completely, and a spec
// for each of its containers, unless objects that it needs are missing.
func TestNodePodsOfOthersHaveAPlanAndSpecs(t *testing.T) {
	n := 0
	for _, b := range borrow(t, "A") {
		if b.pod == nil {
			continue
		}
		missing := missingVolume(b) != ""
		for _, c := range containersOf(b.pod.Object) {
			missing = missing || missingVariable(b, c) != ""
		}
		actions, _ := plan.Plan(time.Unix(1, 0), b.pod, plan.Observed{NewUID: "uid"})
		first := &b.pod.Object.Spec.Containers[0]
		if len(b.pod.Object.Spec.InitContainers) > 0 {
			first = &b.pod.Object.Spec.InitContainers[0]
		}
		if !hasAction(actions, runner.CreateSandbox, "") || !hasAction(actions, runner.StartContainer, first.Name) {
			t.Errorf("%s: the plan does not begin with container %s: %v", b, first.Name, actions)
		}
		if missing {
			continue
		}
		n++
		for _, c := range containersOf(b.pod.Object) {
			if _, err := specOf(b.pod, c.Name); err != nil {
				t.Errorf("%s: container %s: %v", b, c.Name, err)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d pods had all they need", n)
	}
}

func hasAction(actions []runner.Action, kind runner.ActionKind, container string) bool {
	for _, a := range actions {
		if a.Kind == kind && a.Container == container {
			return true
		}
	}
	return false
}

// containersOf returns all containers of a pod.
func containersOf(pod *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	return all
}

// specOf builds the spec of a container on a machine of 8 GiB and 4 processors with cgroup v2, for an image with a non-root user. Volumes
// are where their plans put them, created ones below /volumes.
func specOf(p *manifests.Pod, container string) (*specs.Spec, error) {
	pod := p.Object.DeepCopy()
	pod.UID = "uid"
	in := spec.Input{
		Pod: pod, Container: container, ID: "id", Refs: p.Refs, Volumes: map[string]spec.Volume{}, SubPaths: map[int]string{},
		Sandbox: spec.Sandbox{
			ID: "sandbox", IPCNS: "/ns/ipc", ShmPath: "/sandbox/shm", HostsPath: "/sandbox/hosts",
			HostnamePath: "/sandbox/hostname", ResolvConfPath: "/sandbox/resolv.conf", TerminationLogPath: "/sandbox/log",
		},
		Host: spec.Host{
			NodeName: "node", NodeIPs: []string{"192.0.2.1"}, CgroupV2: true, SwapAccounting: true, Cgroups: spec.Cgroups{Root: "/monopod"},
			MemoryBytes: 8 << 30, MilliCPU: 4000, MinOOMScoreAdj: -1000, RecursiveReadOnly: true,
			Capabilities: []string{
				"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP",
				"CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_TIME",
			},
		},
	}
	in.Image.Entrypoint, in.Image.User, in.User = []string{"/image/entrypoint"}, "65532:65532", spec.User{UID: 65532, GID: 65532}
	uid, gid, _ := build.RequestedUser(pod, container)
	if uid != nil {
		in.User = spec.User{UID: uint32(*uid)}
	}
	if gid != nil {
		in.User.GID = uint32(*gid)
	}
	if !pod.Spec.HostNetwork {
		in.Sandbox.NetNS, in.Sandbox.UTSNS, in.Sandbox.IPs = "/ns/net", "/ns/uts", []string{"10.1.0.5"}
	}
	if users := pod.Spec.HostUsers; users != nil && !*users {
		in.Sandbox.UserNS, in.Sandbox.FirstID = "/ns/user", manifests.UserIDs
	}
	if pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace {
		in.Sandbox.PIDNS = "/ns/pid"
	}
	plans, err := volumeplan.ForPod(pod, in.Host)
	if err != nil {
		return nil, err
	}
	for _, v := range plans {
		in.Volumes[v.Name] = spec.Volume{HostPath: "/volumes/" + v.Name}
		if v.HostPath != nil {
			in.Volumes[v.Name] = spec.Volume{HostPath: v.HostPath.Path}
		}
		if v.Files != nil {
			if _, err := volumeplan.Files(in, v.Files); err != nil {
				return nil, err
			}
		}
	}
	paths, err := build.SubPaths(in)
	if err != nil {
		return nil, err
	}
	for i, path := range paths {
		in.SubPaths[i] = "/subpaths/" + path
	}
	return build.Spec(in)
}
