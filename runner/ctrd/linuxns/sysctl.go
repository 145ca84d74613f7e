package linuxns

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
)

// setting is a sysctl to write in a new namespace.
type setting struct {
	// path is relative to /proc/sys.
	path  string
	value string
	// flag is the namespace it belongs to.
	flag int
}

// write sets the sysctl in the namespaces of the calling thread, because /proc/sys is resolved relative to them.
func (s setting) write() error {
	f, err := os.OpenFile("/proc/sys/"+s.path, os.O_WRONLY, 0)
	if err != nil {
		return badSysctl("%s: %w", s.path, err)
	}
	defer f.Close()
	if _, err := f.WriteString(s.value); err != nil {
		return badSysctl("%s=%q: %w", s.path, s.value, err)
	}
	return nil
}

// badSysctl returns the error for a sysctl that cannot be set.
func badSysctl(format string, args ...any) error {
	return cause.Wrap(fmt.Errorf("sysctl "+format, args...), cause.Cause{Kind: cause.Sandbox, Fault: cause.Sysctl})
}

// sysctlSettings returns the sysctls to write, sorted by path. A sysctl outside the new namespaces is an error, because it would change the host.
func sysctlSettings(ns Set) ([]setting, error) {
	values := map[string]string{}
	if ns.Net {
		values["net/ipv4/ip_unprivileged_port_start"] = "0"
		if ns.Users == nil { // a user namespace does not map all groups
			values["net/ipv4/ping_group_range"] = "0 2147483647"
		}
	}
	for name, v := range ns.Sysctls {
		values[sysctlPath(name)] = v
	}
	settings := make([]setting, 0, len(values))
	for path, v := range values {
		flag := sysctlNamespace(path)
		switch {
		case flag == 0 || strings.Contains(path, ".."):
			return nil, badSysctl("%s is not part of a network or ipc namespace", path)
		case flag == unix.CLONE_NEWNET && !ns.Net:
			return nil, badSysctl("%s requires a network namespace of the pod", path)
		case flag == unix.CLONE_NEWIPC && !ns.IPC:
			return nil, badSysctl("%s requires an ipc namespace of the pod", path)
		}
		settings = append(settings, setting{path: path, value: v, flag: flag})
	}
	sort.Slice(settings, func(i, j int) bool { return settings[i].path < settings[j].path })
	return settings, nil
}

// sysctlPath converts the name of a sysctl to a path. As in sysctl(8), the first '.' or '/' is the separator, and the other one is a part of
// names, such as that of the interface eth0.1.
func sysctlPath(name string) string {
	i := strings.IndexAny(name, "./")
	if i < 0 || name[i] == '/' {
		return strings.Trim(name, "/")
	}
	swap := func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}
	return strings.Map(swap, name)
}

// sysctlNamespace returns the clone flag of the namespace of a sysctl, or 0 if it is global.
func sysctlNamespace(path string) int {
	switch {
	case strings.HasPrefix(path, "net/"):
		return unix.CLONE_NEWNET
	case path == "kernel/sem",
		strings.HasPrefix(path, "kernel/shm"),
		strings.HasPrefix(path, "kernel/msg"),
		strings.HasPrefix(path, "fs/mqueue/"):
		return unix.CLONE_NEWIPC
	}
	return 0
}
