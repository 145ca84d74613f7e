//go:build e2e

package runcdelete

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	busybox = "/bin/busybox"
	// parent is the parent cgroup of all containers here.
	parent = "monopod-runcdelete"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counter runs commands, and counts calls of runc delete.
type counter struct {
	runc.ProcessMonitor
	deletes int
}

func (c *counter) StartLocked(cmd *exec.Cmd) (chan runc.Exit, error) {
	if slices.Contains(cmd.Args, "delete") {
		c.deletes++
	}
	return c.ProcessMonitor.StartLocked(cmd)
}

// container is one of runc's.
type container struct {
	t      *testing.T
	runc   *runc.Runc
	id     string
	bundle string
	pid    int
}

// create creates a container without starting it, as the shim does.
func create(t *testing.T, id string, edit func(*specs.Spec)) *container {
	t.Helper()
	dir := t.TempDir()
	c := &container{t: t, id: id, bundle: dir, runc: &runc.Runc{
		Command: "runc", Root: filepath.Join(dir, "runc"), Log: filepath.Join(dir, "log.json"), LogFormat: runc.JSON, PdeathSignal: unix.SIGKILL,
	}}
	program, err := os.ReadFile(busybox)
	check(t, err)
	check(t, os.MkdirAll(filepath.Join(dir, "rootfs", "proc"), 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "rootfs", "sleep"), program, 0o755))
	spec := &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{Args: []string{"/sleep", "1000"}, Cwd: "/"},
		Root:    &specs.Root{Path: "rootfs"},
		Mounts:  []specs.Mount{{Type: "proc", Source: "proc", Destination: "/proc"}},
		Linux: &specs.Linux{
			CgroupsPath: filepath.Join("/", parent, id),
			Namespaces:  []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}},
		},
	}
	if edit != nil {
		edit(spec)
	}
	text, err := json.Marshal(spec)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	t.Cleanup(func() {
		_ = exec.Command("runc", "--root", c.runc.Root, "delete", "--force", id).Run()
		for _, dir := range parents() {
			left := 2 * maxCgroups
			check(t, removeCgroup(dir, &left))
		}
	})
	// Output would keep the monitor waiting for the container.
	null, err := runc.NewNullIO()
	check(t, err)
	defer func() { _ = null.Close() }()
	pidFile := filepath.Join(dir, "pid")
	if err := c.runc.Create(t.Context(), id, dir, &runc.CreateOpts{PidFile: pidFile, IO: null}); err != nil {
		log, _ := os.ReadFile(c.runc.Log)
		t.Fatalf("%v: %s", err, log)
	}
	c.pid, err = runc.ReadPidFile(pidFile)
	check(t, err)
	return c
}

// end kills the init process and waits for its exit.
func (c *container) end() {
	c.t.Helper()
	check(c.t, unix.Kill(c.pid, unix.SIGKILL))
	_, err := unix.Wait4(c.pid, nil, 0, nil) // this process is the subreaper
	check(c.t, err)
}

func (c *container) stateDir() string { return filepath.Join(c.runc.Root, c.id) }

// editState replaces text in state.json.
func (c *container) editState(from, to string) {
	c.t.Helper()
	path := filepath.Join(c.stateDir(), "state.json")
	text, err := os.ReadFile(path)
	check(c.t, err)
	edited := strings.Replace(string(text), from, to, 1)
	if edited == string(text) {
		c.t.Fatalf("no %q in %s", from, text)
	}
	check(c.t, os.WriteFile(path, []byte(edited), 0o600))
}

// parents returns the parent cgroups of containers in all hierarchies.
func parents() (dirs []string) {
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, _ := filepath.Glob(filepath.Join(mount, parent))
		dirs = append(dirs, found...)
	}
	return dirs
}

// cgroups returns the cgroups of the container.
func (c *container) cgroups() (dirs []string) {
	for _, dir := range parents() {
		found, _ := filepath.Glob(filepath.Join(dir, c.id))
		dirs = append(dirs, found...)
	}
	return dirs
}

