package shims

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/metatest"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/record"
)

// newKiller returns a Killer that knows the containers with these ids, and a context with its namespace.
func newKiller(t *testing.T, known ...string) (*Killer, context.Context) {
	t.Helper()
	c, ctx := metatest.New(t)
	for _, id := range known {
		metatest.Container(ctx, t, c, id, nil)
	}
	d, log := layout.Dirs{State: t.TempDir()}, slog.New(slog.DiscardHandler)
	return &Killer{
		Records: &record.Store{Client: c, Index: record.NewIndex(), Log: log}, Dirs: d, OCI: &oci.Runtimes{Dirs: d, Log: log}, Namespace: "monopod", Log: log,
	}, ctx
}

// startShim starts a process with the command line of a shim. lives ends it, and reports whether it was alive until then.
func startShim(t *testing.T, namespace, id, address string) (lives func() bool) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read line; exit 0", "shim", "-namespace", namespace, "-id", id, "-address", address)
	cmd.Args[0] = "/x/containerd-shim-monopod-v2"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	lives = func() bool {
		ended = true
		_, _ = io.WriteString(in, "\n")
		return cmd.Wait() == nil
	}
	t.Cleanup(func() {
		if !ended {
			lives()
		}
	})
	return lives
}

func TestOnlyShimsWithoutAContainerAreKilled(t *testing.T) {
	r, ctx := newKiller(t, "known", "unmade")
	own := r.Dirs.Path("containerd", "containerd.sock")
	shims := map[string]func() bool{
		"known": startShim(t, "monopod", "known", own), "unmade": startShim(t, "monopod", "unmade", own), "lost": startShim(t, "monopod", "lost", own),
		"of another containerd": startShim(t, "monopod", "lost", "/run/other.sock"), "of another namespace": startShim(t, "k8s.io", "lost", own),
	}
	if err := r.CleanShims(ctx, map[string]bool{"unmade": true}); err != nil {
		t.Error(err)
	}
	for name, lives := range shims {
		if got, want := lives(), name != "lost" && name != "unmade"; got != want {
			t.Errorf("shim %s lives: %t", name, got)
		}
	}
}

func TestTheShimOfOneContainerIsKilled(t *testing.T) {
	r, _ := newKiller(t)
	address := r.Dirs.Path("external.sock")
	r.Endpoint = "unix://" + address
	one, two := startShim(t, "monopod", "one", address), startShim(t, "monopod", "two", address)
	for range 2 { // the second time it is dead
		if err := r.KillLostShim("one"); err != nil {
			t.Error(err)
		}
	}
	if one() || !two() {
		t.Error("not the shim of this container was killed")
	}
	if err := KillShim(os.Getpid(), "one"); err != nil {
		t.Errorf("a pid that another process has now: %v", err)
	}
}

func TestContainersThatOnlyTheRuntimeKnowsAreDeleted(t *testing.T) {
	r, ctx := newKiller(t)
	calls := filepath.Join(t.TempDir(), "calls")
	r.OCI.DefaultRuntime = filepath.Join(t.TempDir(), "runc")
	script := "#!/bin/sh\necho \"$*\" >>" + calls + "\n[ \"$5\" != stuck ] || { echo 'device busy'; exit 1; }\n"
	if err := os.WriteFile(r.OCI.DefaultRuntime, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	root := r.Dirs.Path("runc", "monopod")
	for _, id := range []string{"known", "lost", "stuck", "zlost"} {
		if err := os.MkdirAll(filepath.Join(root, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	err := r.CleanRuntime(ctx, map[string]bool{"known": true})
	if err == nil || !strings.Contains(err.Error(), "delete stuck: ") || !strings.HasSuffix(err.Error(), "device busy") {
		t.Errorf("%v", err)
	}
	b, err := os.ReadFile(calls)
	got := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(got)
	var want []string
	for _, id := range []string{"lost", "stuck", "zlost"} {
		want = append(want, "--root "+root+" delete --force "+id)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestEndedShimsAreFound(t *testing.T) {
	dir := t.TempDir()
	pids := map[string]int{}
	for _, name := range []string{shimComm + "-x-v2", "other"} {
		path := filepath.Join(dir, name)
		if err := os.Symlink("/bin/true", path); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() })
		pids[name] = cmd.Process.Pid
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
	}
	found := ZombieShims()
	if !found[pids[shimComm+"-x-v2"]] || found[pids["other"]] || isZombieShim(os.Getpid()) {
		t.Errorf("found %v of %v", found, pids)
	}
}
