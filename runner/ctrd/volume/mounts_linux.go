package volume

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/image/local"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/trees"
	"monopod/runner/ctrd/volumes"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
)

// Mounts prepares what single mounts of one container need: subPaths, VOLUMEs of its image, mount propagation.
type Mounts struct {
	Dirs   layout.Dirs
	Images *imagestore.Store
	OCI    *oci.Runtimes
	Log    *slog.Logger
}

// PrepareMounts prepares single mounts of one container. If it fails, it removes them.
func (r *Mounts) PrepareMounts(ctx context.Context, in spec.Input, q Request) (_ spec.Input, err error) {
	defer func() {
		if err != nil {
			r.DropMounts(in)
		}
	}()
	c := q.Container
	if WantsRecursiveReadOnly(c) {
		rt, err := r.OCI.RuntimeOf(ctx, q.Sandbox)
		if err != nil {
			return in, fault.Step(runner.ReasonCreateContainerError, err)
		}
		in.Host.RecursiveReadOnly = r.OCI.SupportsRecursiveReadOnly(ctx, rt)
	}
	if err := r.checkPropagation(in, c); err != nil {
		return in, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	paths, err := build.SubPaths(in)
	if err != nil {
		return in, fault.Step(runner.ReasonCreateContainerConfigError, err)
	}
	in.SubPaths = map[int]string{}
	for i, sub := range paths {
		if in.SubPaths[i], err = r.bindSubPath(in, c.VolumeMounts[i].Name, sub); err != nil {
			return in, fault.Step(runner.ReasonCreateContainerConfigError,
				fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", c.VolumeMounts[i].Name, c.Name, err))
		}
	}
	anonymous, err := build.ImageVolumePaths(in)
	if err == nil && len(anonymous) > 0 {
		in.ImageVolumes, err = r.Images.Local.CopyOut(ctx, local.Copies{
			Image: q.Image, Dir: r.Dirs.ImageVolumeDir(string(in.Pod.UID), in.ID), Paths: anonymous,
			Limit: runner.ContainerDiskLimit(&in.Pod.Spec, c.Name),
		})
	}
	return in, fault.Step(runner.ReasonCreateContainerError, fault.Wrap("volumes of the image", err))
}

// DropMounts unmounts what PrepareMounts has mounted for a container that was not created.
func (r *Mounts) DropMounts(in spec.Input) {
	r.DropSubPaths(in.ID)
	if err := trees.Remove(r.Dirs.ImageVolumeDir(string(in.Pod.UID), in.ID)); err != nil {
		r.Log.Warn("remove volumes of an image", "container", in.ID, "err", err)
	}
}

// bindSubPath bind-mounts a part of a volume at a path that containers cannot change, and returns the path.
func (r *Mounts) bindSubPath(in spec.Input, volume, sub string) (string, error) {
	v := in.Volumes[volume]
	open := volumes.MakeBelow
	if v.ReadOnly {
		open = volumes.OpenBelow
	}
	f, err := open(v.HostPath, sub)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	dir := r.Dirs.SubPathDir(in.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	target := filepath.Join(dir, strconv.Itoa(len(trees.Names(dir))))
	return target, volumes.Bind(f, target)
}

// DropSubPaths unmounts the subPaths of a container. What fails is repeated at the next startup.
func (r *Mounts) DropSubPaths(container string) {
	if err := volumes.Unbind(r.Dirs.SubPathDir(container)); err != nil {
		r.Log.Warn("unmount subPaths", "container", container, "err", err)
	}
}

// checkPropagation checks that volumes with mount propagation are on shared mounts. Directories of pods are made shared; for
// others, which outlive the pod, that is up to the administrator.
func (r *Mounts) checkPropagation(in spec.Input, c *corev1.Container) error {
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone {
			continue
		}
		path := in.Volumes[m.Name].HostPath
		if strings.HasPrefix(path, r.Dirs.Root+"/") && !strings.HasPrefix(path, r.Dirs.VolumesDir()+"/") {
			if err := makeShared(path); err != nil {
				return fmt.Errorf("volume %q: %w", m.Name, err)
			}
			continue
		}
		at, err := mountOf(path)
		if err != nil {
			return fmt.Errorf("volume %q: %w", m.Name, err)
		}
		shared, slave := strings.Contains(at.Optional, "shared:"), strings.Contains(at.Optional, "master:")
		switch {
		case shared:
		case *m.MountPropagation == corev1.MountPropagationBidirectional:
			return fmt.Errorf("path %q is mounted on %q but it is not a shared mount", path, at.Mountpoint)
		case !slave:
			return fmt.Errorf("path %q is mounted on %q but it is not a shared or slave mount", path, at.Mountpoint)
		}
	}
	return nil
}

// mountOf returns the mount that a path is on.
func mountOf(path string) (*mountinfo.Info, error) {
	infos, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var best *mountinfo.Info
	for _, i := range infos { // of several mounts at one path the last is on top
		if best == nil || len(i.Mountpoint) >= len(best.Mountpoint) {
			best = i
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s is on no mount", path)
	}
	return best, nil
}

// makeShared makes a directory a shared mount, unless it is one.
func makeShared(path string) error {
	at, err := mountOf(path)
	if err != nil || strings.Contains(at.Optional, "shared:") {
		return err
	}
	if at.Mountpoint != path {
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to itself: %w", path, err)
		}
	}
	if err := unix.Mount("", path, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts of %s: %w", path, err)
	}
	return nil
}

// WantsRecursiveReadOnly reports whether a container requests recursive read-only mounts. Only then is the OCI runtime asked
// whether it supports them.
func WantsRecursiveReadOnly(c *corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled
	})
}
