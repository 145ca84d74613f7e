package runcdelete

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/go-runc"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 4711 4711 0 -1 4194560 29 28 0 3 146 32 76 19 20 0 1 0 2860316 52965376 3920"
	for _, tt := range []struct {
		name, text string
		state      byte
		ok         bool
	}{
		{"a process", "4711 (sh) S" + rest, 'S', true},
		{"a name with all that is difficult", "4711 (a) Z 1 (\n) R" + rest, 'R', true},
		{"cut short", "4711 (sh) S 1 4711 4711 0 -1", 0, false},
		{"no name", "4711", 0, false},
		{"nothing", "", 0, false},
		{"no number", "4711 (sh) S" + strings.Replace(rest, "2860316", "x", 1), 'S', false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, started, ok := parseStat([]byte(tt.text))
			if ok != tt.ok || state != tt.state || ok && started != 2860316 {
				t.Errorf("got %q, %d, %v", state, started, ok)
			}
		})
	}
}

func TestTheInitProcessMustHaveEnded(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, started, ok := parseStat(text)
	if !ok {
		t.Fatalf("%q", text)
	}
	if err := ended(os.Getpid(), started); err == nil {
		t.Error("a running process has ended")
	}
	if err := ended(os.Getpid(), started-1); err != nil {
		t.Errorf("another process had that pid: %v", err)
	}
	if err := ended(1<<30, started); err != nil {
		t.Errorf("there is no such process: %v", err)
	}
}

// writeState writes the state of a stopped container whose cgroup is in dir, and returns runc's root.
func writeState(t *testing.T, dir string) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "c1"), 0o700); err != nil {
		t.Fatal(err)
	}
	state := strings.NewReplacer("/sys/fs/cgroup", dir, "4711", fmt.Sprint(1<<30)).Replace(written15)
	if err := os.WriteFile(filepath.Join(root, "c1", "state.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestOnlyCgroupsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "pods", "p", "c1", "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	root := writeState(t, dir)
	if err := remove(root, "c1"); err == nil {
		t.Error("deleted")
	}
	for _, path := range []string{data, filepath.Join(root, "c1", "state.json")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestCgroupsThatAreGoneAreFine(t *testing.T) {
	root := writeState(t, t.TempDir())
	if err := remove(root, "c1"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestStatesThatCannotBeReadAreLeftToRunc(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"missing":     os.Remove,
		"too large":   func(path string) error { return os.Truncate(path, maxState+1) },
		"a directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			root := writeState(t, t.TempDir())
			path := filepath.Join(root, "c1", "state.json")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if err := remove(root, "c1"); err == nil {
				t.Error("deleted")
			}
			if _, err := os.Stat(filepath.Dir(path)); err != nil {
				t.Error(err)
			}
		})
	}
}

// recorder is a process monitor that runs nothing.
type recorder struct{ ran []string }

func (r *recorder) Start(c *exec.Cmd) (chan runc.Exit, error) {
	r.ran = append(r.ran, strings.Join(c.Args[1:], " "))
	c.Process = &os.Process{Pid: 1}
	return make(chan runc.Exit), nil
}

func (r *recorder) StartLocked(c *exec.Cmd) (chan runc.Exit, error) { return r.Start(c) }

func (r *recorder) Wait(*exec.Cmd, chan runc.Exit) (int, error) { return 7, nil }

func TestMonitor(t *testing.T) {
	root := writeState(t, t.TempDir())
	for _, tt := range []struct {
		name, args string
		allowed    bool
		status     int
	}{
		{"another runtime", "--root " + root + " delete c1", false, 7},
		{"a container without state", "--root " + root + " delete c2", true, 7},
		{"another command", "--root " + root + " state c1", true, 7},
		{"a container that has ended", "--root " + root + " delete c1", true, 0},
		{"once more, now it is runc that says so", "--root " + root + " delete c1", true, 7},
	} {
		for _, locked := range []bool{false, true} {
			if locked && tt.status == 0 {
				root2 := writeState(t, t.TempDir())
				tt.args = "--root " + root2 + " delete c1"
			}
			next, deleted := &recorder{}, ""
			m := &Monitor{ProcessMonitor: next, Allowed: func(string) bool { return tt.allowed }, Deleted: func(id string) { deleted = id }}
			start := m.Start
			if locked {
				start = m.StartLocked
			}
			c := &exec.Cmd{Args: append([]string{"runc"}, strings.Fields(tt.args)...)}
			exits, err := start(c)
			if err != nil {
				t.Fatal(err)
			}
			status, err := m.Wait(c, exits)
			if err != nil || status != tt.status {
				t.Errorf("%s: status %d, %v", tt.name, status, err)
			}
			if here := tt.status == 0; here != (deleted == "c1") || here != (len(next.ran) == 0) {
				t.Errorf("%s: deleted %q, ran %q", tt.name, deleted, next.ran)
			}
		}
	}
}
