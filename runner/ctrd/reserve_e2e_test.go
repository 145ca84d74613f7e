//go:build e2e

package ctrd_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/ctrdtest"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/image"
)

// smallDisk mounts a file system of 64 MiB where the root directory will be.
func smallDisk(t *testing.T, w *ctrdtest.World) {
	t.Helper()
	root := filepath.Join(w.Dir, "root")
	for _, args := range [][]string{{"mkdir", root}, {"truncate", "-s", "64M", root + ".img"}, {"mkfs.ext4", "-q", root + ".img"}, {"mount", "-o", "loop", root + ".img", root}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}

// fillUp fills the disk, and the free pages of containerd's database, so that no record can be written.
func fillUp(t *testing.T, a *ctrdtest.Agent) {
	t.Helper()
	f, err := os.Create(filepath.Join(a.Config.RootDirectory, "filler"))
	ctrdtest.Check(t, err)
	defer func() { _ = f.Close() }()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for _, size := range []int{3000, 100, 1} { // what is larger finds no room first
		text, full := strings.Repeat("x", size), false
		for n := 0; !full; n++ {
			_, err := a.Client.LeasesService().Create(a.NS(t.Context()), leases.WithRandomID(), leases.WithExpiration(time.Hour), leases.WithLabels(map[string]string{"text": text}))
			if full = err != nil && strings.Contains(err.Error(), unix.ENOSPC.Error()); full {
				t.Logf("containerd can note no more after %d records of %d bytes: %v", n, size, err)
				break
			}
			ctrdtest.Check(t, err)
		}
	}
}

// TestAFullDiskGivesBackWhatNobodyNeeds checks that startup and all operations that free space work on a completely full disk.
func TestAFullDiskGivesBackWhatNobodyNeeds(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	smallDisk(t, w)
	a := w.Open(t)
	t.Cleanup(func() { a.End(t) })
	content := make([]byte, 1<<20)
	_, err := rand.Read(content)
	ctrdtest.Check(t, err)
	unused := testimages.Registry(t) + "/unused:1"
	testimages.Push(t, unused, testimages.Busybox(t, nil, testimages.File{Path: "content", Content: content}))
	_, err = a.Images().Pull(t.Context(), unused, corev1.PullIfNotPresent)
	ctrdtest.Check(t, err)
	ends := ctrdtest.Load(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: ends}\nspec:\n  hostNetwork: true\n  containers: [{name: c, image: %s, command: [sh, -c, \"head -c 1000000 /dev/urandom >/f\"]}]\n", ctrdtest.TestImage))
	stays := ctrdtest.Load(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: stays}\nspec:\n  hostNetwork: true\n  terminationGracePeriodSeconds: 0\n  containers: [{name: c, image: %s, command: [sleep, infinity]}]\n", ctrdtest.TestImage))
	ctrdtest.Check(t, errors.Join(ctrdtest.StartPod(t.Context(), a, ends), ctrdtest.StartPod(t.Context(), a, stays)))
	a.Finishes(t, a.Exit(t, ends.Key()), func(action runner.Action) error { return a.Apply(t.Context(), ends.Key(), ends, action) })
	ctrdtest.Within(t, 10*time.Second, "room is kept", func() bool { _, err := os.Stat(a.Reserve.Path); return err == nil })

	fillUp(t, a)
	out, err := a.Images().Collect(t.Context(), image.Collection{Bytes: math.MaxInt64, Needs: func() (refs, digests []string, err error) { return []string{ctrdtest.TestImage}, nil, nil }})
	if err != nil || out.Freed < 1<<20 {
		t.Errorf("images: %+v, %v", out, err)
	}
	if all, err := a.Images().List(t.Context()); err != nil || len(all) != 1 || !slices.Contains(all[0].Names, ctrdtest.TestImage) {
		t.Errorf("images that are left: %+v, %v", all, err)
	}
	if n, err := a.Garbage.ReclaimContainers(t.Context()); err != nil || n < 1000000 {
		t.Errorf("what containers have left: %d bytes, %v", n, err)
	}

	fillUp(t, a)
	a.Cancel() // as if killed: nothing can be noted about the end either
	ctrdtest.Check(t, <-a.Ended)
	_ = a.Close()
	*a = *w.Open(t)
	st, err := a.Observe(t.Context(), stays.Key())
	if err != nil || len(st.Containers) != 1 || st.Containers[0].Exit != nil {
		t.Errorf("the pod that runs: %+v, %v", st, err)
	}
	ctrdtest.Check(t, os.Remove(filepath.Join(a.Config.RootDirectory, "filler")))
	ctrdtest.Check(t, errors.Join(ctrdtest.RemovePod(t.Context(), a, ends.Key()), ctrdtest.RemovePod(t.Context(), a, stays.Key())))
	a.Idle(t)
}
