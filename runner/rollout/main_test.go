package rollout

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fastDir returns a directory on tmpfs if there is one, for tests that write hundreds of files.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "monopod-rollout-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
