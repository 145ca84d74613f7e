package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/layout"
	"monopod/runner/spec/volumeplan"
)

func TestAnErrorOfAnImageNamesItsVolume(t *testing.T) {
	broken := &runner.StepError{Reason: runner.ReasonImageInspectError, Err: errors.New(`image "rules:1": content digest sha256:00: not found`)}
	if got := cause.Of(imageError("v", "rules:1", broken)); got != (cause.Cause{Kind: cause.ImageBroken, Image: "rules:1", Volume: "v"}) {
		t.Errorf("%+v", got)
	}
	artifact := &runner.StepError{Reason: runner.ReasonImageInspectError, Err: fmt.Errorf("image %q: %w", "rules:1", image.ErrArtifact)}
	if got := cause.Of(imageError("v", "rules:1", artifact)); got != (cause.Cause{Kind: cause.ImageArtifact, Image: "rules:1", Volume: "v"}) {
		t.Errorf("%+v", got)
	}
	other := errors.New("mount image rules:1: no such device")
	if err := imageError("v", "rules:1", other); !errors.Is(err, other) || cause.Of(err).Kind != "" || imageError("v", "rules:1", nil) != nil {
		t.Errorf("another error: %v, %+v", err, cause.Of(err))
	}
}

func TestHostPathsAreCheckedAndCreatedByType(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		typ  corev1.HostPathType
		want string // resolved path, or part of the error
	}{
		"an unset type makes a directory":     {dir + "/a/b", "", dir + "/a/b"},
		"DirectoryOrCreate makes one":         {dir + "/c/d", corev1.HostPathDirectoryOrCreate, dir + "/c/d"},
		"FileOrCreate makes a file":           {dir + "/f", corev1.HostPathFileOrCreate, dir + "/f"},
		"FileOrCreate makes no parent":        {dir + "/x/f", corev1.HostPathFileOrCreate, "no such file"},
		"a file is no directory":              {file, corev1.HostPathDirectory, "hostPath type check failed: " + file + " is not a directory"},
		"a missing directory fails":           {dir + "/none", corev1.HostPathDirectory, "is not a directory"},
		"a socket is wanted":                  {file, corev1.HostPathSocket, "is not a socket file"},
		"symlinks are followed":               {link, corev1.HostPathDirectory, dir},
		"a character device is what it is":    {"/dev/null", corev1.HostPathCharDev, "/dev/null"},
		"a character device is no block file": {"/dev/null", corev1.HostPathBlockDev, "is not a block device"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := prepareHostPath(volumeplan.HostPath{Path: c.path, Type: c.typ})
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAnEmptyDirIsMadeOnceForEverybody(t *testing.T) {
	v := &Pods{Dirs: layout.Dirs{Root: t.TempDir()}}
	plan := volumeplan.Plan{Name: "data", EmptyDir: &volumeplan.EmptyDir{Mode: 0o777}}
	recorded, path := &manifests.Pod{Object: &corev1.Pod{}}, v.Dirs.EmptyDir("uid", "data")
	if err := v.prepareEmptyDir(t.Context(), "uid", plan, recorded); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o777 {
		t.Fatalf("got %v, %v", fi.Mode(), err)
	}
	if want := v.Dirs.Root + "/pods/uid/volumes/kubernetes.io~empty-dir/data"; path != want {
		t.Errorf("path is %s, want %s", path, want)
	}
	// The workload may change it: it stays that way.
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := v.prepareEmptyDir(t.Context(), "uid", plan, recorded); err != nil {
		t.Fatal(err)
	}
	if fi, _ = os.Stat(path); fi.Mode().Perm() != 0o700 {
		t.Errorf("mode was set again to %v", fi.Mode())
	}
}

// TestAHostPathThatAppearsMeanwhileIsNotOpened: opening a FIFO would block, and opening a device may start it.
func TestAHostPathThatAppearsMeanwhileIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	h := volumeplan.HostPath{Path: filepath.Join(dir, "fifo"), Type: corev1.HostPathFileOrCreate}
	if err := unix.Mkfifo(h.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- createHostPath(h) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a FIFO counts as a file")
		}
	case <-time.After(time.Minute):
		t.Fatal("it is blocked")
	}
	h.Path = filepath.Join(dir, "file") // by another container of the pod
	if err := errors.Join(os.WriteFile(h.Path, []byte("content"), 0o600), createHostPath(h)); err != nil {
		t.Error(err)
	}
}
