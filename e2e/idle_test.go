//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// idleFor is how long nothing may be written, after it has been calm for calmFor.
	idleFor = 20 * time.Second
	calmFor = 3 * time.Second
)

// letTimePass waits: what happens by itself meanwhile is what is tested.
func letTimePass(d time.Duration) { time.Sleep(d) }

// changes are when what is in the directories was last changed, by path.
func changes(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			s := info.Sys().(*syscall.Stat_t)
			all[path] = fmt.Sprint(s.Mtim, s.Ctim, s.Size, s.Ino)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// podsMemory is what the agent may have of memory with 30 pods. What requests have taken is given back within a minute.
const podsMemory = 45 << 20

// hasAtMost waits until the agent has no more memory than that.
func (in *instance) hasAtMost(bytes uint64) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("monopod has at most %d MiB of memory", bytes>>20), func() error {
		now := status(in.t, in.cmd.Process.Pid, "VmRSS")
		if now > bytes {
			return fmt.Errorf("%d KiB", now>>10)
		}
		in.t.Logf("monopod has %d KiB of memory", now>>10)
		return nil
	})
}

// TestIdle: while 30 pods run and nothing happens, monopod and its shims write nothing to disk, change no file, and need little memory.
func TestIdle(t *testing.T) {
	in := newInstance(t)
	in.agent = "monopod-client" // the same without the race detector
	var all []string
	for n := range 30 {
		pod := sleeper(fmt.Sprintf("idle-%d", n), ":")
		if n >= 5 { // that takes a while
			pod = strings.Replace(pod, "spec:\n", "spec:\n  hostNetwork: true\n", 1)
		}
		all = append(all, pod)
	}
	in.put("all", strings.Join(all, "---\n"))
	in.start()
	in.eventually("all pods are ready", func() error {
		pods, err := in.podList()
		ready := 0
		for _, p := range pods {
			if isReady(p) {
				ready++
			}
		}
		if err == nil && ready < len(all) {
			err = fmt.Errorf("%d are", ready)
		}
		return err
	})
	dirs := []string{filepath.Join(in.dir, "root"), in.state}
	files, cost := changes(t, dirs...), agentCost(in)
	for deadline := time.Now().Add(patience); ; {
		letTimePass(calmFor)
		before := cost
		cost = agentCost(in)
		now := changes(t, dirs...)
		if maps.Equal(files, now) && before.Agent.WrittenBytes == cost.Agent.WrittenBytes && before.Shims.WrittenBytes == cost.Shims.WrittenBytes {
			break
		}
		if files = now; time.Now().After(deadline) {
			t.Fatal("it does not come to rest")
		}
	}
	letTimePass(idleFor)
	now := agentCost(in)
	if cost.Shims.Processes != len(all) || now.Shims.Processes != len(all) {
		t.Fatalf("there are %d shims, then %d", cost.Shims.Processes, now.Shims.Processes)
	}
	if cost.Agent.WrittenBytes != now.Agent.WrittenBytes || cost.Shims.WrittenBytes != now.Shims.WrittenBytes {
		t.Errorf("monopod has written %d bytes, its shims %d", now.Agent.WrittenBytes-cost.Agent.WrittenBytes, now.Shims.WrittenBytes-cost.Shims.WrittenBytes)
	}
	after := changes(t, dirs...)
	for path := range after {
		if files[path] != after[path] {
			t.Errorf("%s has changed: %s, before %s", path, after[path], files[path])
		}
	}
	if len(after) != len(files) || len(after) < 1000 {
		t.Errorf("there are %d files, %d before", len(after), len(files))
	}
	in.hasAtMost(podsMemory)
	var fs unix.Statfs_t
	if err := unix.Statfs(in.dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.TMPFS_MAGIC && now.Agent.WrittenBytes < 1<<20 {
		t.Errorf("it counts what is written: %d bytes since its start", now.Agent.WrittenBytes)
	}
	woken := now.Agent.WakeUps - cost.Agent.WakeUps
	if woken == 0 { // how many there are depends on what else the machine does
		t.Errorf("no wake-ups are counted in %v", idleFor)
	}
	t.Logf("%d wake-ups of monopod, %d of its shims in %v", woken, now.Shims.WakeUps-cost.Shims.WakeUps, idleFor)
}
