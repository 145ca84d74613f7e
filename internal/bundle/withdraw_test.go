package bundle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestWithdrawRemovesAllVersionsUnlessSomebodyRunsFromThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exe  string // of another process, below the directory with all
		pid  int
		stay bool
	}{
		"nobody":           {"elsewhere/sh", 7, false},
		"this process":     {"lib/bin/@/monopod", os.Getpid(), false},
		"another monopod":  {"lib/bin/@/monopod", 7, true},
		"a shim elsewhere": {"opt/containerd-shim-monopod-v2", 7, true},
	} {
		dir := t.TempDir()
		version, older := strings.Repeat("a", 16), strings.Repeat("b", 16)
		program := filepath.Join(dir, "lib", "bin", version, "monopod")
		for _, f := range []string{program, filepath.Join(dir, "lib", "bin", older, "monopod"), filepath.Join(dir, "lib", "bin", ".unpack-1", "x"), filepath.Join(dir, "proc", strconv.Itoa(c.pid), "stat")} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, nil, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join(dir, strings.Replace(c.exe, "@", version, 1)), filepath.Join(dir, "proc", strconv.Itoa(c.pid), "exe")); err != nil {
			t.Fatal(err)
		}
		if err := Withdraw(program, filepath.Join(dir, "proc")); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(dir, "lib"))
		if left := !errors.Is(err, fs.ErrNotExist); left != c.stay {
			t.Errorf("%s: the programs are left: %t", name, left)
		}
		if err := Withdraw(program, filepath.Join(dir, "proc")); err != nil {
			t.Errorf("%s: again: %v", name, err)
		}
	}
	if err := Withdraw("/usr/bin/monopod", "/proc"); err != nil {
		t.Error(err)
	}
}
