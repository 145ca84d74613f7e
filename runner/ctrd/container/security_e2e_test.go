//go:build e2e

package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/e2e/ctrdtest"
	"monopod/runner"
)

func TestGroupsOfAProcess(t *testing.T) {
	a := ctrdtest.NewWorld(t).Open(t)
	defer a.End(t)
	// In the image's /etc/group app (1000) is in 29 and 2000 too.
	for policy, want := range map[string]string{"Merge": "29 1000 2000 3000 4000", "Strict": "1000 3000 4000"} {
		got := a.Tell(t, `
apiVersion: v1
kind: Pod
metadata: {name: groups}
spec:
  hostNetwork: true
  securityContext: {runAsUser: 1000, fsGroup: 4000, supplementalGroups: [3000], supplementalGroupsPolicy: `+policy+`}
  containers:
  - name: c
    %s
`, `sed -n 's/^Groups:[[:space:]]*//p' /proc/self/status`)
		if got != want {
			t.Errorf("%s: groups are %q, want %q", policy, got, want)
		}
	}
}

// TestFSGroupOwnsEmptyDirs also changes the group of a pod that runs.
func TestFSGroupOwnsEmptyDirs(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	host := filepath.Join(w.Dir, "host")
	ctrdtest.Check(t, os.Mkdir(host, 0o755))
	manifest := `
apiVersion: v1
kind: Pod
metadata: {name: owned}
spec:
  hostNetwork: true
  securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: %d, fsGroupChangePolicy: OnRootMismatch}
  containers:
  - name: c
    image: ` + ctrdtest.TestImage + `
    command: [sh, -c, "{ stat -c %%a:%%g /disk /mem /host; touch /disk/f; stat -c %%a:%%g /disk/f; } > /dev/termination-log 2>&1"]
    volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}, {name: host, mountPath: /host}]
  volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}, {name: host, hostPath: {path: ` + host + `}}]
`
	pod := ctrdtest.Load(t, fmt.Sprintf(manifest, 4000))
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	if got, want := strings.Fields(a.Exit(t, pod.Key()).Exit.Message), "2777:4000 3777:4000 755:0 644:4000"; strings.Join(got, " ") != want {
		t.Errorf("the volumes are %q, want %q", got, want)
	}
	edited := ctrdtest.Load(t, fmt.Sprintf(manifest, 5000))
	for _, kind := range []runner.ActionKind{runner.CreateContainer, runner.StartContainer} {
		ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), edited, runner.Action{Kind: kind, Container: "c"}))
	}
	if got, want := strings.Fields(a.Exit(t, pod.Key()).Exit.Message), "2777:5000 3777:5000 755:0 664:5000"; strings.Join(got, " ") != want {
		t.Errorf("after the edit the volumes are %q, want %q", got, want)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
}

// TestSeccompProfiles has one of the machine that forbids mkdir.
func TestSeccompProfiles(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	dir := filepath.Join(a.Config.RootDirectory, "seccomp", "profiles")
	ctrdtest.Check(t, os.MkdirAll(dir, 0o755))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "no-mkdir.json"), []byte(
		`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]}`), 0o600))
	const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: confined}
spec:
  hostNetwork: true
  containers:
  - name: c
    securityContext: {seccompProfile: {%s}}
    `
	const script = `sed -n 's/^Seccomp:[[:space:]]*/mode /p' /proc/self/status; mkdir /tmp/x && echo made; unshare -m true && echo unshared`
	for profile, want := range map[string]string{
		"type: Localhost, localhostProfile: profiles/no-mkdir.json": "mode 2\nmkdir: can't create directory '/tmp/x': Operation not supported\nunshare: unshare(0x20000): Operation not permitted",
		"type: RuntimeDefault": "mode 2\nmade\nunshare: unshare(0x20000): Operation not permitted",
		"type: Unconfined":     "mode 0\nmade\nunshare: unshare(0x20000): Operation not permitted",
	} {
		if got := a.Tell(t, fmt.Sprintf(manifest, profile)+"%s\n", script); got != want {
			t.Errorf("%s: the process says\n%s\nwant\n%s", profile, got, want)
		}
	}
	pod := ctrdtest.Load(t, fmt.Sprintf(manifest, "type: Localhost, localhostProfile: none.json")+"image: "+ctrdtest.TestImage)
	err := ctrdtest.StartPod(t.Context(), a, pod)
	if err == nil || !strings.Contains(err.Error(), "cannot load seccomp profile") {
		t.Errorf("with a profile that is not there: %v", err)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
}

func TestSysctlsOfAPod(t *testing.T) {
	a := ctrdtest.NewWorld(t).Open(t)
	defer a.End(t)
	const script = "cd /proc/sys && cat net/ipv4/ip_local_port_range net/ipv4/ip_unprivileged_port_start kernel/shm_rmid_forced kernel/msgmax"
	host := func() string {
		b, err := os.ReadFile("/proc/sys/kernel/msgmax")
		ctrdtest.Check(t, err)
		return string(b)
	}
	before := host()
	got := a.Tell(t, `
apiVersion: v1
kind: Pod
metadata: {name: tuned}
spec:
  securityContext:
    sysctls:
    - {name: net.ipv4.ip_local_port_range, value: "10000 10100"}
    - {name: net/ipv4/ip_unprivileged_port_start, value: "80"}
    - {name: kernel.shm_rmid_forced, value: "1"}
    - {name: kernel.msgmax, value: "12345"}
  containers:
  - name: c
    %s
`, script)
	if want := "10000\t10100\n80\n1\n12345"; got != want {
		t.Errorf("the pod sees %q, want %q", got, want)
	}
	if now := host(); now != before {
		t.Errorf("kernel.msgmax of the host was %s and is %s", before, now)
	}
}
