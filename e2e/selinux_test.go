//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSELinux: processes, root file system and volumes of a container have the requested labels; containers without labels have none.
func TestSELinux(t *testing.T) {
	if _, err := os.Stat("/sys/fs/selinux/policyvers"); err != nil {
		t.Skip("needs a kernel with SELinux; .ci/vm -selinux runs this")
	}
	t.Setenv("TMPDIR", "/var/tmp")
	in := newInstance(t)
	in.start()
	pod := func(name, security, options string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {%s}
  containers:
  - name: c
    image: %s
    command: [sh, -c, 'touch /disk/f /mem/f; exec sleep infinity']
    securityContext: {%s}
    volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}]
  volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}]
`, name, security, image, options)
	}
	in.put("plain", pod("plain", "", ""))
	in.put("asks", pod("asks", `seLinuxOptions: {level: "s0:c1,c2", type: machine_t}`, ""))
	in.put("special", pod("special", `seLinuxOptions: {level: "s0:c1,c2"}`, `seLinuxOptions: {user: other_u, role: other_r, type: special_t, level: "s0:c3"}`))
	in.put("mighty", pod("mighty", `seLinuxOptions: {level: "s0:c1,c2"}`, "privileged: true"))
	const machine = "system_u:system_r:machine_t:s0"
	for name, want := range map[string]struct{ process, file string }{
		"plain":   {machine, "system_u:object_r:machine_t:s0"},
		"asks":    {"system_u:system_r:machine_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"},
		"special": {"other_u:other_r:special_t:s0:c3", "other_u:object_r:container_file_t:s0:c3"},
		"mighty":  {machine, "system_u:object_r:container_file_t:s0:c1,c2"},
	} {
		in.ready(name)
		pid := in.pidOf(name)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/current", pid))
		if got := strings.TrimRight(string(b), "\x00\n"); got != want.process || err != nil {
			t.Errorf("%s: the process is %s, want %s: %v", name, got, want.process, err)
		}
		out, err := in.run("exec", name, "--", "cat", "/proc/self/attr/current")
		if got := strings.TrimRight(out, "\x00\n"); got != want.process || err != nil {
			t.Errorf("%s: a command in it is %s, want %s: %v", name, got, want.process, err)
		}
		for _, file := range []string{"/bin/busybox", "/etc/hosts", "/etc/resolv.conf", "/disk", "/mem", "/dev/shm"} {
			label := make([]byte, 256)
			n, err := unix.Lgetxattr(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), file), "security.selinux", label)
			if got := strings.TrimRight(string(label[:max(n, 0)]), "\x00"); got != want.file || err != nil {
				t.Errorf("%s: %s is %s, want %s: %v", name, file, got, want.file, err)
			}
		}
	}
}

// pidOf returns a process of the pod's only container.
func (in *instance) pidOf(name string) int {
	in.t.Helper()
	id := strings.TrimPrefix(containerID(in.ready(name), "c"), "containerd://")
	procs, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		in.t.Fatal(err)
	}
	for _, f := range procs {
		var pid int
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), id) {
			if _, err := fmt.Sscanf(f, "/proc/%d/cgroup", &pid); err == nil {
				return pid
			}
		}
	}
	in.t.Fatalf("no process of %s found", name)
	return 0
}