// delete deletes the container, and returns how often runc delete was called.
func (c *container) delete() (deletes int, err error) {
	count := &counter{ProcessMonitor: runc.Monitor}
	before := runc.Monitor
	runc.Monitor = &Monitor{ProcessMonitor: count, Allowed: func(string) bool { return true }, Deleted: func(string) {}}
	defer func() { runc.Monitor = before }()
	err = c.runc.Delete(c.t.Context(), c.id, nil)
	return count.deletes, err
}

// gone fails the test if anything of the container remains.
func (c *container) gone() {
	c.t.Helper()
	if dirs := c.cgroups(); len(dirs) > 0 {
		c.t.Errorf("left: %v", dirs)
	}
	if left, err := os.ReadDir(c.runc.Root); err != nil || len(left) > 0 {
		c.t.Errorf("left in runc's directory: %v, %v", left, err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	check(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// TestNothingIsLeft: the container and the cgroups that it created are removed in all hierarchies, and runc is not run.
func TestNothingIsLeft(t *testing.T) {
	needRoot(t)
	c := create(t, "c1", nil)
	cgroups := c.cgroups()
	if len(cgroups) == 0 {
		t.Fatal("a container without cgroups")
	}
	for _, dir := range cgroups {
		check(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755))
		check(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	}
	check(t, c.runc.Start(t.Context(), c.id))
	c.end()
	if n, err := c.delete(); n != 0 || err != nil {
		t.Errorf("runc was run %d times: %v", n, err)
	}
	c.gone()
}

// TestRuncDeletesWhatIsNotUnderstood: runc deletes all containers that this package does not.
func TestRuncDeletesWhatIsNotUnderstood(t *testing.T) {
	needRoot(t)
	hook := filepath.Join(t.TempDir(), "hook")
	for i, tt := range []struct {
		name string
		spec func(*specs.Spec)
		// stopped modifies the stopped container.
		stopped func(*container)
	}{
		{name: "poststop hooks", spec: func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: busybox, Args: []string{"touch", hook}}}}
		}},
		{name: "no PID namespace of its own", spec: func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }},
		{name: "a field that a newer runc may have", stopped: func(c *container) { c.editState(`"id":`, `"new":1,"id":`) }},
		{name: "more cgroups than are removed here", stopped: func(c *container) {
			for i := range maxCgroups {
				check(c.t, os.Mkdir(filepath.Join(c.cgroups()[0], fmt.Sprint(i)), 0o755))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := create(t, fmt.Sprint("left", i), tt.spec)
			c.end()
			if tt.stopped != nil {
				tt.stopped(c)
			}
			if n, err := c.delete(); n != 1 || err != nil {
				t.Errorf("runc was run %d times: %v", n, err)
			}
			c.gone()
		})
	}
	if _, err := os.Stat(hook); err != nil {
		t.Error("the hook was not run:", err)
	}
}

// TestRuncRefusesToDelete: a container that runc does not delete is not deleted here, either.
func TestRuncRefusesToDelete(t *testing.T) {
	needRoot(t)
	for i, tt := range []struct {
		name    string
		prepare func(*container)
	}{
		{"it runs", func(c *container) { check(c.t, c.runc.Start(c.t.Context(), c.id)) }},
		{"its state is damaged", func(c *container) {
			c.end()
			c.editState(`"id":`, `"id`)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := create(t, fmt.Sprint("kept", i), nil)
			tt.prepare(c)
			before := c.cgroups()
			if n, err := c.delete(); n != 1 || err == nil {
				t.Errorf("runc was run %d times: %v", n, err)
			}
			if _, err := os.Stat(filepath.Join(c.stateDir(), "state.json")); err != nil {
				t.Error(err)
			}
			if after := c.cgroups(); len(after) == 0 || !slices.Equal(before, after) {
				t.Errorf("cgroups before %v, after %v", before, after)
			}
			if tt.name == "it runs" {
				c.end()
				if n, err := c.delete(); n != 0 || err != nil {
					t.Errorf("after its end runc was run %d times: %v", n, err)
				}
				c.gone()
			}
		})
	}
}
