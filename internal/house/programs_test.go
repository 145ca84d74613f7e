package house

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// `go build` writes a program into the current directory, from where it could be committed by mistake.
func TestNoBuiltProgramLiesAmongTheSources(t *testing.T) {
	top := "../.."
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || path == filepath.Join(top, "bin")):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		magic := make([]byte, 4)
		if _, err := io.ReadFull(f, magic); err == nil && string(magic) == "\x7fELF" {
			t.Errorf("%s is a program: remove it; make build writes to bin", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
