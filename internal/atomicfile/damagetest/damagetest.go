// Package damagetest damages files in the ways in which disks, power cuts and people do. It is imported by tests only.
package damagetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Ways are the ways to damage the file at a path, which may be a link or a FIFO, by name.
func Ways() map[string]func(path string) error {
	return map[string]func(path string) error{
		"empty": func(p string) error { return rewrite(p, nil) },
		"truncated": func(p string) error {
			b, err := read(p)
			return errors.Join(err, rewrite(p, b[:len(b)/2]))
		},
		"garbage": func(p string) error { return rewrite(p, []byte(strings.Repeat("\x00\xffgarbage{[", 500))) },
		// With a stray file beside it.
		"directory": func(p string) error {
			return errors.Join(os.Remove(p), os.MkdirAll(filepath.Join(p, "in"), 0o700), os.WriteFile(Stray(p), []byte("x"), 0o600))
		},
		"link": func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/none/such", p)) },
	}
}

// Stray is the file that one of the ways makes beside a path.
func Stray(path string) string { return path + ".stray" }

func read(path string) ([]byte, error) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return os.ReadFile(path)
}

func rewrite(path string, data []byte) error {
	mode := fs.FileMode(0o600)
	if info, err := os.Lstat(path); err == nil {
		if mode = info.Mode().Perm(); !info.Mode().IsRegular() {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(path, data, mode)
}
