package embed

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestSocketsFitIntoTheirPathHoweverLongTheStateDirectoryIs(t *testing.T) {
	shim := strings.Repeat("f", 64)
	for _, state := range []string{"/run/monopod/containerd", "/tmp/pytest-of-root/pytest-0/test_two_instances_0/state-directory-of-the-first/containerd"} {
		dir := sockets(state)
		for _, name := range []string{filepath.Join(socketDir, shim), "containerd.sock.ttrpc"} {
			if path := filepath.Join(dir, name); len(path) > 107 {
				t.Errorf("%s: the path of %s has %d characters", state, path, len(path))
			}
		}
		if sockets(state) != dir {
			t.Errorf("%s: the directory changes", state)
		}
	}
	if a, b := sockets(strings.Repeat("/a", 60)), sockets(strings.Repeat("/a", 61)); a == b {
		t.Errorf("two state directories share %s", a)
	}
}

func TestSocketsThatNobodyListensOnAreRemovedAndNoOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, socketDir), 0o711); err != nil {
		t.Fatal(err)
	}
	listen := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketDir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return l
	}
	alive := listen("alive")
	defer alive.Close()
	if err := listen("killed").Close(); err != nil {
		t.Fatal(err)
	}
	sweepSockets(dir)
	entries, err := os.ReadDir(filepath.Join(dir, socketDir))
	if err != nil || len(entries) != 1 || entries[0].Name() != "alive" {
		t.Errorf("left are %v (%v)", entries, err)
	}
}

// TestSocketsOfKilledInstances are removed by the next one, which may be another one, but not what an instance or a shim still uses.
func TestSocketsOfKilledInstances(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "sockets")
	made := func(instance, socket string, alive bool) {
		t.Helper()
		path := filepath.Join(parent, instance, socket)
		if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
		if !alive {
			_ = l.Close()
		}
	}
	for _, instance := range []string{"killed", "starting", "old", "agentless"} {
		made(instance, ttrpcSocket, instance == "old") // an older version does not lock
		made(instance, filepath.Join(socketDir, "dead"), false)
	}
	made("agentless", filepath.Join(socketDir, "shim"), true)
	held, err := holdSockets(filepath.Join(parent, "starting"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := func() (all []string) {
		_ = filepath.WalkDir(parent, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				name, _ := filepath.Rel(parent, path)
				all = append(all, name)
			}
			return err
		})
		return all
	}
	sweepOthers(parent)
	want := []string{"agentless/s/shim", "old/" + ttrpcSocket, "old/s/dead", "other", "starting/" + ttrpcSocket, "starting/s/dead"}
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(parent, "killed")); err == nil {
		t.Error("the directory of the killed instance is left")
	}
	_ = held.Close()
	sweepOthers(parent)
	if got := left(); !slices.Equal(got, want[:4]) {
		t.Errorf("after the end of the lock, left are %q, want %q", got, want[:4])
	}
}

// TestALockedDirectoryOfSocketsIsTheOneAtItsPath: another instance may remove it before it is locked.
func TestALockedDirectoryOfSocketsIsTheOneAtItsPath(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "sockets")
	dir := filepath.Join(parent, "one")
	var others sync.WaitGroup
	stop := make(chan struct{})
	others.Go(func() { // an instance that starts, again and again
		for {
			select {
			case <-stop:
				return
			default:
				sweepOthers(parent)
			}
		}
	})
	defer others.Wait()
	defer close(stop)
	for range 200 {
		f, err := holdSockets(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !isAt(f, dir) {
			t.Error("the directory was removed though it is locked")
		}
		_ = f.Close()
	}
}

func TestSocketsAreMadeWhileOthersRemoveTheirs(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "sockets")
	var others sync.WaitGroup
	stop := make(chan struct{})
	others.Go(func() { // an instance that ends, again and again
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Remove(parent)
			}
		}
	})
	defer others.Wait()
	defer close(stop)
	for range 200 {
		dir := filepath.Join(parent, "one")
		if err := makeSockets(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
}
