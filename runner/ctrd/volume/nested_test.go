package volume

import (
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod/runner/ctrd/payload"
)

// TestMountsInsideVolumesOfObjectsHaveAPlace, which updates of the content keep: removing it would end the mount of a running container.
func TestMountsInsideVolumesOfObjectsHaveAPlace(t *testing.T) {
	files, other := filepath.Join(t.TempDir(), "u"), t.TempDir()
	file := filepath.Join(other, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(files, "base")
	write := func(names ...string) {
		t.Helper()
		content := map[string]payload.File{}
		for _, name := range names {
			content[name] = payload.File{Data: []byte(name), Mode: 0o644}
		}
		if err := payload.Write(base, content, nil); err != nil {
			t.Fatal(err)
		}
	}
	write("main.conf", "sub/a.conf")
	bind := func(destination, source string) specs.Mount {
		return specs.Mount{Destination: destination, Source: source, Type: "bind"}
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Source: "proc", Type: "proc"},
		bind("/etc/app", base), bind("/etc/hosts", file), bind("/data", other),
		bind("/etc/app/conf.d", other), bind("/etc/app/site.conf", file), bind("/etc/app/main.conf", file), bind("/etc/app/..odd", other),
		bind("/data/x", other), bind("/etc/application", other),
		{Destination: "/etc/app/shm", Source: "tmpfs", Type: "tmpfs"},
		bind("/etc/app/deep/down", file), bind("/etc/app/sub/new", other), bind("/etc/app/conf.d/inner", other),
	}
	check := func(when string) {
		t.Helper()
		for name, directory := range map[string]bool{"conf.d": true, "site.conf": false, "shm": true, "deep": true, "deep/down": false} {
			if info, err := os.Stat(filepath.Join(base, name)); err != nil || info.IsDir() != directory {
				t.Errorf("%s: %s: %v", when, name, err)
			}
		}
		for _, none := range []string{filepath.Join(base, "..odd"), filepath.Join(base, "sub/new"), filepath.Join(base, "conf.d/inner"), filepath.Join(other, "x"), filepath.Join(other, "inner")} {
			if _, err := os.Lstat(none); err == nil {
				t.Errorf("%s: %s was made", when, none)
			}
		}
		if data, err := os.ReadFile(filepath.Join(base, "main.conf")); err != nil || string(data) != "main.conf" {
			t.Errorf("%s: a file of the content: %q, %v", when, data, err)
		}
	}
	for range 2 { // for two containers
		if err := MakeMountpoints(files, mounts); err != nil {
			t.Fatal(err)
		}
		check("made")
	}
	write("main.conf", "added")
	check("after an edit")
	if err := MakeMountpoints(files, []specs.Mount{bind("/etc/app", base), bind("/etc/app/y", filepath.Join(other, "none"))}); err == nil {
		t.Error("the source of a mount is missing")
	}
}
