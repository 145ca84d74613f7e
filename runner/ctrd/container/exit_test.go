package container

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTerminationMessagesAreReadFromRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "msg")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		n    int
		want string
	}{
		{path, 100, "0123456789"},
		{path, 4, "6789"},
		{path, 0, ""},
		{link, 100, ""},
		{dir, 100, ""},
		{"", 100, ""},
		{filepath.Join(dir, "none"), 100, ""},
	} {
		if got := readTail(c.path, c.n); got != c.want {
			t.Errorf("readTail(%q, %d) = %q, want %q", c.path, c.n, got, c.want)
		}
	}
}
