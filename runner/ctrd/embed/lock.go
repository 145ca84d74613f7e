package embed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
)

// lockDir locks the directory for this process. The kernel releases the lock when the process ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "monopod.lock")
	f, err := atomicfile.OpenLock(path, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("%s is in use by another monopod%s; set other directories for this one", dir, holder(f))
	}
	// For the error message of a second process; the lock does not depend on it.
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

func holder(f *os.File) string {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0)
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}
