package podfiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWriteInPlaceKeepsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	var before os.FileInfo
	for _, text := range []string{"a long text\n", "b\n", "c\n"} {
		check(t, WriteInPlace(path, text))
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("got %q, %v", b, err)
		}
		after, err := os.Stat(path)
		check(t, err)
		if before != nil && !os.SameFile(before, after) {
			t.Error("the file was replaced")
		}
		before = after
	}
	// A container has made it large, though it takes no room: it is not read into memory.
	check(t, os.Truncate(path, 1<<40))
	check(t, WriteInPlace(path, "c\n"))
	if b, err := os.ReadFile(path); err != nil || string(b) != "c\n" {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
}

func TestTheSizeFollowsTheTexts(t *testing.T) {
	if got := size(Files{}); got != room {
		t.Errorf("without texts: %d", got)
	}
	long := strings.Repeat("192.0.2.1 ads.example\n", 100_000)
	if got := size(Files{Hosts: long}); got < room+int64(len(long)) {
		t.Errorf("a hosts file of %d bytes has %d", len(long), got)
	}
}

func TestFilesThatAreNotMountedAreNotWritten(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "files")}
	check(t, os.Mkdir(d.Path, 0o700))
	if err := d.WriteHosts(Files{Hosts: "x"}); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(d.Path); err != nil || len(entries) > 0 {
		t.Errorf("on the disk: %v, %v", entries, err)
	}
}
