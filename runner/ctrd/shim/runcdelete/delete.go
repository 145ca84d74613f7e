// Package runcdelete deletes stopped containers of runc without running runc: it removes the cgroups and runc's state directory, as `runc
// delete` does. Starting runc for that costs ten times as much CPU.
//
// It must not delete what it does not understand completely. It leaves these to runc: containers whose other processes may outlive the init
// process, cgroups of systemd, poststop hooks, intelRdt, a state.json that is damaged or has unknown fields. If a removal fails, runc
// removes the rest.
//
// Goroutines: none.
package runcdelete

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
)

// maxState is more than a state.json needs; its largest part are seccomp rules.
const maxState = 1 << 20

// remove deletes container id, whose state directory is in root. After an error, runc can still delete it.
func remove(root, id string) error {
	dir := filepath.Join(root, id)
	text, err := atomicfile.Read(filepath.Join(dir, "state.json"), maxState)
	if err != nil {
		return err
	}
	p, err := newPlan(id, text)
	if err != nil {
		return err
	}
	if err := ended(p.pid, p.startTime); err != nil {
		return err
	}
	for _, cgroup := range p.cgroups {
		if err := onCgroupfs(cgroup); err != nil {
			return err
		}
	}
	left := maxCgroups
	for _, cgroup := range p.cgroups {
		if err := removeCgroup(cgroup, &left); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// ended returns nil if the process that started at startTime, in ticks since boot, has exited.
func ended(pid int, startTime uint64) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	process, started, ok := parseStat(text)
	if !ok {
		return fmt.Errorf("process %d: unknown state", pid)
	}
	if started == startTime && process != 'Z' && process != 'X' {
		return fmt.Errorf("process %d has not ended", pid)
	}
	return nil
}

// parseStat parses the state of a process and its start time in /proc/PID/stat. The name of the program, in parentheses, may contain any
// character.
func parseStat(text []byte) (state byte, started uint64, ok bool) {
	const stateField, startedField = 3, 22
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) <= startedField-stateField || len(f[0]) != 1 {
		return 0, 0, false
	}
	started, err := strconv.ParseUint(string(f[startedField-stateField]), 10, 64)
	return f[0][0], started, err == nil
}

// onCgroupfs returns nil for a cgroup and for a missing path: only cgroups are removed.
func onCgroupfs(dir string) error {
	var st unix.Statfs_t
	switch err := unix.Statfs(dir, &st); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	case uint32(st.Type) != unix.CGROUP_SUPER_MAGIC && uint32(st.Type) != unix.CGROUP2_SUPER_MAGIC:
		return fmt.Errorf("%s is no cgroup", dir)
	}
	return nil
}

// maxCgroups is the maximum number of cgroups of a container removed here, because a container can create any number.
const maxCgroups = 1000

var errTooMany = errors.New("too many cgroups")

// removeCgroup removes a cgroup after its descendants. left is how many more may be removed.
func removeCgroup(dir string, left *int) error {
	if *left--; *left < 0 {
		return errTooMany
	}
	err := unix.Rmdir(dir)
	if errors.Is(err, unix.EBUSY) {
		if err := removeBelow(dir, left); err != nil {
			return err
		}
		err = unix.Rmdir(dir)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

func removeBelow(dir string, left *int) error {
	names, err := subdirectories(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeCgroup(filepath.Join(dir, name), left); err != nil {
			return err
		}
	}
	return nil
}

func subdirectories(dir string) (names []string, err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for len(names) <= maxCgroups {
		entries, err := f.ReadDir(maxCgroups)
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errTooMany
}
