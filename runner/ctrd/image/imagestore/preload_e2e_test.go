//go:build e2e

package imagestore

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	snapshotsapi "github.com/containerd/containerd/v2/core/snapshots"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/image/preload"
)

func httputilProxy(u *url.URL) http.Handler { return httputil.NewSingleHostReverseProxy(u) }

func snapshots(t *testing.T, c *client.Client) (keys []string, err error) {
	t.Helper()
	err = c.SnapshotService(embed.Overlayfs).Walk(ns(t), func(_ context.Context, i snapshotsapi.Info) error {
		keys = append(keys, i.Name)
		return nil
	})
	return keys, err
}

// preload runs RunPreload until the test ends or stop is called, and returns what it reported.
func runPreload(t *testing.T, s *Store) (stop func(), err error) {
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
		check(t, <-ended)
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

func present(t *testing.T, s *Store, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := s.Ensure(t.Context(), n, corev1.PullNever); err != nil {
			t.Error(err)
		}
	}
}

func TestPreloadImportsAllKindsOfArchives(t *testing.T) {
	dir := t.TempDir()
	testimages.Archive(t, filepath.Join(dir, "a.tar"), "example.com/a:1", "example.com/a:2")
	testimages.Archive(t, filepath.Join(dir, "b.tar.gz"), "b")
	testimages.Archive(t, filepath.Join(dir, "c.tgz"), "1.2")
	testimages.Archive(t, filepath.Join(dir, "d.tar.zst"))
	testimages.Archive(t, filepath.Join(dir, "e_v3.tar"))
	testimages.DockerArchive(t, filepath.Join(dir, "f.tar"), "f:9", "example.com/f:9")
	testimages.Archive(t, filepath.Join(dir, ".hidden.tar"), "hidden")
	check(t, os.WriteFile(filepath.Join(dir, "broken.tar"), []byte("no archive"), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "readme.txt"), nil, 0o600))
	half, err := os.ReadFile(filepath.Join(dir, "a.tar"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "half.tar"), half[:len(half)/2], 0o600))

	s := store(t, containerd(t), func(c *Config) { c.PreloadDirs = []string{dir} })
	_, report := runPreload(t, s)
	if report == nil || !strings.Contains(report.Error(), "broken.tar") || !strings.Contains(report.Error(), "half.tar") ||
		strings.Count(report.Error(), "preload ") != 2 {
		t.Errorf("report: %v", report)
	}
	present(t, s, "example.com/a:1", "example.com/a:2", "b", "c:1.2", "d", "e:v3", "f:9", "example.com/f:9")
	if _, err := s.Ensure(t.Context(), "hidden", corev1.PullNever); err == nil {
		t.Error("a hidden file was imported")
	}
	img, err := s.Get(t.Context(), "b")
	check(t, err)
	if img.Digest != "" {
		t.Errorf("digest of an image that no registry gave: %q", img.Digest)
	}
}

func TestPreloadFollowsChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	changed := make(chan struct{}, 10)
	s := store(t, containerd(t), func(c *Config) {
		c.PreloadDirs = []string{dir}
		c.OnChange = func() { changed <- struct{}{} }
	})
	_, report := runPreload(t, s)
	if report != nil {
		t.Errorf("a missing directory is fine: %v", report)
	}
	wait := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(testbed.Patience()):
			t.Fatal("nothing imported: ", what)
		}
	}
	check(t, os.MkdirAll(dir, 0o700))
	testimages.ArchiveOf(t, filepath.Join(dir, "a.tar"), testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=1"} }), "a")
	wait("directory appeared")
	present(t, s, "a")

	testimages.ArchiveOf(t, filepath.Join(dir, "a.tar"), testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=2"} }), "a")
	wait("archive replaced")
	img, err := s.Get(t.Context(), "a")
	check(t, err)
	if !slices.Equal(img.Config.Env, []string{"V=2"}) {
		t.Errorf("old image: %v", img.Config.Env)
	}

	// Copied slowly: it is imported when it is complete.
	src := filepath.Join(t.TempDir(), "b.tar")
	testimages.Archive(t, src, "b")
	content, err := os.ReadFile(src)
	check(t, err)
	f, err := os.Create(filepath.Join(dir, "b.tar"))
	check(t, err)
	for len(content) > 0 {
		n := min(len(content), 200<<10)
		_, err := f.Write(content[:n])
		check(t, err)
		content = content[n:]
		time.Sleep(preload.Settle / 4) // the pace of the copy
	}
	check(t, f.Close())
	wait("slow copy")
	present(t, s, "b")

	// The directory is replaced.
	check(t, os.RemoveAll(dir))
	present(t, s, "a", "b")
	check(t, os.MkdirAll(dir, 0o700))
	testimages.Archive(t, filepath.Join(dir, "c.tar"), "c")
	wait("directory is back")
	present(t, s, "c")
}

// TestPreloadTriesAgainWhenContainerdIsBack: an import that containerd's end interrupts was repeated after 30 s at the earliest, and
// pods waited for their images.
func TestPreloadTriesAgainWhenContainerdIsBack(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	changed := make(chan struct{}, 10)
	s := store(t, containerd(t), func(c *Config) {
		c.PreloadDirs = []string{dir}
		c.OnChange = func() { changed <- struct{}{} }
	})
	// What fails and can then be imported, without an event in the directory: the target of a link.
	target := filepath.Join(elsewhere, "a.tar")
	check(t, os.WriteFile(target, []byte("no archive"), 0o600))
	check(t, os.Symlink(target, filepath.Join(dir, "a.tar")))
	began := time.Now()
	if _, report := runPreload(t, s); report == nil {
		t.Fatal("the archive is broken, and nothing failed")
	}
	testimages.Archive(t, target, "a")
	s.Preload.Retry()
	select {
	case <-changed:
	case <-time.After(testbed.Patience()):
		t.Fatal("nothing imported")
	}
	if took := time.Since(began); took >= preload.MinRetry {
		t.Errorf("imported after %v, which a retry does by itself", took)
	}
	present(t, s, "a")
}

func TestPreloadDoesNotImportTwice(t *testing.T) {
	dir := t.TempDir()
	testimages.Archive(t, filepath.Join(dir, "a.tar"), "a", "a2")
	c := containerd(t)
	imports := 0
	next := func() *Store {
		s := store(t, c, func(c *Config) {
			c.PreloadDirs = []string{dir}
			c.OnChange = func() { imports++ }
		})
		stop, report := runPreload(t, s)
		check(t, report)
		stop()
		return s
	}
	next()
	next()
	if imports != 1 {
		t.Errorf("%d imports of an archive that did not change", imports)
	}
	check(t, c.ImageService().Delete(ns(t), "docker.io/library/a2:latest"))
	s := next()
	if imports != 2 {
		t.Error("the image was removed, but not imported again")
	}
	present(t, s, "a", "a2")
}
