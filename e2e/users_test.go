//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// usersPod runs script, then prints "done" and sleeps.
func usersPod(name, host, extra, script string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
%s
  containers:
  - name: c
    image: %s
    securityContext: {capabilities: {add: [NET_ADMIN]}, procMount: Unmasked}
    command: [sh, -c, '{ %s; } 2>&1; echo done > /dev/stdout; exec sleep infinity']
    volumeMounts: [{name: data, mountPath: /data}, {name: host, mountPath: /host}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: host, hostPath: {path: %s}}
`, name, extra, image, script, host)
}

// TestUserNamespaces: the ids of pods differ from those of the machine and of other pods, while files appear with their usual owners. If
// the system's runc is too old, monopod uses the bundled one.
func TestUserNamespaces(t *testing.T) {
	t.Setenv("TMPDIR", "/var/tmp") // in the VM /tmp is a tmpfs, of which its kernel cannot map ids
	in := newInstance(t)
	// The users of pods need access to their root file systems there.
	if err := os.Chmod(filepath.Dir(in.state), 0o711); err != nil {
		t.Fatal(err)
	}
	in.start()
	host := filepath.Join(in.dir, "host")
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	const look = `set -- $(cat /proc/self/uid_map); echo map $1 $3; id -u; stat -c "%u:%g %n" /bin/busybox /etc/hosts /data /host /dev/shm; ` +
		`echo "10.0.0.1 mine" >> /etc/hosts && touch /bin/new /data/f /host/f /dev/shm/f && stat -c "%u:%g %n" /bin/new /data/f /host/f /dev/shm/f; ` +
		`ip addr add 10.99.0.1/32 dev lo && echo linked; grep -c " /proc/" /proc/self/mountinfo`
	const want = "map 0 65536 0 0:0 /bin/busybox 0:0 /etc/hosts 0:0 /data 0:0 /host 0:0 /dev/shm " +
		"0:0 /bin/new 0:0 /data/f 0:0 /host/f 0:0 /dev/shm/f linked 0"
	in.put("one", usersPod("one", host, "", look))
	if got := in.says("one"); got != want {
		t.Errorf("the first pod says\n%s\nwant\n%s", got, want)
	}
	if st, err := os.Stat(filepath.Join(host, "f")); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the file on the host: %+v, %v", st, err)
	}

	const user = `grep -E "^(Uid|Gid|Groups):" /proc/self/status | tr "\n\t" "  "; touch /data/g && stat -c "%u:%g %n" /data /data/g; ps -o pid,args | grep -c "^ *1 /pause"`
	in.put("two", usersPod("two", host, "  shareProcessNamespace: true\n  securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 3000, supplementalGroups: [4000]}", user))
	if got, want := in.says("two"), "Uid: 1000 1000 1000 1000 Gid: 1000 1000 1000 1000 Groups: 29 1000 2000 3000 4000 0:3000 /data 1000:3000 /data/g 1"; got != want {
		t.Errorf("the second pod says\n%s\nwant\n%s", got, want)
	}

	one, two := in.firstID("one"), in.firstID("two")
	if one < 65536 || two < 65536 || one%65536 != 0 || one == two {
		t.Errorf("the pods have the ids from %d and %d on", one, two)
	}
	in.kill9()
	in.start()
	in.put("three", usersPod("three", host, "", "id -u"))
	in.says("three")
	if three := in.firstID("three"); three == one || three == two {
		t.Errorf("after a restart a pod has the ids from %d on, others have those from %d and %d", three, one, two)
	}
	in.drop("one")
	in.gone("one")
	in.eventually("the ids of the removed pod are given again", func() error {
		in.drop("three")
		in.gone("three")
		in.put("three", usersPod("three", host, "", "id -u"))
		in.says("three")
		if three := in.firstID("three"); three != one {
			return fmt.Errorf("the pod has the ids from %d on", three)
		}
		return nil
	})
}

// firstID returns the uid of the machine that root of a pod maps to.
func (in *instance) firstID(name string) int {
	in.t.Helper()
	p := in.ready(name)
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	procs, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		in.t.Fatal(err)
	}
	for _, f := range procs {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), id) {
			continue
		}
		m, err := os.ReadFile(filepath.Join(filepath.Dir(f), "uid_map"))
		if fields := strings.Fields(string(m)); err == nil && len(fields) == 3 {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				in.t.Fatal(err)
			}
			return n
		}
	}
	in.t.Fatalf("no process of %s found", name)
	return 0
}
