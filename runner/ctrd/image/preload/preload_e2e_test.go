//go:build e2e

package preload_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/image/preload"
)

func TestPreloadImportsAllKindsOfArchives(t *testing.T) {
	dir := t.TempDir()
	testimages.Archive(t, filepath.Join(dir, "a.tar"), "example.com/a:1", "example.com/a:2")
	testimages.Archive(t, filepath.Join(dir, "b.tar.gz"), "b")
	testimages.Archive(t, filepath.Join(dir, "c.tgz"), "1.2")
	testimages.Archive(t, filepath.Join(dir, "d.tar.zst"))
	testimages.Archive(t, filepath.Join(dir, "e_v3.tar"))
	testimages.DockerArchive(t, filepath.Join(dir, "f.tar"), "f:9", "example.com/f:9")
	testimages.Archive(t, filepath.Join(dir, ".hidden.tar"), "hidden")
	imagetest.Check(t, os.WriteFile(filepath.Join(dir, "broken.tar"), []byte("no archive"), 0o600))
	imagetest.Check(t, os.WriteFile(filepath.Join(dir, "readme.txt"), nil, 0o600))
	half, err := os.ReadFile(filepath.Join(dir, "a.tar"))
	imagetest.Check(t, err)
	imagetest.Check(t, os.WriteFile(filepath.Join(dir, "half.tar"), half[:len(half)/2], 0o600))

	s := imagetest.Store(t, imagetest.Containerd(t), func(c *imagestore.Config) { c.PreloadDirs = []string{dir} })
	_, report := imagetest.RunPreload(t, s)
	if report == nil || !strings.Contains(report.Error(), "broken.tar") || !strings.Contains(report.Error(), "half.tar") ||
		strings.Count(report.Error(), "preload ") != 2 {
		t.Errorf("report: %v", report)
	}
	imagetest.Present(t, s, "example.com/a:1", "example.com/a:2", "b", "c:1.2", "d", "e:v3", "f:9", "example.com/f:9")
	if _, err := s.Ensure(t.Context(), "hidden", corev1.PullNever); err == nil {
		t.Error("a hidden file was imported")
	}
	img, err := s.Get(t.Context(), "b")
	imagetest.Check(t, err)
	if img.Digest != "" {
		t.Errorf("digest of an image that no registry gave: %q", img.Digest)
	}
}

func TestPreloadFollowsChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	changed := make(chan struct{}, 10)
	s := imagetest.Store(t, imagetest.Containerd(t), func(c *imagestore.Config) {
		c.PreloadDirs = []string{dir}
		c.OnChange = func() { changed <- struct{}{} }
	})
	_, report := imagetest.RunPreload(t, s)
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
	imagetest.Check(t, os.MkdirAll(dir, 0o700))
	testimages.ArchiveOf(t, filepath.Join(dir, "a.tar"), testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=1"} }), "a")
	wait("directory appeared")
	imagetest.Present(t, s, "a")

	testimages.ArchiveOf(t, filepath.Join(dir, "a.tar"), testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"V=2"} }), "a")
	wait("archive replaced")
	img, err := s.Get(t.Context(), "a")
	imagetest.Check(t, err)
	if !slices.Equal(img.Config.Env, []string{"V=2"}) {
		t.Errorf("old image: %v", img.Config.Env)
	}

	// Copied slowly: it is imported when it is complete.
	src := filepath.Join(t.TempDir(), "b.tar")
	testimages.Archive(t, src, "b")
	content, err := os.ReadFile(src)
	imagetest.Check(t, err)
	f, err := os.Create(filepath.Join(dir, "b.tar"))
	imagetest.Check(t, err)
	for len(content) > 0 {
		n := min(len(content), 200<<10)
		_, err := f.Write(content[:n])
		imagetest.Check(t, err)
		content = content[n:]
		time.Sleep(preload.Settle / 4) // the pace of the copy
	}
	imagetest.Check(t, f.Close())
	wait("slow copy")
	imagetest.Present(t, s, "b")

	// The directory is replaced.
	imagetest.Check(t, os.RemoveAll(dir))
	imagetest.Present(t, s, "a", "b")
	imagetest.Check(t, os.MkdirAll(dir, 0o700))
	testimages.Archive(t, filepath.Join(dir, "c.tar"), "c")
	wait("directory is back")
	imagetest.Present(t, s, "c")
}

// TestPreloadTriesAgainWhenContainerdIsBack: an import that containerd's end interrupts was repeated after 30 s at the earliest, and
// pods waited for their images.
func TestPreloadTriesAgainWhenContainerdIsBack(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	changed := make(chan struct{}, 10)
	s := imagetest.Store(t, imagetest.Containerd(t), func(c *imagestore.Config) {
		c.PreloadDirs = []string{dir}
		c.OnChange = func() { changed <- struct{}{} }
	})
	// What fails and can then be imported, without an event in the directory: the target of a link.
	target := filepath.Join(elsewhere, "a.tar")
	imagetest.Check(t, os.WriteFile(target, []byte("no archive"), 0o600))
	imagetest.Check(t, os.Symlink(target, filepath.Join(dir, "a.tar")))
	began := time.Now()
	if _, report := imagetest.RunPreload(t, s); report == nil {
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
	imagetest.Present(t, s, "a")
}

func TestPreloadDoesNotImportTwice(t *testing.T) {
	dir := t.TempDir()
	testimages.Archive(t, filepath.Join(dir, "a.tar"), "a", "a2")
	c := imagetest.Containerd(t)
	imports := 0
	next := func() *imagestore.Store {
		s := imagetest.Store(t, c, func(c *imagestore.Config) {
			c.PreloadDirs = []string{dir}
			c.OnChange = func() { imports++ }
		})
		stop, report := imagetest.RunPreload(t, s)
		imagetest.Check(t, report)
		stop()
		return s
	}
	next()
	next()
	if imports != 1 {
		t.Errorf("%d imports of an archive that did not change", imports)
	}
	imagetest.Check(t, c.ImageService().Delete(imagetest.NS(t), "docker.io/library/a2:latest"))
	s := next()
	if imports != 2 {
		t.Error("the image was removed, but not imported again")
	}
	imagetest.Present(t, s, "a", "a2")
}
