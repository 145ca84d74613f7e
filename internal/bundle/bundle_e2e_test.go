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
	began := time.Now()
	dir, err := unpack(parcel{archive, Version(archive)}, t.TempDir())
	check(t, err)
	t.Logf("unpacked in %s", time.Since(began))
	began = time.Now()
	if _, err := unpack(parcel{archive, Version(archive)}, filepath.Dir(dir)); err != nil {
		t.Error(err)
	}
	t.Logf("checked in %s", time.Since(began))

	entries, err := os.ReadDir(dir)
	check(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{sumsFile, "bridge", "containerd-shim-monopod-v2", "host-local", "loopback", "portmap", "runc"}
	if !slices.Equal(names, want) {
		t.Fatalf("unpacked %v, want %v", names, want)
	}
	for name, says := range map[string]string{
		"runc": "libseccomp", "containerd-shim-monopod-v2": "Go version", "bridge": "cniVersion",
		"host-local": "cniVersion", "loopback": "cniVersion", "portmap": "cniVersion",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name))
		switch says {
		case "cniVersion":
			cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
			cmd.Env = []string{"CNI_COMMAND=VERSION"}
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
