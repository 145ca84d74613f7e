//go:build e2e

package bundle

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBundledProgramsRun unpacks what `make bundle` packed and runs each program without anything around it.
func TestBundledProgramsRun(t *testing.T) {
	archive, err := os.ReadFile("bundle.tar.zst")
	if err != nil {
		t.Fatalf("%v; run `make bundle` first", err)
	}
	list, err := os.ReadFile("bundle.list")
	check(t, err)
	p, err := newParcel(archive, list)
	check(t, err)
	began := time.Now()
	dir, err := p.Unpack(t.TempDir(), p.Sound)
	check(t, err)
	t.Logf("unpacked in %s", time.Since(began))
	began = time.Now()
	if !p.Whole(dir) {
		t.Error("not whole")
	}
	t.Logf("looked at in %s", time.Since(began))
	began = time.Now()
	if !p.Sound(dir) {
		t.Error("not sound")
	}
	t.Logf("checked in %s", time.Since(began))
	check(t, os.Remove(filepath.Join(dir, checkedFile)))
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd "+dir+" && sha256sum -c "+sumsFile).CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}

	entries, err := os.ReadDir(dir)
	check(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{sumsFile, "bridge", "containerd-shim-monopod-v2", "host-local", "loopback", "monopod", "portmap", "runc"}
	if !slices.Equal(names, want) {
		t.Fatalf("unpacked %v, want %v", names, want)
	}
	for name, says := range map[string]string{
		"runc": "libseccomp", "containerd-shim-monopod-v2": "Go version", "bridge": "cniVersion",
		"monopod": "monopod ", "host-local": "cniVersion", "loopback": "cniVersion", "portmap": "cniVersion",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
		switch says {
		case "cniVersion":
			cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
			cmd.Env = []string{"CNI_COMMAND=VERSION"}
		case "monopod ":
			cmd.Args = append(cmd.Args, "version")
			cmd.Env = []string{}
		case "libseccomp":
			cmd.Args = append(cmd.Args, "--version")
			cmd.Env = []string{}
		default:
			cmd.Args = append(cmd.Args, "-v")
			cmd.Env = []string{}
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
