//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"monopod/e2e/testimages"
	"monopod/internal/signals"
)

var built struct {
	sync.Once
	dir string
	err error
}

// binaries builds monopod (with the race detector) and its helpers once and returns their directory.
func binaries(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		// The VM has no compiler: the binaries were built outside.
		if built.dir = os.Getenv("MONOPOD_E2E_BIN"); built.dir != "" {
			return
		}
		root, err := filepath.Abs("..")
		if err != nil {
			built.err = err
			return
		}
		built.dir = filepath.Join(root, "bin", "e2e")
		cmd := exec.Command("make", "-C", root, "e2e-binaries")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("make e2e-binaries: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

const image = "monopod.test/busybox:1"

var archive struct {
	sync.Once
	path string
}

// testImage returns the OCI archive of the busybox image that the tests run.
func testImage(t *testing.T) string {
	t.Helper()
	archive.Do(func() {
		if archive.path = os.Getenv("MONOPOD_E2E_IMAGE"); archive.path != "" {
			return
		}
		dir, err := os.MkdirTemp("", "monopod-e2e-image-")
		if err != nil {
			t.Fatal(err)
		}
		archive.path = filepath.Join(dir, "busybox.tar")
		testimages.Archive(t, archive.path, image)
	})
	return archive.path
}

func TestMain(m *testing.M) {
	signals.Adopt() // tests send them to what they start, and `make test &` has them ignored
	code := m.Run()
	if archive.path != "" && archive.path != os.Getenv("MONOPOD_E2E_IMAGE") {
		_ = os.RemoveAll(filepath.Dir(archive.path))
	}
	os.Exit(code)
}

// syncBuffer collects the output of a process while tests read it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *syncBuffer) contains(s string) bool { return strings.Contains(b.String(), s) }

// tail returns the end of the log.
func (b *syncBuffer) tail() string {
	s := b.String()
	if len(s) > 6000 {
		s = "..." + s[len(s)-6000:]
	}
	return s
}

// TestWriteTheImage writes the archive of the test image to $MONOPOD_E2E_WRITE_IMAGE, for the VM of .ci/vm.
func TestWriteTheImage(t *testing.T) {
	path := os.Getenv("MONOPOD_E2E_WRITE_IMAGE")
	if path == "" {
		t.Skip("only for .ci/vm")
	}
	testimages.Archive(t, path, image)
}
