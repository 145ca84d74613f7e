package shim

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestParseMembership(t *testing.T) {
	for name, tt := range map[string]struct{ in, v1, v2 string }{
		"pure v2":                          {"0::/monopod/a\n", "", "/monopod/a"},
		"pure v1":                          {"9:memory:/m/a\n8:cpu,cpuacct:/c\n", "/m/a", ""},
		"hybrid":                           {"9:memory:/m/a\n1:name=systemd:/s\n0::/u\n", "/m/a", "/u"},
		"memory mounted with another":      {"9:cpuset,memory:/m\n", "/m", ""},
		"a path with colons stays whole":   {"0::/a:b:c\n", "", "/a:b:c"},
		"a controller that starts like it": {"9:memory2:/m\n", "", ""},
		"nothing":                          {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v1, v2 := parseMembership(strings.NewReader(tt.in))
			if v1 != tt.v1 || v2 != tt.v2 {
				t.Errorf("got %q, %q; want %q, %q", v1, v2, tt.v1, tt.v2)
			}
		})
	}
}

func TestParseCgroupMounts(t *testing.T) {
	in := `25 30 0:22 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
26 25 0:23 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw
27 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
28 25 0:25 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory
29 25 0:25 / /somewhere/else rw shared:11 - cgroup cgroup rw,memory
short line
`
	memory, unified := parseCgroupMounts(strings.NewReader(in))
	if memory != "/sys/fs/cgroup/memory" || unified != "/sys/fs/cgroup/unified" {
		t.Errorf("got %q, %q", memory, unified)
	}
}

func TestParseOOMKills(t *testing.T) {
	for name, tt := range map[string]struct {
		in string
		n  int
		ok bool
	}{
		"memory.events":         {"low 0\noom 2\noom_kill 3\noom_group_kill 0\n", 3, true},
		"memory.oom_control":    {"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1, true},
		"kernel before 4.13":    {"oom_kill_disable 0\nunder_oom 1\n", 0, false},
		"only oom_kill_disable": {"oom_kill_disable 1\n", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if n, ok := parseOOMKills(strings.NewReader(tt.in)); n != tt.n || ok != tt.ok {
				t.Errorf("got %d, %v", n, ok)
			}
		})
	}
}

// deliver is a shim.Publisher that calls itself.
type deliver func(events.Event)

func (d deliver) Publish(_ context.Context, _ string, e events.Event) error { d(e); return nil }
func (deliver) Close() error                                                { return nil }

var _ shim.Publisher = deliver(nil)

func TestExitRecordExistsWhenTheEventIsPublished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exits", "c1")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	ws := newWatchers()
	ws.add("c1", &watcher{exitFile: path})
	published := 0
	p := &publisher{ws: ws, Publisher: deliver(func(e events.Event) {
		published++
		if e.(*eventstypes.TaskExit).ID != "c1" {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the exit of an exec was recorded (%v)", err)
			}
			return
		}
		r, err := ReadExitRecord(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := (ExitRecord{ExitCode: 7, ExitedAt: at}); *r != want {
			t.Errorf("got %+v, want %+v", *r, want)
		}
	})}
	for _, id := range []string{"exec", "c1"} {
		err := p.Publish(t.Context(), "", &eventstypes.TaskExit{ContainerID: "c1", ID: id, ExitStatus: 7, ExitedAt: timestamppb.New(at)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if published != 2 {
		t.Errorf("%d events passed on, want 2", published)
	}
}

func TestExitRecordIsWrittenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c1")
	w := &watcher{exitFile: path}
	if err := w.exited(1, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := w.exited(1, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExitRecord(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record came back after the agent took it: %v", err)
	}
}

func TestExitRecordIsTriedAgainWhenItCouldNotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	w := &watcher{exitFile: filepath.Join(dir, "c1")}
	if err := w.exited(1, time.Unix(1, 0)); err == nil {
		t.Fatal("no error")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := w.exited(1, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExitRecord(filepath.Join(dir, "c1")); err != nil {
		t.Error(err)
	}
}

func TestOOMKilled(t *testing.T) {
	counter := func(content string) string {
		dir := t.TempDir()
		if content != "" {
			if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for name, tt := range map[string]struct {
		cgroup string
		event  bool
		want   bool
	}{
		"the counter says so, the event has not come yet": {counter("oom_kill 1\n"), false, true},
		"an event without a kill (v1) does not count":     {counter("oom_kill 0\n"), true, false},
		"without a counter the event counts":              {counter(""), true, true},
		"the cgroup is unknown, there was no event":       {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c1")
			w := &watcher{exitFile: path}
			w.cgroup = tt.cgroup
			if tt.event {
				w.oom()
			}
			if err := w.exited(137, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			r, err := ReadExitRecord(path)
			if err != nil {
				t.Fatal(err)
			}
			if r.OOMKilled != tt.want {
				t.Errorf("OOMKilled = %v", r.OOMKilled)
			}
		})
	}
}

func TestHeldFifoKeepsOutputWithoutReaderOrWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w := &watcher{}
	if err := w.hold(path, "", "binary:///x"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.release)
	if len(w.held) != 1 {
		t.Fatalf("%d descriptors held, want 1", len(w.held))
	}
	flags, err := unix.FcntlInt(uintptr(w.held[0]), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("not close-on-exec: flags %#x, %v", flags, err)
	}
	// More than the default size of a pipe, so that this needs the enlarged one.
	out := strings.Repeat("x", 200<<10)
	wr, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Write(int(wr.Fd()), []byte(out)); err != nil || n != len(out) {
		t.Fatalf("wrote %d: %v", n, err)
	}
	_ = wr.Close()

	rd, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rd.Close() }()
	w.release()
	got, err := io.ReadAll(rd)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != out {
		t.Errorf("%d bytes read, want %d", len(got), len(out))
	}
}

func TestReadExitFile(t *testing.T) {
	bundle := t.TempDir()
	if got := readBundle(bundle).exitFile(); got != "" {
		t.Errorf("no config.json: %q", got)
	}
	spec := `{"ociVersion":"1.2.0","process":{"args":["a"]},"annotations":{"monopod.dev/exit-file":"/run/x"}}`
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readBundle(bundle).exitFile(); got != "/run/x" {
		t.Errorf("got %q", got)
	}
}

func TestWhoseProcessesEndWithTheInitProcess(t *testing.T) {
	cases := []struct {
		name, config string
		shares       bool
	}{
		{"a PID namespace of its own ends with it", `{"linux":{"namespaces":[{"type":"mount"},{"type":"pid"}]}}`, false},
		{"without a PID namespace the others go on", `{"linux":{"namespaces":[{"type":"mount"}]}}`, true},
		{"in the PID namespace of others, they go on", `{"linux":{"namespaces":[{"type":"pid","path":"/proc/1/ns/pid"}]}}`, true},
		{"without a readable spec nothing is known", `{`, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bundle := t.TempDir()
			if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := readBundle(bundle).sharesPIDs(); got != c.shares {
				t.Errorf("got %v", got)
			}
		})
	}
}
