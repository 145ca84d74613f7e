package embed

import (
	"net"
	"os"
	"path/filepath"
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
