//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// serviceManager stands for systemd: it returns the notifications that it receives.
func serviceManager(t *testing.T) (told func(prefix string) string) {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "sd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	t.Setenv("WATCHDOG_USEC", "4000000")
	return func(prefix string) string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		for b := make([]byte, 1<<12); ; {
			n, err := conn.Read(b)
			if err != nil {
				t.Fatalf("%s was not told: %v", prefix, err)
			}
			if text := string(b[:n]); strings.HasPrefix(text, prefix) {
				return text
			}
		}
	}
}

// TestLifeOfAMachine: the service manager is notified by monopod, but not by processes that monopod starts. A drain stops pods by priority,
// survives a restart, and uncordoning resumes them. Finally everything is uninstalled.
func TestLifeOfAMachine(t *testing.T) {
	in := newInstance(t)
	told := serviceManager(t)
	in.start()
	told("READY=1")
	told("WATCHDOG=1")
	volume := "    volumeMounts: [{name: v, mountPath: /v}]\n  priority: %d\n  volumes: [{name: v, emptyDir: {}}]"
	in.put("low", sleeper("low", "echo again >>/v/file; cat /v/file; env", fmt.Sprintf(volume, 1)))
	in.put("high", sleeper("high", ":", fmt.Sprintf(volume, 1000)))
	in.put("spared", sleeper("spared", ":", fmt.Sprintf(volume, 1)))
	low := in.ready("low")
	in.ready("high")
	untouched := in.untouched("spared")
	if out, err := in.run("logs", "low"); err != nil || strings.Contains(out, "NOTIFY_SOCKET") {
		t.Errorf("%v: %s", err, out)
	}
	out, err := in.run("drain", "--ignore", "spared", "--timeout", "60s")
	if first, second := strings.Index(out, "default/low has stopped"), strings.Index(out, "default/high has stopped"); err != nil || first < 0 || second < first {
		t.Errorf("%v: %s", err, out)
	}
	told("STATUS=3 pods: 1 running, 0 completed, 2 not; drained")
	in.put("new", sleeper("new", ":"))
	in.kill9()
	in.start()
	for _, name := range []string{"low", "high", "new"} {
		if p := in.pod(name, "is drained", func(p corev1.Pod) bool { return p.Status.Reason == "Drained" }); p.Status.Phase != "Pending" {
			t.Errorf("%s: %s", name, brief(p))
		}
	}
	untouched("while others are drained")
	if _, err := in.run("undrain"); err != nil {
		t.Error(err)
	}
	if after := in.ready("low"); after.UID != low.UID || after.Status.PodIP != low.Status.PodIP {
		t.Errorf("another pod comes back: %s", brief(after))
	}
	in.ready("high")
	in.ready("new")
	in.eventually("the volume has what was in it", func() error {
		if out, err := in.run("logs", "low"); err != nil || !strings.HasPrefix(out, "again\nagain\n") {
			return fmt.Errorf("%w: %q", err, out)
		}
		return nil
	})
	in.write(filepath.Join(in.dir, "root", "config.json"), "{}")
	uninstall := exec.Command(filepath.Join(in.bin, "monopod-client"), "uninstall", "--yes", "--config", in.config)
	if b, err := uninstall.CombinedOutput(); err != nil || !strings.Contains(string(b), "removing pod default/low") || strings.Contains(string(b), "level=") {
		t.Fatalf("uninstall: %v: %s", err, b)
	}
	if err := <-in.exited; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	in.cmd = nil
	in.leftovers()
	for _, dir := range []string{in.state, filepath.Join(in.dir, "root", "containerd"), filepath.Join(in.dir, "logs", "pods"), "/sys/fs/cgroup" + in.cgroup, "/sys/fs/cgroup/memory" + in.cgroup} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if rest, err := os.ReadDir(filepath.Join(in.dir, "root")); err != nil || len(rest) != 1 {
		t.Errorf("rootDirectory has %v, %v", rest, err)
	}
}
