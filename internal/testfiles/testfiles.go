// Package testfiles is test support: it writes the files that a test needs, and compares output with golden files, which the
// flag -update rewrites. It must not be imported by product code, and knows nothing about the content of the files.
package testfiles

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files") //nolint:gochecknoglobals // a flag of test programs

// Update reports whether -update was given: golden files are rewritten instead of compared.
func Update() bool { return *update }

// Compare fails the test if got differs from the content of the golden file. With -update it rewrites the file first.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		Write(t, file, got)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (rewrite with -update): -want +got:\n%s", file, diff)
	}
}

// Write writes a file and creates its parent directories.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
