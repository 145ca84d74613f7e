//go:build e2e

package linuxns

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var allNamespaces = Set{Net: true, IPC: true, UTS: true, Hostname: "web-0"}

// in runs fn in the namespaces pinned in dir.
func in(t *testing.T, dir string, fn func() error) {
	t.Helper()
	err := RunOnThread(func() error {
		for _, name := range []string{"net", "ipc", "uts"} {
			fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = unix.Setns(fd, 0)
			_ = unix.Close(fd)
			if err != nil {
				return err
			}
		}
		return fn()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func mountsBelow(t *testing.T, dir string) int {
	t.Helper()
	return strings.Count(read(t, "/proc/self/mountinfo"), " "+dir+"/")
}

func pinned(t *testing.T, ns Set) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ns", "sandbox")
	t.Cleanup(func() {
		if err := Unpin(dir); err != nil {
			t.Error(err)
		}
	})
	if err := Pin(dir, ns); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPinMakesCompleteNamespaces(t *testing.T) {
	hostPort := read(t, "/proc/sys/net/ipv4/ip_unprivileged_port_start")
	ns := allNamespaces
	ns.Sysctls = map[string]string{"net.ipv4.tcp_syncookies": "0", "kernel.shm_rmid_forced": "1", "net.ipv4.ping_group_range": "5 6"}
	dir := pinned(t, ns)
	if !Pinned(dir, ns) {
		t.Fatal("not pinned after Pin")
	}
	in(t, dir, func() error {
		want := map[string]string{
			"net/ipv4/ip_unprivileged_port_start": "0", "net/ipv4/ping_group_range": "5\t6",
			"net/ipv4/tcp_syncookies": "0", "kernel/shm_rmid_forced": "1", "kernel/hostname": "web-0",
		}
		for path, w := range want {
			if got := read(t, "/proc/sys/"+path); got != w {
				t.Errorf("%s = %q, want %q", path, got, w)
			}
		}
		if got := read(t, "/proc/thread-self/net/if_inet6"); !strings.HasPrefix(got, "00000000000000000000000000000001") {
			t.Errorf("lo has no ::1, so it is down: %q", got)
		}
		return nil
	})
	if got := read(t, "/proc/sys/net/ipv4/ip_unprivileged_port_start"); got != hostPort {
		t.Errorf("the host's sysctl changed to %s", got)
	}
	if name, _ := os.Hostname(); name == "web-0" {
		t.Error("the host's name changed")
	}
}

func TestPinKeepsWhatIsPinnedAndAddsWhatIsMissing(t *testing.T) {
	dir := pinned(t, Set{Net: true})
	var before, after unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "net"), &before); err != nil {
		t.Fatal(err)
	}
	if Pinned(dir, allNamespaces) {
		t.Error("ipc and uts are reported as pinned")
	}
	if err := Pin(dir, allNamespaces); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(filepath.Join(dir, "net"), &after); err != nil {
		t.Fatal(err)
	}
	if before.Ino != after.Ino {
		t.Error("the network namespace was replaced")
	}
	if !Pinned(dir, allNamespaces) || mountsBelow(t, dir) != 3 {
		t.Errorf("%d mounts, want 3", mountsBelow(t, dir))
	}
}

func TestUnpinCopesWithEveryLeftover(t *testing.T) {
	dir := pinned(t, allNamespaces)
	net := filepath.Join(dir, "net")
	if err := unix.Mount("/proc/self/ns/net", net, "", unix.MS_BIND, ""); err != nil { // doubly mounted
		t.Fatal(err)
	}
	if err := unix.Unmount(filepath.Join(dir, "ipc"), 0); err != nil { // unmounted already: a plain file
		t.Fatal(err)
	}
	if Pinned(dir, allNamespaces) {
		t.Error("a plain file counts as a pin")
	}
	if err := os.WriteFile(filepath.Join(dir, "leftover"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Unpin(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) || mountsBelow(t, dir) != 0 {
		t.Errorf("left behind: %v, %d mounts", err, mountsBelow(t, dir))
	}
}

func TestPinReplacesPlainFilesOfAnEarlierBoot(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"net", "ipc", "uts"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = Unpin(dir) })
	if Pinned(dir, allNamespaces) {
		t.Fatal("plain files count as pins")
	}
	if err := Pin(dir, allNamespaces); err != nil || !Pinned(dir, allNamespaces) {
		t.Fatal("not pinned:", err)
	}
}

func TestAFailedSysctlPinsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	ns := allNamespaces
	ns.Sysctls = map[string]string{"net.ipv4.ip_forward": "not a number"}
	if err := Pin(dir, ns); err == nil || !strings.Contains(err.Error(), "ip_forward") {
		t.Fatalf("error %v does not name the sysctl", err)
	}
	if mountsBelow(t, dir) != 0 {
		t.Error("something was pinned")
	}
	if err := Unpin(dir); err != nil {
		t.Fatal(err)
	}
}

func TestRecursiveBindMountsDoNotCopyPins(t *testing.T) {
	dir := pinned(t, allNamespaces)
	copyOf := t.TempDir()
	if err := unix.Mount(filepath.Dir(dir), copyOf, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(copyOf, unix.MNT_DETACH) }()
	if n := mountsBelow(t, copyOf); n != 0 {
		t.Errorf("%d pins were copied into a bind mount of their parent", n)
	}
}

func TestManyPinsLeaveNoThreadAndNoNamespaceBehind(t *testing.T) {
	own := read(t, "/proc/self/comm")
	before, _ := os.Readlink("/proc/self/ns/net")
	for i := range 100 {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := Pin(dir, allNamespaces); err != nil {
			t.Fatal(err)
		}
		if err := Unpin(dir); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 || own == "" {
		t.Fatal("cannot see own threads:", err)
	}
	for _, task := range tasks {
		if ns, err := os.Readlink(task); err == nil && ns != before {
			t.Errorf("%s is in %s", task, ns)
		}
	}
}

func BenchmarkPinUnpin(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "s")
	for b.Loop() {
		if err := Pin(dir, allNamespaces); err != nil {
			b.Fatal(err)
		}
		if err := Unpin(dir); err != nil {
			b.Fatal(err)
		}
	}
}
