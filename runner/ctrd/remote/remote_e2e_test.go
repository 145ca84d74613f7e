//go:build e2e

package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestADeadServer has a file system whose server does not answer: processes that access it sleep in the kernel until the server is
// gone. Neither callers nor unmounting may block.
func TestADeadServer(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "mount.nfs"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	check(t, err)
	pod := filepath.Join(dir, "pods", "uid")
	target := Target(pod, "nfs", "v")
	check(t, os.MkdirAll(target, 0o755))
	check(t, unix.Mount("fuse", target, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())))
	m := NewMounter(func() {})
	for range 3 {
		began := time.Now()
		err := m.NFS(target, &corev1.NFSVolumeSource{Server: "nas", Path: "/x"}, false, nil)
		if err == nil || !strings.Contains(err.Error(), "use nas:/x: no answer after") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	}
	began := time.Now()
	if err := m.UnmountBelow(pod); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("to unmount it took %s", took)
	}
	if there, err := mounted(target); err != nil || there {
		t.Errorf("it is mounted: %t, %v", there, err)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the place is still there")
	}
	check(t, server.Close())
	m.Close() // waits for the process that slept in the kernel
}
