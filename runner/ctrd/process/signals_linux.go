package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"monopod/runner/spec"
)

// SignalPid signals a process directly, without running runc. Another process may have the pid by now: the signal is sent only
// through a pidfd, after the cgroup has shown that it is the container's. flags are those of pidfd_send_signal(2).
func SignalPid(pid int, id string, sig syscall.Signal, flags int) bool {
	if pid <= 0 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !inCgroup(string(b), id) {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, flags) == nil
}

// inCgroup reports whether a path in /proc/<pid>/cgroup contains the container's cgroup.
func inCgroup(cgroups, id string) bool {
	for line := range strings.Lines(cgroups) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		for elem := range strings.SplitSeq(path, "/") {
			if spec.ContainerOf(elem) == id {
				return true
			}
		}
	}
	return false
}

// signalSession signals every process of the container in the session that pid leads. runc runs each command in a session of its
// own.
func signalSession(pid int, container string, sig unix.Signal) {
	if pid <= 1 {
		return
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		if id, session := statSession(path); session == pid {
			SignalPid(id, container, sig, 0)
		}
	}
}

// statSession reads the pid and the session of a process from its stat file.
func statSession(path string) (pid, session int) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	// The name, in parentheses, may contain any character.
	text := string(b)
	if _, err := fmt.Sscanf(text, "%d ", &pid); err != nil {
		return 0, 0
	}
	var state string
	var parent, group int
	if _, err := fmt.Sscanf(text[strings.LastIndexByte(text, ')')+1:], "%s %d %d %d", &state, &parent, &group, &session); err != nil {
		return 0, 0
	}
	return pid, session
}
