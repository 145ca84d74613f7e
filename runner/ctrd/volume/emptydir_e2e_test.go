//go:build e2e

package volume_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
)

// emptyDirPod runs a script with the emptyDir at /v that is given as YAML; more is for spec.
func emptyDirPod(t testing.TB, name, volume, more, script string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers:
  - {name: c, image: %s, command: [sh, -c, %q], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, emptyDir: %s}]
%s
`, name, ctrdtest.TestImage, script, volume, more))
}

func TestModesOfEmptyDirs(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	const show = "stat -c '%a %u:%g' /v"
	for i, tt := range []struct{ volume, more, want string }{
		{"{}", "", "777 0:0"},
		{"{mode: 0750}", "", "750 0:0"},
		{"{mode: 01777}", "", "1777 0:0"},
		{"{mode: 0700, medium: Memory}", "", "700 0:0"},
		{"{mode: 01777, medium: Memory}", "", "1777 0:0"},
		{"{mode: 0500}", "  securityContext: {fsGroup: 1234}", "2770 0:1234"},
		{"{medium: Memory}", "", "1777 0:0"},
		{"{}", "  securityContext: {fsGroup: 1234}", "2777 0:1234"},
		{"{medium: Memory}", "  securityContext: {fsGroup: 1234}", "3777 0:1234"},
		{"{mode: 0705, medium: Memory}", "  securityContext: {fsGroup: 1234}", "2775 0:1234"},
	} {
		if got := a.Output(t, emptyDirPod(t, fmt.Sprintf("mode%d", i), tt.volume, tt.more, show)); got != tt.want+"\n" {
			t.Errorf("%s%s: the container sees %q, want %s", tt.volume, tt.more, got, tt.want)
		}
	}
}

// TestASubPathOfAnEmptyDirHasItsMode, with the bits for fsGroup and the sticky bit.
func TestASubPathOfAnEmptyDirHasItsMode(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	for volume, want := range map[string]string{"{}": "2777 0:123\n", "{medium: Memory}": "3777 0:123\n"} {
		pod := emptyDirPod(t, "sub", volume, "  securityContext: {fsGroup: 123}", "stat -c '%a %u:%g' /v")
		pod.Object.Spec.Containers[0].VolumeMounts[0].SubPath = "test-sub"
		if got := a.Output(t, pod); got != want {
			t.Errorf("%s: the container sees %q, want %q", volume, got, want)
		}
	}
}

// nextOutput is another instance of the pod's container, by an edited manifest.
func nextOutput(t testing.TB, a *ctrdtest.Agent, pod *manifests.Pod) string {
	t.Helper()
	before := len(a.Index.OfPod(pod.Key()))
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	if n := len(a.Index.OfPod(pod.Key())); n != before+1 {
		t.Fatalf("%d containers, want %d", n, before+1)
	}
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.StartContainer, Container: "c"}))
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.RecordPod}))
	c := a.Exit(t, pod.Key())
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: c.ID, Exit: c.Exit}))
	return a.LogOf(t, pod.Key())
}

// TestEditsOfEmptyDirs: files stay as long as the medium does; the volume follows the rest.
func TestEditsOfEmptyDirs(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	const show = "ls /v; stat -c %a /v; stat -f -c '%T %b' /v | grep tmpfs; touch /v/f; chmod 711 /v"
	pod := func(volume string) *manifests.Pod { return emptyDirPod(t, "edited", volume, "", show) }
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod("{}")))
	a.Exit(t, pod("{}").Key())
	for _, tt := range []struct{ volume, want string }{
		{"{}", "f\n711\n"},
		{"{mode: 0755}", "f\n755\n"},
		{"{mode: 0755}", "f\n711\n"},
		{"{medium: Memory, sizeLimit: 4Mi}", "1777\ntmpfs 1024\n"},
		{"{medium: Memory, sizeLimit: 8Mi}", "f\n711\ntmpfs 2048\n"},
		{"{}", "777\n"},
	} {
		if got := nextOutput(t, a, pod(tt.volume)); got != tt.want {
			t.Errorf("after an edit to %s the container sees %q, want %q", tt.volume, got, tt.want)
		}
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod("{}").Key()))
	a.Idle(t)
}

// hugePages reserves two huge pages of 2 MiB for the test.
func hugePages(t testing.TB) {
	t.Helper()
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	before, err := os.ReadFile(pool)
	ctrdtest.Check(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(before)))
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, os.WriteFile(pool, []byte(strconv.Itoa(n+2)), 0))
	t.Cleanup(func() { ctrdtest.Check(t, os.WriteFile(pool, before, 0)) })
}

// TestHugePagesOfEmptyDirs has the pages requested by a container that is not started, as machines whose kernel cannot
// limit them do not start it.
func TestHugePagesOfEmptyDirs(t *testing.T) {
	hugePages(t)
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	const request = "  initContainers: [{name: i, image: x, resources: {limits: {hugepages-2Mi: 2Mi, memory: 1Mi}}}]"
	for name, volume := range map[string]string{"any": "{medium: HugePages, sizeLimit: 2Mi, mode: 0750}", "sized": "{medium: HugePages-2Mi}"} {
		pod := emptyDirPod(t, name, volume, request, "grep ' /v ' /proc/mounts; stat -c %a /v; exec sleep 1000")
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		mode, size := "777", ""
		if name == "any" {
			mode, size = "750", ",size=2097152"
		}
		a.Says(t, pod.Key(), mode)
		if got := a.LogOf(t, pod.Key()); !strings.Contains(got, "/v hugetlbfs rw,") || !strings.Contains(got, "pagesize=2M"+size) {
			t.Errorf("the container sees %s", got)
		}
		path := a.Dirs.EmptyDir("uid-"+name, "v")
		f, err := os.OpenFile(filepath.Join(path, "file"), os.O_CREATE|os.O_RDWR, 0o600)
		ctrdtest.Check(t, err)
		ctrdtest.Check(t, f.Truncate(2<<20))
		memory, err := unix.Mmap(int(f.Fd()), 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		ctrdtest.Check(t, err)
		memory[0] = 1
		var st unix.Statfs_t
		ctrdtest.Check(t, unix.Fstatfs(int(f.Fd()), &st))
		if st.Bsize != 2<<20 || size != "" && st.Bfree != 0 {
			t.Errorf("pages of %d bytes, %d free", st.Bsize, st.Bfree)
		}
		ctrdtest.Check(t, unix.Munmap(memory))
		ctrdtest.Check(t, f.Close())
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
		a.Idle(t)
		if trees.IsMountPoint(path) {
			t.Errorf("%s is still mounted", path)
		}
	}
	refused(t, a, emptyDirPod(t, "none", "{medium: HugePages-1Gi}", request, "true"), "there is no resource request for huge pages")
}
