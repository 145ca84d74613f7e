// Package golden is test support: it compares text with files in the repository and rewrites them with -update.
//
// Only tests import it. It must not know what the files are about.
package golden

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files") //nolint:gochecknoglobals // a flag of test programs

// Update reports whether golden files are rewritten instead of compared.
func Update() bool { return *update }

// Compare fails the test unless the file at path holds got, naming the lines that differ. With -update it writes got instead.
func Compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	old, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range old {
		if !slices.Contains(now, line) {
			t.Errorf("%s has a line too many: %s", path, line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			t.Errorf("%s lacks the line: %s", path, line)
		}
	}
	t.Errorf("%s differs; -update rewrites it", path)
}
