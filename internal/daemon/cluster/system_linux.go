package cluster

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// systemInfo returns what a Node reports about its machine. Fields that cannot be read stay empty.
func systemInfo(version, containerd string) corev1.NodeSystemInfo {
	info := corev1.NodeSystemInfo{
		KubeletVersion: version, ContainerRuntimeVersion: "containerd://" + containerd, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		BootID: line("/proc/sys/kernel/random/boot_id"), MachineID: line("/etc/machine-id"), SystemUUID: line("/sys/class/dmi/id/product_uuid"),
		OSImage: osImage(),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		info.KernelVersion = unix.ByteSliceToString(u.Release[:])
	}
	if info.SystemUUID == "" { // no such firmware
		info.SystemUUID = info.MachineID
	}
	return info
}

// line is the content of a small file.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// osImage is what the system calls itself.
func osImage() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		for l := range strings.Lines(line(path)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
				return strings.Trim(name, `"'`)
			}
		}
	}
	return runtime.GOOS
}
