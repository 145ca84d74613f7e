//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// open lists what other users of the machine can find below the root and the state directory, with modes; <id> stands for a name. Nothing of it
// can be written to, and only what is said here can be read.
func openToUsers() map[string]string {
	return map[string]string{
		"root/applied": "drwx------", "root/cni": "drwxr-x---", "root/containerd": "drwx------", "root/events": "drwx------", "root/pods": "drwxr-x---",
		"root/volumes": "drwxr-x---", "root/revisions": "drwx------",
		"root/monopod.pid": "-rw-------", "root/reserve": "-rw-------", "root/shutdown.json": "-rw-------",
		"state/cni": "drwx------", "state/exits": "drwx------", "state/image-volumes": "drwx------", "state/logs": "drwx------", "state/pause-runc": "drwx------",
		"state/runc": "drwx------", "state/runc-shipped": "drwx------", "state/secrets": "drwx------", "state/shm": "drwx------", "state/subpaths": "drwx------",
		"state/exec": "drwx------", "state/handlers": "drwx------", "state/monopod.pid": "-rw-------", "state/monopod.sock": "Srw-------",
		// The users of pods with a user namespace need a way to their root file systems and namespaces.
		"state/containerd": "drwx--x--x",
		"state/containerd/io.containerd.runtime.v2.task":              "drwx--x--x",
		"state/containerd/io.containerd.runtime.v2.task/monopod":      "drwx--x--x",
		"state/containerd/io.containerd.runtime.v2.task/monopod/<id>": "drwx--x---",
		"state/containerd/mirror":                                     "drwx------",
		"state/containerd/monopod.lock":                               "-rw-------",
		"state/containerd/s":                                          "drwx------",
		"state/containerd/tmpmounts":                                  "drwx------",
		"state/ns":                                                    "drwx--x--x",
		"state/ns/<id>":                                               "drwx--x--x",
		"state/ns/<id>/ipc":                                           "-r--r--r--", // such files only name a namespace: joining it takes privileges in it
		"state/ns/<id>/net":                                           "-r--r--r--",
		"state/ns/<id>/pid":                                           "-r--r--r--",
		"state/ns/<id>/user":                                          "-r--r--r--",
		"state/ns/<id>/uts":                                           "-r--r--r--",
		"state/pause":                                                 "drwx--x--x",
		"state/pause/<id>":                                            "drwxr-xr-x",
		"state/pause/<id>/config.json":                                "-rw-------",
		"state/pause/<id>/pid":                                        "-rw-r--r--",
		"state/pause/<id>/rootfs":                                     "drwxr-xr-x",
		"state/pause/<id>/rootfs/dev":                                 "drwxr-xr-x",
		"state/pause/<id>/rootfs/pause":                               "-rwxr-xr-x", // an empty file, on which the program is mounted
		"state/pause/<id>/rootfs/proc":                                "drwxr-xr-x",
		"state/pause/<id>/runtime":                                    "-rw-------",
	}
}

var idInPath = regexp.MustCompile(`[0-9a-f]{64}`)

// reachable calls do for each file below a directory that other users can reach.
func reachable(t *testing.T, dir, name string, do func(name string, mode fs.FileMode)) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		below := idInPath.ReplaceAllString(name+"/"+e.Name(), "<id>")
		do(below, info.Mode())
		if info.IsDir() && info.Mode()&0o001 != 0 {
			reachable(t, path, below, do)
		}
	}
}

// nobodyLocks holds the lock of a file in a process of another user, which opened it when all users could.
func (in *instance) nobodyLocks(path string) {
	in.t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		in.t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(0o644), syscall.Flock(int(f.Fd()), syscall.LOCK_EX)); err != nil {
		in.t.Fatal(err)
	}
	c := exec.Command("sleep", "infinity")
	c.ExtraFiles = []*os.File{f}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
}

// TestAttackOfALocalUser: another user of the machine reaches neither the files of pods nor the locks of the agent, also after an update of a
// version that left them open, and pods with and without user namespaces have all that they had.
func TestAttackOfALocalUser(t *testing.T) {
	in := newInstanceForUsers(t)
	in.start()
	const script = `stat -c %a /dev/shm; echo x > /dev/shm/f && cat /dev/shm/f; ls /image/bin/busybox; cat /secret/k; echo; echo y > /claim/f; cat /sub/f`
	pod := func(name, more string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
%[2]s
  containers:
  - name: c
    image: %[3]s
    command: [sh, -c, '{ %[4]s; } 2>&1; echo done; exec sleep infinity']
    volumeMounts:
    - {name: image, mountPath: /image}
    - {name: secret, mountPath: /secret}
    - {name: claim, mountPath: /claim}
    - {name: claim, mountPath: /sub}
    - {name: claim, mountPath: /below, subPath: below}
  volumes:
  - {name: image, image: {reference: %[3]q}}
  - {name: secret, secret: {secretName: s}}
  - {name: claim, emptyDir: {}}
`, name, more, image, script)
	}
	in.put("secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: value}\n")
	const users = "  hostUsers: false\n  shareProcessNamespace: true"
	const want = "1777 x /image/bin/busybox value y"
	says := func(pods ...string) {
		t.Helper()
		for _, name := range pods {
			if got := in.says(name); got != want {
				t.Errorf("%s says %s, want %s", name, got, want)
			}
		}
	}
	in.put("one", pod("one", ""))
	in.put("two", pod("two", users))
	says("one", "two")

	in.kill9()
	for _, dir := range []string{"shm", "logs", "exits", "image-volumes", "pause"} { // as earlier versions had them
		if err := os.Chmod(filepath.Join(in.state, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in.nobodyLocks(filepath.Join(in.state, "monopod.pid"))
	in.nobodyLocks(filepath.Join(in.dir, "root", "monopod.pid"))
	in.start()
	in.put("three", pod("three", users))
	says("three")

	known := openToUsers()
	check := func(name string, mode fs.FileMode) {
		want := known[name]
		if got := mode.String(); got != want && (got != "drwx------" || want != "drwx--x---") {
			t.Errorf("%s is %s; the table has %q", name, got, want)
		}
	}
	reachable(t, in.state, "state", check)
	reachable(t, filepath.Join(in.dir, "root"), "root", check)
	for _, name := range []string{"one", "two"} {
		if n := in.ready(name).Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("%s was restarted %d times", name, n)
		}
	}
	if out, err := in.run("exec", "two", "--", "sh", "-c", "echo z > /dev/shm/g && cat /dev/shm/g /dev/shm/f"); err != nil || strings.Join(strings.Fields(out), " ") != "z x" {
		t.Errorf("/dev/shm after the update: %q, %v", out, err)
	}
}
