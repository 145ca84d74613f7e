package shims

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/atomicfile/damagetest"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/oci"
)

func TestOnlyTheCommandLineOfAShimIsOne(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want shimProcess
		ok   bool
	}{
		"a shim": {
			"/x/containerd-shim-monopod-v2 -namespace monopod -id abc -address /run/c.sock",
			shimProcess{"monopod", "abc", "/run/c.sock"},
			true,
		},
		"another order": {
			"containerd-shim-runc-v2 -address /a -id abc -debug -namespace k8s.io",
			shimProcess{"k8s.io", "abc", "/a"},
			true,
		},
		"no id":           {"containerd-shim-monopod-v2 -info", shimProcess{}, false},
		"another program": {"/bin/sh -namespace monopod -id abc", shimProcess{}, false},
		"a kernel thread": {"", shimProcess{}, false},
		"cut off":         {"containerd-shim-monopod-v2 -id", shimProcess{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseShim(strings.ReplaceAll(c.line, " ", "\x00") + "\x00")
			if ok != c.ok || ok && got != c.want {
				t.Errorf("got %+v, %t", got, ok)
			}
		})
	}
}

// TestDamagedFilesOfAContainerAreDropped checks that only files that keep runc from deleting it are removed.
func TestDamagedFilesOfAContainerAreDropped(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		d, log := layout.Dirs{State: t.TempDir()}, slog.New(slog.DiscardHandler)
		s := &Killer{Dirs: d, OCI: &oci.Runtimes{Dirs: d, Log: log}, Namespace: "monopod", Log: log}
		for _, id := range []string{"a", "b"} {
			for _, path := range []string{d.Path("runc", "monopod", id, "state.json"), d.Path("containerd", "io.containerd.runtime.v2.task", "monopod", id, "log.json")} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if s.DropDamaged("a") {
			t.Errorf("%s: sound files were dropped", name)
		}
		if err := spoil(d.Path("runc", "monopod", "a", "state.json")); err != nil {
			t.Fatal(err)
		}
		if !s.DropDamaged("a") {
			t.Errorf("%s: nothing was dropped", name)
		}
		if _, err := os.Lstat(d.Path("runc", "monopod", "a")); err == nil {
			t.Errorf("%s: runc still knows the container", name)
		}
		if _, err := os.Stat(d.Path("runc", "monopod", "b", "state.json")); err != nil {
			t.Errorf("%s: another container: %v", name, err)
		}
	}
}
