//go:build e2e

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534

// machine is a world-readable directory with the bundle, under the name of an installed monopod.
type machine struct {
	*testing.T
	dir, program string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "launcher-")
	m := &machine{t, dir, filepath.Join(dir, "monopod")}
	m.check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m.check(os.Chmod(dir, 0o755))
	from, err := os.Open("../../bin/monopod-bundle")
	if err != nil {
		t.Fatalf("%v; run `make bundle` first", err)
	}
	defer from.Close()
	to, err := os.OpenFile(m.program, os.O_WRONLY|os.O_CREATE, 0o755)
	m.check(err)
	_, err = io.Copy(to, from)
	m.check(errors.Join(err, to.Close()))
	return m
}

func (m *machine) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// run executes the bundle as a user.
func (m *machine) run(uid uint32, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(m.Context(), m.program, args...)
	cmd.Dir, cmd.Env = "/", env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// works fails unless the bundle runs as monopod.
func (m *machine) works(uid uint32, env ...string) {
	m.Helper()
	if out, err := m.run(uid, env, "version"); err != nil || !strings.HasPrefix(out, "monopod ") || strings.Count(out, "\n") != 1 {
		m.Errorf("version: %v: %s", err, out)
	}
}

// unpacked returns the program that was unpacked to dir; empty when there is none.
func (m *machine) unpacked(dir string) string {
	m.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*", "monopod"))
	m.check(err)
	return strings.Join(all, ", ")
}

func (m *machine) mount(dir, options string) {
	m.Helper()
	m.check(os.MkdirAll(dir, 0o755))
	flags := uintptr(0)
	if options == "noexec" {
		flags, options = syscall.MS_NOEXEC, ""
	}
	m.check(syscall.Mount("launcher", dir, "tmpfs", flags, options))
	m.Cleanup(func() { m.check(syscall.Unmount(dir, 0)) })
}

func TestTheBundleIsMonopod(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(m.dir, "bin")
	where := "MONOPOD_BUNDLE_DIR=" + dir
	m.works(0, where)
	m.works(0, where)
	if m.unpacked(dir) == "" {
		t.Fatal("nothing was unpacked")
	}
	m.works(nobody, where) // who cannot write there
	var exit *exec.ExitError
	if out, err := m.run(0, []string{where}, "frobnicate"); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, `unknown command "frobnicate"`) {
		t.Errorf("exit code and arguments: %v: %s", err, out)
	}
	if out, err := m.run(0, []string{where, "MONOPOD_NODE_NAME=from-the-environment"}, "config"); err != nil || !strings.Contains(out, "from-the-environment") || strings.Contains(out, "MONOPOD_BUNDLE_DIR") || strings.Contains(out, "MONOPOD_LAUNCHER") {
		t.Errorf("environment: %v: %s", err, out)
	}
	r, w, err := os.Pipe()
	m.check(err)
	defer r.Close()
	sh := exec.CommandContext(t.Context(), "sh", "-c", `echo $$; exec "$0" validate /proc/self/fd/3`, m.program)
	sh.Env, sh.ExtraFiles = []string{where, "PATH=/bin"}, []*os.File{r}
	_, err = w.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: from-descriptor}\n")
	m.check(errors.Join(err, w.Close()))
	if out, err := sh.CombinedOutput(); !errors.As(err, &exit) || !strings.Contains(string(out), "from-descriptor") {
		t.Errorf("open files: %v: %s", err, out)
	}
}

func TestADaemonMendsWhatIsDamaged(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(m.dir, "bin")
	where := "MONOPOD_BUNDLE_DIR=" + dir
	m.works(0, where)
	program := m.unpacked(dir)
	intact, err := os.ReadFile(program)
	m.check(err)
	old, err := os.Stat(program)
	m.check(err)

	// A power cut may leave this on some file systems: the right size and time, but zeros.
	m.check(errors.Join(os.WriteFile(program, make([]byte, len(intact)), 0o755), os.Chtimes(program, old.ModTime(), old.ModTime())))
	if out, err := m.run(0, []string{where}, "run", "--help"); err != nil || !strings.Contains(out, "Usage:") {
		t.Errorf("daemon: %v: %s", err, out)
	}
	if got, err := os.ReadFile(program); err != nil || !bytes.Equal(got, intact) {
		t.Errorf("not mended (%v)", err)
	}
	// A full disk, or another program, may leave this behind: any command detects it.
	m.check(os.Truncate(program, 1000))
	m.works(0, where)
	if got, err := os.ReadFile(program); err != nil || !bytes.Equal(got, intact) {
		t.Errorf("not mended by a command (%v)", err)
	}
}

func TestWithoutAPlaceToUnpackTheBundleRunsFromMemory(t *testing.T) {
	m := newMachine(t)
	full := filepath.Join(m.dir, "full")
	m.mount(full, "size=20m")
	m.works(0, "MONOPOD_BUNDLE_DIR="+full)
	if left, err := filepath.Glob(full + "/*"); err != nil || len(left) != 1 || filepath.Base(left[0]) != ".lock" {
		t.Errorf("a full disk has %v, %v", left, err)
	}
	m.check(syscall.Mount("launcher", full, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
	m.works(0, "MONOPOD_BUNDLE_DIR="+full)
	if m.unpacked(full) == "" {
		t.Error("nothing was unpacked when there was room")
	}

	noexec := filepath.Join(m.dir, "noexec")
	m.mount(noexec, "noexec")
	m.works(0, "MONOPOD_BUNDLE_DIR="+noexec)
	if p := m.unpacked(noexec); p != "" {
		t.Errorf("%s takes room and cannot be run", p)
	}
	out, err := m.run(0, []string{"MONOPOD_BUNDLE_DIR=" + noexec}, "run", "--help")
	if err != nil || !strings.HasPrefix(out, "monopod: running from memory, without its bundled programs: "+noexec+": mounted with noexec\n") {
		t.Errorf("a daemon does not say what is wrong: %v: %s", err, out)
	}
}

func TestEverybodyCanRunTheBundle(t *testing.T) {
	m := newMachine(t)
	m.works(nobody) // no home, nothing to write to
	home := filepath.Join(m.dir, "home")
	m.check(errors.Join(os.Mkdir(home, 0o700), os.Chown(home, nobody, nobody)))
	m.works(nobody, "HOME="+home)
	m.works(nobody, "HOME="+home)
	shared := m.unpacked("/var/lib/monopod/bin") + m.unpacked("/run/monopod/bin")
	if m.unpacked(filepath.Join(home, ".cache", "monopod")) == "" && shared == "" {
		t.Error("nothing was unpacked to the cache of the user")
	}
}
