package main

import (
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/bundle"
)

// fakeZstd puts a program named zstd into a new directory, the only one of PATH with programs of its own, and returns another one.
func fakeZstd(t *testing.T, body string) string {
	t.Helper()
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "zstd"), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":"+os.Getenv("PATH"))
	return t.TempDir()
}

func TestPackWritesTheArchiveOnce(t *testing.T) {
	dir := fakeZstd(t, "echo compressed; cat")
	program := filepath.Join(dir, "monopod")
	write := func(text string) {
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pack := func() (archive, list []byte) {
		if err := run(dir, []string{program}); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(filepath.Join(dir, "bundle.tar.zst"))
		if err != nil {
			t.Fatal(err)
		}
		if list, err = os.ReadFile(filepath.Join(dir, "bundle.list")); err != nil {
			t.Fatal(err)
		}
		if !bundle.Packed(archive, list, program) {
			t.Errorf("the archive does not have the program; list %q", list)
		}
		return archive, list
	}
	write("first")
	_, first := pack()
	// The archive stays as long as it has the programs, which is seen by its time.
	path := filepath.Join(dir, "bundle.tar.zst")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime().Add(-1e9), before.ModTime().Add(-1e9)); err != nil {
		t.Fatal(err)
	}
	pack()
	if after, err := os.Stat(path); err != nil || !after.ModTime().Before(before.ModTime()) {
		t.Errorf("the same programs were packed again: %v", err)
	}
	write("second")
	if _, second := pack(); string(first) == string(second) {
		t.Error("another program did not change the list")
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	pack()
}

func TestPackNamesWhatIsMissing(t *testing.T) {
	dir := fakeZstd(t, "cat")
	if err := run(dir, []string{filepath.Join(dir, "missing")}); !os.IsNotExist(err) {
		t.Errorf("a missing program: %v", err)
	}
	program := filepath.Join(dir, "p")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run(filepath.Join(dir, "no directory"), []string{program}); !os.IsNotExist(err) {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestCompressUsesZstd(t *testing.T) {
	fakeZstd(t, `echo "$@"; cat`)
	if got, err := compress([]byte("plain")); err != nil || string(got) != "-q -19 --long=24 -c\nplain" {
		t.Errorf("%q, %v", got, err)
	}
	fakeZstd(t, "exit 3")
	if _, err := compress(nil); err == nil || err.Error() != "zstd: exit status 3" {
		t.Errorf("%v", err)
	}
}
