//go:build e2e

package imagetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	snapshotsapi "github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/image/imagestore"
)

// Containerd starts an embedded containerd for a test.
func Containerd(t *testing.T) *client.Client {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts images")
	}
	dir, err := os.MkdirTemp("/run", "mp-img-") // t.TempDir is too long for sockets
	Check(t, err)
	c, stop, err := embed.Start(t.Context(), embed.Config{
		Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler),
	})
	Check(t, err)
	t.Cleanup(func() {
		Check(t, stop(context.Background()))
		Check(t, os.RemoveAll(dir))
	})
	return c
}

// Check ends the test at an error.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Store returns a store on a containerd, with an edited configuration; edit may be nil.
func Store(t *testing.T, c *client.Client, edit func(*imagestore.Config)) *imagestore.Store {
	t.Helper()
	cfg := imagestore.Config{Snapshotter: embed.Overlayfs, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if edit != nil {
		edit(&cfg)
	}
	return imagestore.New(c, cfg)
}

// Reason returns the reason of a StepError, or else the error.
func Reason(err error) string {
	if se, ok := errors.AsType[*runner.StepError](err); ok {
		return se.Reason
	}
	return fmt.Sprintf("no StepError: %v", err)
}

// NS returns a context in the namespace of the stores.
func NS(t *testing.T) context.Context {
	t.Helper()
	return namespaces.WithNamespace(t.Context(), embed.Namespace)
}

// Snapshots returns the names of all snapshots.
func Snapshots(t *testing.T, c *client.Client) (keys []string, err error) {
	t.Helper()
	err = c.SnapshotService(embed.Overlayfs).Walk(NS(t), func(_ context.Context, i snapshotsapi.Info) error {
		keys = append(keys, i.Name)
		return nil
	})
	return keys, err
}

// RunPreload follows the preload directories until the test ends or stop is called. It returns the result of the first scan.
func RunPreload(t *testing.T, s *imagestore.Store) (stop func(), err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	report, ended := make(chan error, 2), make(chan error, 1)
	go func() { ended <- s.Preload.Run(ctx, func(err error) { report <- err }) }()
	once := false
	stop = func() {
		if once {
			return
		}
		once = true
		cancel()
		Check(t, <-ended)
		if len(report) > 0 {
			t.Error("done was called twice")
		}
	}
	t.Cleanup(stop)
	select {
	case err = <-report:
	case <-time.After(testbed.Patience()):
		t.Fatal("no report")
	}
	return stop, err
}

// Present checks that images are present without a pull.
func Present(t *testing.T, s *imagestore.Store, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := s.Ensure(t.Context(), n, corev1.PullNever); err != nil {
			t.Error(err)
		}
	}
}

// Collect runs containerd's garbage collection to its end.
func Collect(t *testing.T, c *client.Client) {
	t.Helper()
	l, err := c.LeasesService().Create(NS(t), leases.WithRandomID())
	Check(t, err)
	Check(t, c.LeasesService().Delete(NS(t), l, leases.SynchronousDelete))
}

// Edition returns an image that differs from others by one variable.
func Edition(t *testing.T, name string) v1.Image {
	t.Helper()
	return testimages.Busybox(t, func(c *v1.Config) { c.Env = append(c.Env, "EDITION="+name) }, testimages.File{Path: "/edition", Content: []byte(name), Mode: 0o644})
}

// Pinned pins these digests, and no others, for an owner.
func Pinned(t *testing.T, s *imagestore.Store, owner string, digests ...string) {
	t.Helper()
	if gone, err := s.SyncPins(t.Context(), owner, digests); err != nil || len(gone) != 0 {
		t.Errorf("gone: %v, %v", gone, err)
	}
}

// Noise returns n bytes that cannot be compressed, always the same for a seed.
func Noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// ContentBytes returns the size of all content.
func ContentBytes(t *testing.T, c *client.Client) int64 {
	t.Helper()
	n := int64(0)
	Check(t, c.ContentStore().Walk(NS(t), func(i content.Info) error { n += i.Size; return nil }))
	return n
}
