package shim

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupDir returns the directory of pid's memory cgroup (v1) or unified cgroup (v2); "" when there is none.
func cgroupDir(pid int) string {
	member, err := os.Open(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	defer func() { _ = member.Close() }()
	v1, v2 := parseMembership(member)
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = mounts.Close() }()
	memory, unified := parseCgroupMounts(mounts)
	if v1 != "" && memory != "" {
		return filepath.Join(memory, v1)
	}
	if v2 != "" && unified != "" {
		return filepath.Join(unified, v2)
	}
	return ""
}

// parseMembership reads /proc/<pid>/cgroup: the paths in the v1 memory hierarchy and in the unified one.
func parseMembership(r io.Reader) (v1, v2 string) {
	for sc := bufio.NewScanner(r); sc.Scan(); {
		f := strings.SplitN(sc.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[1] == "" {
			v2 = f[2]
		} else if slices.Contains(strings.Split(f[1], ","), "memory") {
			v1 = f[2]
		}
	}
	return v1, v2
}

// parseCgroupMounts reads mountinfo: where the v1 memory hierarchy and the unified one are mounted.
func parseCgroupMounts(r io.Reader) (memory, unified string) {
	for sc := bufio.NewScanner(r); sc.Scan(); {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 3 {
			continue
		}
		switch {
		case t[0] == "cgroup2" && unified == "":
			unified = h[4]
		case t[0] == "cgroup" && memory == "" && slices.Contains(strings.Split(t[2], ","), "memory"):
			memory = h[4]
		}
	}
	return memory, unified
}

// enterCgroup moves this process into a cgroup. If it no longer exists, or does not accept processes, its nearest ancestor that does is
// used.
func enterCgroup(dir string) {
	for ; len(dir) > 1; dir = filepath.Dir(dir) {
		f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(strconv.Itoa(os.Getpid()))
		_ = f.Close()
		if err == nil {
			return
		}
	}
}

// oomKills returns how many processes of the cgroup the OOM killer has killed.
func oomKills(dir string) (n int, ok bool) {
	if dir == "" {
		return 0, false
	}
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		n, ok = parseOOMKills(f)
		_ = f.Close()
		return n, ok
	}
	return 0, false
}

func parseOOMKills(r io.Reader) (n int, ok bool) {
	for sc := bufio.NewScanner(r); sc.Scan(); {
		if v, found := strings.CutPrefix(sc.Text(), "oom_kill "); found {
			n, err := strconv.Atoi(v)
			return n, err == nil
		}
	}
	return 0, false
}

// cgroupPids returns the processes of a cgroup and its descendants.
func cgroupPids(dir string) []int {
	if dir == "" {
		return nil
	}
	var pids []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it may vanish while we look
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		for l := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(l)); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// killRounds bounds killAll against processes that fork faster than they are killed.
const killRounds = 100

// killAll kills the processes of a cgroup and its descendants.
func killAll(dir string) {
	if dir == "" || os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	killed := map[int]bool{}
	for range killRounds {
		fresh := false
		for _, pid := range cgroupPids(dir) {
			fresh = fresh || !killed[pid]
			killed[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if !fresh {
			return
		}
	}
}
