// Package machine reads the facts about this machine that the specs of containers depend on. It must not change anything, except that it creates
// the cgroup of all pods where the kernel shows only there whether it can limit swap.
package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/cgroup"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
)

// CapSysResource is the capability to lower oom_score_adj.
const CapSysResource = "CAP_SYS_RESOURCE"

// sysfs is where the kernel shows devices and cgroups.
const sysfs = "/sys"

// Facts reads all facts that specs depend on.
func Facts(cgroups spec.Cgroups, root string) (spec.Host, error) {
	h := spec.Host{
		Cgroups:        cgroups,
		MilliCPU:       int64(runtime.NumCPU()) * 1000,
		MinOOMScoreAdj: -1000,
		PageSize:       int64(os.Getpagesize()),
		MaskedPaths:    thermalThrottlePaths(sysfs),
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return h, fmt.Errorf("memory of this machine: %w", err)
	}
	h.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	h.SwapBytes = int64(info.Totalswap) * int64(info.Unit)
	var err error
	if h.Capabilities, err = boundingSet(); err != nil {
		return h, fmt.Errorf("capabilities: %w", err)
	}
	if h.CgroupV2, h.CgroupMountOptions, err = cgroupMode(); err != nil {
		return h, fmt.Errorf("cgroups: %w", err)
	}
	h.SwapAccounting = swapAccounting(sysfs, h.CgroupV2, h.Cgroups)
	h.HugePageSizes = hugePageSizes(sysfs, h.CgroupV2)
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err == nil {
		h.EphemeralStorageBytes = int64(st.Blocks * uint64(st.Bsize))
	}
	if !slices.Contains(h.Capabilities, CapSysResource) {
		h.MinOOMScoreAdj = ownOOMScoreAdj()
	}
	return h, nil
}

// boundingSet returns the names of the capabilities that this process can pass on.
func boundingSet() ([]string, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	m, err := cap.ParseProcPIDStatus(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	names, _ := cap.FromBitmap(m[cap.Bounding])
	return names, nil
}

// cgroupMode reports whether the unified hierarchy is the only one, and which of its mount options a container's mount could undo.
func cgroupMode() (unified bool, options []string, err error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return false, nil, err
	}
	return modeOf(infos)
}

func modeOf(infos []*mountinfo.Info) (unified bool, options []string, err error) {
	for _, i := range infos {
		if !cgroup.IsUnified(i) {
			continue
		}
		for o := range strings.SplitSeq(i.VFSOptions, ",") {
			if o == "nsdelegate" || o == "memory_recursiveprot" {
				options = append(options, o)
			}
		}
		return true, options, nil
	}
	if len(infos) == 0 {
		return false, nil, errors.New("no cgroup file system is mounted")
	}
	return false, nil, nil
}

// swapAccounting reports whether the kernel can limit swap.
func swapAccounting(sys string, unified bool, c spec.Cgroups) bool {
	if !unified {
		_, err := os.Stat(filepath.Join(sys, "fs", "cgroup", "memory", "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	// The root cgroup, which this process may be in, has no limits; its children show whether they exist.
	dir := filepath.Join(sys, "fs", "cgroup")
	if found, _ := filepath.Glob(filepath.Join(dir, "*", "memory.swap.max")); len(found) > 0 || c.Driver == spec.SystemdDriver {
		return len(found) > 0
	}
	for name := range strings.SplitSeq(strings.Trim(c.Root, "/"), "/") {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0o644) // may be enabled already
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return false
		}
	}
	_, err := os.Stat(filepath.Join(dir, "memory.swap.max"))
	return err == nil
}

// hugePageSizes returns the huge page sizes, in bytes, that the kernel can limit.
func hugePageSizes(sys string, unified bool) []int64 {
	if unified {
		b, _ := os.ReadFile(filepath.Join(sys, "fs", "cgroup", "cgroup.controllers"))
		if !slices.Contains(strings.Fields(string(b)), "hugetlb") {
			return nil
		}
	} else if found, _ := filepath.Glob(filepath.Join(sys, "fs", "cgroup", "*", "hugetlb.*.limit_in_bytes")); len(found) == 0 {
		return nil
	}
	var sizes []int64
	for _, name := range trees.Names(filepath.Join(sys, "kernel", "mm", "hugepages")) {
		if kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(name, "hugepages-"), "kB"), 10, 64); err == nil {
			sizes = append(sizes, kb<<10)
		}
	}
	return sizes
}

// ownOOMScoreAdj returns the value of this process, the lowest that it may set without CAP_SYS_RESOURCE.
func ownOOMScoreAdj() int {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// thermalThrottlePaths are masked in containers.
func thermalThrottlePaths(sys string) []string {
	paths, _ := filepath.Glob(filepath.Join(sys, "devices", "system", "cpu", "cpu[0-9]*", "thermal_throttle"))
	return paths
}
