// Package cgroup owns the cgroups of pods: their paths in either hierarchy, their values, and the CPUs that containers have
// exclusively. It must not compute limits, which runner/spec does, and knows tasks only by their limits.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/pause"
	"monopod/runner/spec"
)

// Tree locates the cgroups of our pods: one directory in the unified hierarchy, or one in each hierarchy of v1.
type Tree struct {
	spec.Cgroups
	// roots are the mount points of all hierarchies.
	roots []string
	// Controllers are the mount points of v1's controllers by name; nil with only the unified hierarchy.
	Controllers map[string]string
	// Slices creates cgroups through systemd; nil with the cgroupfs driver.
	Slices *systemd
}

// Find finds the mounted hierarchies for a layout.
func Find(layout spec.Cgroups) (Tree, error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return Tree{}, fmt.Errorf("read mounts: %w", err)
	}
	c := Tree{Cgroups: layout}
	unified := slices.ContainsFunc(infos, IsUnified)
	if !unified {
		c.Controllers = map[string]string{}
	}
	for _, i := range infos {
		c.roots = append(c.roots, i.Mountpoint)
		if i.FSType == "cgroup2" || unified {
			continue
		}
		for name := range strings.SplitSeq(i.VFSOptions, ",") {
			if _, seen := c.Controllers[name]; !seen {
				c.Controllers[name] = i.Mountpoint
			}
		}
	}
	if layout.Driver == spec.SystemdDriver {
		c.Slices, err = newSystemd(unified)
	}
	return c, err
}

// IsUnified reports whether a mount makes the unified hierarchy the only one.
func IsUnified(i *mountinfo.Info) bool {
	return i.FSType == "cgroup2" && i.Mountpoint == UnifiedRoot
}

// UnifiedRoot is the mount point of the unified hierarchy.
const UnifiedRoot = "/sys/fs/cgroup"

// AllPods is the cgroup of all our pods.
func (c Tree) AllPods() string { return c.Class(corev1.PodQOSGuaranteed) }

// parents returns the cgroups that contain pod cgroups.
func (c Tree) parents() []string {
	return []string{c.AllPods(), c.Class(corev1.PodQOSBurstable), c.Class(corev1.PodQOSBestEffort)}
}

// slice returns the systemd unit of a cgroup. Pods that were created with the other driver keep their directories.
func (c Tree) slice(cgroup string) (unit string, ok bool) {
	return filepath.Base(cgroup), c.Slices != nil && strings.HasSuffix(cgroup, ".slice")
}

// killTimeout is how long killed processes get to leave a cgroup.
const killTimeout = 2 * time.Second

// Remove kills the remaining processes of a cgroup, and removes it with all its children in every hierarchy.
func (c Tree) Remove(ctx context.Context, cgroup string) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	var errs []error
	for _, root := range c.roots {
		errs = append(errs, removeCgroup(ctx, filepath.Join(root, cgroup)))
	}
	if unit, ok := c.slice(cgroup); ok {
		errs = append(errs, c.Slices.stop(unit))
	}
	return errors.Join(errs...)
}

func removeCgroup(ctx context.Context, dir string) error {
	for {
		err := RemoveTree(dir)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		killCgroup(dir)
		// A killed process leaves the cgroup when it is reaped, which is not notified.
		if !pause.For(ctx, 5*time.Millisecond) {
			return err
		}
	}
}

// RemoveTree removes the directories, innermost first. The kernel removes the files in them.
func RemoveTree(dir string) error {
	if err := unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
		return nil // usually it is empty, or the OCI runtime has removed it
	}
	dirs, err := cgroupDirs(dir)
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", d, err)
		}
	}
	return nil
}

func cgroupDirs(dir string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}

// killCgroup kills every process in and below a cgroup.
func killCgroup(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	dirs, _ := cgroupDirs(dir)
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			continue
		}
		for pid := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = unix.Kill(n, unix.SIGKILL)
			}
		}
	}
}

// Pods returns the existing cgroups of pods.
func (c Tree) Pods() []string {
	seen := map[string]bool{}
	for _, root := range c.roots {
		for _, parent := range append(c.parents(), c.Root) {
			entries, err := os.ReadDir(filepath.Join(root, parent))
			if err != nil {
				continue
			}
			for _, e := range entries {
				if e.IsDir() && isPodCgroup(e.Name()) {
					seen[filepath.Join("/", parent, e.Name())] = true
				}
			}
		}
	}
	var out []string
	for path := range seen {
		out = append(out, path)
	}
	return out
}

// isPodCgroup reports whether a cgroup has a name like that of a pod's.
func isPodCgroup(name string) bool {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		return strings.HasPrefix(slice[strings.LastIndexByte(slice, '-')+1:], "pod")
	}
	return strings.HasPrefix(name, "pod")
}

// RemoveEmpty removes a cgroup unless it contains processes, which may be those of another instance.
func (c Tree) RemoveEmpty(cgroup string) error {
	var errs []error
	busy := false
	for _, root := range c.roots {
		err := RemoveTree(filepath.Join(root, cgroup))
		if errors.Is(err, unix.EBUSY) {
			busy = true
			continue
		}
		errs = append(errs, err)
	}
	if unit, ok := c.slice(cgroup); ok && !busy {
		errs = append(errs, c.Slices.stop(unit))
	}
	return errors.Join(errs...)
}

// Pids returns the processes in and below a cgroup.
func (c Tree) Pids(cgroup string) (pids []int) {
	for _, root := range c.roots {
		dirs, _ := cgroupDirs(filepath.Join(root, cgroup)) // a missing cgroup is empty
		for _, dir := range dirs {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for text := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
		if len(pids) > 0 {
			return pids // all hierarchies have the same processes
		}
	}
	return nil
}
