// Package dirtest writes and lists directory trees for tests. Only tests may import it.
package dirtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Write creates a file of the given size with its parent directories, and returns the path.
func Write(t testing.TB, path string, size int) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Tree lists the files below a directory, except those with the given names.
func Tree(t testing.TB, dir string, except ...string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.Contains(except, d.Name()) {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
