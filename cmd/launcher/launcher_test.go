package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		name string
		euid int
		env  []string
		want []place
	}{
		{"root", 0, []string{"HOME=/home/me", "XDG_CACHE_HOME=/c"}, []place{{dir: "/var/lib/monopod/bin"}, {dir: "/run/monopod/bin"}}},
		{"a user", 7, []string{"HOME=/home/me"}, []place{{"/var/lib/monopod/bin", true}, {"/run/monopod/bin", true}, {dir: "/home/me/.cache/monopod"}}},
		{"a user with a cache", 7, []string{"HOME=/home/me", "XDG_CACHE_HOME=/c"}, []place{{"/var/lib/monopod/bin", true}, {"/run/monopod/bin", true}, {dir: "/c/monopod"}}},
		{"a user without a home", 7, []string{"XDG_CACHE_HOME=c", "HOME="}, []place{{"/var/lib/monopod/bin", true}, {"/run/monopod/bin", true}}},
		{"by variable", 7, []string{"HOME=/home/me", "MONOPOD_BUNDLE_DIR=/x"}, []place{{dir: "/x"}}},
		{"by the last one", 0, []string{"MONOPOD_BUNDLE_DIR=/x", "MONOPOD_BUNDLE_DIR=/y"}, []place{{dir: "/y"}}},
		{"by an empty one", 0, []string{"MONOPOD_BUNDLE_DIR="}, []place{{dir: "/var/lib/monopod/bin"}, {dir: "/run/monopod/bin"}}},
	} {
		if got := places(c.euid, c.env); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheCommandIsFoundBehindFlags(t *testing.T) {
	for line, want := range map[string]string{
		"": "", "monopod": "", "monopod run": "run", "monopod --flag run": "run", "monopod -h": "", "monopod get run": "get",
	} {
		if got := (&launcher{args: strings.Fields(line)}).command(); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// fakeParcel is a directory that may or may not accept programs.
type fakeParcel struct {
	refuse map[string]error
	// whole are the directories that contain all programs; those in sound have the right content, too.
	whole, sound map[string]bool
	unpacked     []string
}

func (f *fakeParcel) Dir(dir string) string   { return filepath.Join(dir, "v") }
func (f *fakeParcel) Whole(final string) bool { return f.whole[final] }
func (f *fakeParcel) Sound(final string) bool { return f.sound[final] }
func (f *fakeParcel) Unpack(dir string, good func(string) bool) (string, error) {
	if !good(f.Dir(dir)) {
		if err := f.refuse[dir]; err != nil {
			return "", err
		}
		f.unpacked = append(f.unpacked, dir)
	}
	return f.Dir(dir), nil
}

// launch returns the attempts, in order.
func launch(t *testing.T, f *fakeParcel, euid int, denied string, line string) (tried []string, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	l := launcher{parcel: f, self: "/usr/bin/monopod", args: strings.Fields(line), env: []string{"HOME=/home/me", "A=b"}, euid: euid, stderr: &errs}
	l.exec = func(path string, args, env []string) error {
		if !slices.Equal(args, strings.Fields(line)) || !slices.Equal(env, []string{"HOME=/home/me", "A=b", "MONOPOD_LAUNCHER=/usr/bin/monopod"}) {
			t.Errorf("arguments %q and environment %q are not those of the launcher, and its path", args, env)
		}
		tried = append(tried, path)
		if strings.HasPrefix(path, denied) && denied != "" {
			return syscall.EACCES
		}
		panic(done{})
	}
	l.fallback = func(*launcher) error {
		tried = append(tried, "memory")
		return errors.New("no memory")
	}
	defer func() {
		if r := recover(); r != nil && r != (done{}) {
			panic(r)
		}
		stderr = errs.String()
	}()
	if err := l.run(); err == nil || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("%v", err)
	}
	return tried, stderr
}

// done stops a launcher that has executed another program.
type done struct{}

func TestWhereTheLauncherFindsThePrograms(t *testing.T) {
	lib, run, home := "/var/lib/monopod/bin", "/run/monopod/bin", "/home/me/.cache/monopod"
	full, readonly := fmt.Errorf("write: %w", syscall.ENOSPC), fmt.Errorf("mkdir: %w", syscall.EROFS)
	all := map[string]bool{lib + "/v": true}
	for _, c := range []struct {
		name     string
		parcel   fakeParcel
		euid     int
		denied   string
		line     string
		tried    []string
		unpacked []string
	}{
		{"the first time", fakeParcel{}, 0, "", "monopod get", []string{lib + "/v/monopod"}, []string{lib}},
		{"the second time", fakeParcel{whole: all}, 0, "", "monopod get", []string{lib + "/v/monopod"}, nil},
		{"a daemon over rotten programs", fakeParcel{whole: all}, 0, "", "monopod run --x", []string{lib + "/v/monopod"}, []string{lib}},
		{"a daemon", fakeParcel{whole: all, sound: all}, 0, "", "monopod run", []string{lib + "/v/monopod"}, nil},
		{"a disk that is full", fakeParcel{refuse: map[string]error{lib: full}}, 0, "", "monopod run", []string{run + "/v/monopod"}, []string{run}},
		{"nothing can be written", fakeParcel{refuse: map[string]error{lib: readonly, run: bundleNoExec()}}, 0, "", "monopod get", []string{"memory"}, nil},
		{"programs may not be run there", fakeParcel{whole: all}, 0, lib, "monopod get", []string{lib + "/v/monopod", run + "/v/monopod"}, []string{run}},
		{"a user where root was", fakeParcel{whole: all}, 7, "", "monopod get", []string{lib + "/v/monopod"}, nil},
		{"a user alone", fakeParcel{}, 7, "", "monopod validate", []string{home + "/v/monopod"}, []string{home}},
		{"a user whose home is read-only", fakeParcel{refuse: map[string]error{home: readonly}}, 7, "", "monopod validate", []string{"memory"}, nil},
	} {
		tried, stderr := launch(t, &c.parcel, c.euid, c.denied, c.line)
		if !slices.Equal(tried, c.tried) || !slices.Equal(c.parcel.unpacked, c.unpacked) || stderr != "" {
			t.Errorf("%s: tried %v, unpacked to %v, said %q; want %v, %v", c.name, tried, c.parcel.unpacked, stderr, c.tried, c.unpacked)
		}
	}
}

func bundleNoExec() error { return errors.New("mounted with noexec") }

func TestOnlyWhoNeedsTheOtherProgramsIsToldThatTheyAreMissing(t *testing.T) {
	for _, command := range []string{"run", "once", "up", "get", "version"} {
		f := fakeParcel{refuse: map[string]error{"/var/lib/monopod/bin": syscall.EROFS, "/run/monopod/bin": syscall.ENOSPC}}
		_, stderr := launch(t, &f, 0, "", "monopod "+command)
		want := ""
		if slices.Contains([]string{"run", "once", "up"}, command) {
			want = "monopod: running from memory, without its bundled programs: read-only file system; no space left on device\n"
		}
		if stderr != want {
			t.Errorf("%s: %q, want %q", command, stderr, want)
		}
	}
}

func (f *fakeParcel) Program(name string, w io.Writer) error {
	_, err := fmt.Fprintf(w, "the program %s", name)
	return err
}

func TestAFileInMemoryCannotBeChanged(t *testing.T) {
	l := launcher{parcel: &fakeParcel{}, args: []string{"monopod", "version"}, env: []string{"A=b"}}
	l.exec = func(path string, args, env []string) error {
		if b, err := os.ReadFile(path); err != nil || string(b) != "the program monopod" || !slices.Equal(args, l.args) || !slices.Equal(env, l.env) {
			t.Errorf("%q, %v, %q, %q", b, err, args, env)
		}
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			if _, err := f.WriteString("x"); !errors.Is(err, syscall.EPERM) {
				t.Errorf("it can be written: %v", err)
			}
			f.Close()
		}
		return syscall.ENOEXEC
	}
	if err := fromMemory(&l); !errors.Is(err, syscall.ENOEXEC) {
		t.Error(err)
	}
}
