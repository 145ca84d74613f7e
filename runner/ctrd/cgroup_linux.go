package ctrd

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
)

// cgroups knows where the cgroups of our pods are: one directory in the unified hierarchy, or one in each of v1's.
type cgroups struct {
	// roots are the mount points of all hierarchies.
	roots []string
	// parent is the cgroup of all our pods, e.g. /monopod.
	parent string
}

func findCgroups(parent string) (cgroups, error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return cgroups{}, fmt.Errorf("read mounts: %w", err)
	}
	c := cgroups{parent: filepath.Join("/", parent)}
	for _, i := range infos {
		c.roots = append(c.roots, i.Mountpoint)
	}
	return c, nil
}

// pod is the cgroup of a pod, container that of one of its containers, relative to the hierarchies.
func (c cgroups) pod(uid string) string { return filepath.Join(c.parent, "pod"+uid) }

func (c cgroups) container(uid, id string) string { return filepath.Join(c.pod(uid), id) }

// cgroupPatience is how long killed processes get to leave a cgroup.
const cgroupPatience = 2 * time.Second

// remove kills what is left in a cgroup, and removes it with all below in every hierarchy.
func (c cgroups) remove(ctx context.Context, cgroup string) error {
	ctx, cancel := context.WithTimeout(ctx, cgroupPatience)
	defer cancel()
	var errs []error
	for _, root := range c.roots {
		errs = append(errs, removeCgroup(ctx, filepath.Join(root, cgroup)))
	}
	return errors.Join(errs...)
}

func removeCgroup(ctx context.Context, dir string) error {
	for {
		err := removeCgroupTree(dir)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		killCgroup(dir)
		// A process that was killed leaves when it is reaped, which nothing reports.
		if !sleep(ctx, 5*time.Millisecond) {
			return err
		}
	}
}

// removeCgroupTree removes the directories, the innermost first; their files are the kernel's.
func removeCgroupTree(dir string) error {
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

// uids returns the pods that have a cgroup.
func (c cgroups) uids() []string {
	seen := map[string]bool{}
	for _, root := range c.roots {
		entries, err := os.ReadDir(filepath.Join(root, c.parent))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if uid, ok := strings.CutPrefix(e.Name(), "pod"); ok && e.IsDir() {
				seen[uid] = true
			}
		}
	}
	var out []string
	for uid := range seen {
		out = append(out, uid)
	}
	return out
}

// removeEmpty removes a cgroup unless there are processes in it: those of another instance, perhaps.
func (c cgroups) removeEmpty(cgroup string) error {
	var errs []error
	for _, root := range c.roots {
		if err := removeCgroupTree(filepath.Join(root, cgroup)); !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
