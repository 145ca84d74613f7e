package oci

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
)

func TestMapsIDs(t *testing.T) {
	for text, want := range map[string]bool{
		`{"linux": {"mountExtensions": {"idmap": {"enabled": true}}}}`:  true,
		`{"linux": {"mountExtensions": {"idmap": {"enabled": false}}}}`: false,
		`{"ociVersionMin": "1.0.0", "linux": {}}`:                       false,
		`nonsense`: false,
	} {
		if got, _ := parseFeatures([]byte(text)); got.mapsIDs != want {
			t.Errorf("%s: %t", text, got.mapsIDs)
		}
	}
}

// program writes an OCI runtime that prints its features, and counts its calls in a file.
func program(t *testing.T, name, features string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	script := "#!/bin/sh\necho $1 >>" + path + ".calls\ncat <<'END'\n" + features + "\nEND\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

const idmap = `{"mountOptions": ["ro", "rro"], "linux": {"mountExtensions": {"idmap": {"enabled": true}}}}`

func TestTheRuntimeOfAPod(t *testing.T) {
	old, shipped, class := program(t, "old", "{}"), program(t, "shipped", idmap), program(t, "class", "{}")
	dirs := layout.Dirs{State: t.TempDir()}
	handlers := func(handler string) (string, error) {
		if handler != "class" {
			return "", errors.New("unknown handler " + handler)
		}
		return class, nil
	}
	for name, tt := range map[string]struct {
		shipped, handler string
		users            bool
		want, err        string
	}{
		"by default":                              {shipped: shipped, want: old},
		"with a user namespace":                   {shipped: shipped, users: true, want: shipped},
		"with one that no runtime supports":       {users: true, want: old, err: "runtime does not support user namespaces: " + old},
		"of a RuntimeClass":                       {handler: "class", want: class},
		"of a RuntimeClass with a user namespace": {shipped: shipped, handler: "class", users: true, want: class, err: noUserNamespace},
		"of an unknown RuntimeClass":              {handler: "x", err: "unknown handler x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Runtimes{Dirs: dirs, DefaultRuntime: old, ShippedRuntime: tt.shipped, Handlers: handlers, Log: slog.New(slog.DiscardHandler)}
			sb := &record.Sandbox{Meta: record.SandboxMeta{Handler: tt.handler}}
			if tt.users {
				sb.Meta.FirstID = 65536
			}
			rt, err := r.RuntimeOf(t.Context(), sb)
			if rt.Path != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %+v, %v", rt, err)
			}
		})
	}
}

// TestFeaturesAreReadOnce for each version of a program, and not without need.
func TestFeaturesAreReadOnce(t *testing.T) {
	path := program(t, "runc", idmap)
	r := &Runtimes{DefaultRuntime: path}
	calls := func() int {
		b, _ := os.ReadFile(path + ".calls")
		return strings.Count(string(b), "features\n")
	}
	if _, err := r.RuntimeFor(t.Context(), "", false); err != nil || calls() > 0 {
		t.Errorf("%d calls for nothing, %v", calls(), err)
	}
	for range 3 {
		if err := r.mapsUsers(t.Context(), r.usual()); err != nil {
			t.Error(err)
		}
	}
	if calls() != 1 {
		t.Errorf("%d calls", calls())
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho features >>"+path+".calls\necho '{}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.mapsUsers(t.Context(), r.usual()); err == nil || calls() != 2 {
		t.Errorf("after a downgrade: %v, %d calls", err, calls())
	}
	if r.SupportsRecursiveReadOnly(context.Background(), Runtime{Path: filepath.Join(t.TempDir(), "missing")}) {
		t.Error("a missing runtime supports something")
	}
}

// TestRuntimesDoNotShareState: two programs do not understand each other's state directories.
func TestRuntimesDoNotShareState(t *testing.T) {
	dirs := layout.Dirs{State: t.TempDir()}
	for _, handler := range []string{"a", "b", "removed"} {
		if err := os.MkdirAll(filepath.Join(dirs.HandlersDir(), handler), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r := &Runtimes{Dirs: dirs, DefaultRuntime: "/bin/runc", ShippedRuntime: "/opt/runc", Log: slog.New(slog.DiscardHandler)}
	r.Handlers = func(handler string) (string, error) {
		if handler == "removed" {
			return "", errors.New("no such handler")
		}
		return "/bin/crun", nil
	}
	roots := map[string]bool{}
	for _, rt := range r.Runtimes() {
		if roots[rt.Root] || !strings.HasPrefix(rt.Root, dirs.State) {
			t.Errorf("%s keeps its state in %s", rt.Path, rt.Root)
		}
		roots[rt.Root] = true
	}
	if len(roots) != 4 {
		t.Errorf("runtimes: %v", roots)
	}
}

func TestUserNamespacesNeedOverlayfs(t *testing.T) {
	r := &Runtimes{DefaultRuntime: "/bin/runc", Snapshotter: "native", Log: slog.New(slog.DiscardHandler)}
	pod := &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{HostUsers: new(false)}}}
	if _, err := r.CheckRuntime(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "snapshotter native cannot map ids") {
		t.Errorf("error %v", err)
	} else if got := cause.Of(err); got != (cause.Cause{Kind: cause.Sandbox, Fault: cause.UserNamespace}) {
		t.Errorf("cause %+v", got)
	}
	pod.Object.Spec.HostUsers = nil
	if _, err := r.CheckRuntime(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

func TestARuntimeClassThatCannotBeUsedIsTheCause(t *testing.T) {
	r := &Runtimes{DefaultRuntime: "/bin/runc", Log: slog.New(slog.DiscardHandler)}
	for name, refs := range map[string]*manifests.Refs{
		"no such class":   {},
		"no such handler": {RuntimeClass: &nodev1.RuntimeClass{Handler: "runsc"}},
	} {
		pod := &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new("sandboxed")}}, Refs: refs}
		if _, err := r.CheckRuntime(t.Context(), pod); cause.Of(err) != noHandler() {
			t.Errorf("%s: %v, cause %+v", name, err, cause.Of(err))
		}
	}
}
