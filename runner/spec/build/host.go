package build

import (
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod/runner/spec"
)

// maskedPaths are hidden from containers that are not privileged; missing ones do not matter to the runtimes.
func maskedPaths(h spec.Host) []string {
	return slices.Concat([]string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}, h.MaskedPaths)
}

// readonlyPaths cannot be written to by containers that are not privileged.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// hostDevices lists devices the OCI way.
func hostDevices(all []spec.Device) []specs.LinuxDevice {
	out := make([]specs.LinuxDevice, 0, len(all))
	for _, d := range all {
		mode, uid, gid := os.FileMode(d.FileMode), d.UID, d.GID
		out = append(out, specs.LinuxDevice{
			Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: &mode, UID: &uid, GID: &gid,
		})
	}
	return out
}
