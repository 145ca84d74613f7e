package build

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// capPrefix starts the names of capabilities everywhere but in manifests.
const capPrefix = "CAP_"

// defaultCapabilities are those of a container that asks for nothing.
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	}
}

// knownCapabilities are all that Linux has, without the prefix.
const knownCapabilities = " AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN" +
	" DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD" +
	" NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYS_ADMIN SYS_BOOT SYS_CHROOT" +
	" SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG SYSLOG WAKE_ALARM "

// capabilities returns the capabilities of a container. "All" first, in either list, then single additions, then
// single removals. available is what this process may give. Defaults beyond that are left out, but one that is
// asked for by name is an error: runc would only fail later, or ignore it.
func capabilities(available []string, sec security) ([]string, error) {
	if sec.privileged {
		return sorted(available), nil
	}
	add, err := capabilityNames(sec.add, "add")
	if err != nil {
		return nil, err
	}
	drop, err := capabilityNames(sec.drop, "drop")
	if err != nil {
		return nil, err
	}
	caps := slices.DeleteFunc(defaultCapabilities(), func(c string) bool { return !slices.Contains(available, c) })
	if slices.Contains(add, capPrefix+"ALL") {
		caps = slices.Clone(available)
	}
	if slices.Contains(drop, capPrefix+"ALL") {
		caps = nil
	}
	for _, c := range add {
		switch {
		case c == capPrefix+"ALL" || slices.Contains(caps, c):
		case !slices.Contains(available, c):
			return nil, fmt.Errorf("securityContext.capabilities.add: monopod does not have %s on this machine and cannot grant it", c)
		default:
			caps = append(caps, c)
		}
	}
	caps = slices.DeleteFunc(caps, func(c string) bool { return slices.Contains(drop, c) })
	return sorted(caps), nil
}

// capabilityNames writes names the kernel's way. A name that does not exist is refused: a removal with a typo would
// silently leave the capability in place.
func capabilityNames(list []corev1.Capability, field string) ([]string, error) {
	names := make([]string, 0, len(list))
	for _, c := range list {
		name := strings.TrimPrefix(strings.ToUpper(string(c)), capPrefix)
		if name != "ALL" && !strings.Contains(knownCapabilities, " "+name+" ") {
			return nil, fmt.Errorf("securityContext.capabilities.%s: %q is not a capability", field, string(c))
		}
		names = append(names, capPrefix+name)
	}
	return names, nil
}

// sorted returns a sorted copy, so that the order in a manifest does not matter.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
