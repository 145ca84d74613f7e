package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/fsgroup"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec/volumeplan"
)

// prepareEmptyDir creates the directory or the mount; an existing one is kept. recorded is the manifest that it was created by:
// after an edit of its medium the volume is a new one, for the containers that are created after the edit.
func (r *Pods) prepareEmptyDir(ctx context.Context, uid string, p volumeplan.Plan, recorded *manifests.Pod) error {
	path, e := r.Dirs.EmptyDir(uid, p.Name), p.EmptyDir
	there, err := EmptyDirAt(path)
	if err != nil {
		return err
	}
	switch {
	case there == Nothing:
	case there != wantedAt(e):
		if err := clearEmptyDir(path, there); err != nil {
			return err
		}
	default:
		if err := keepEmptyDir(path, e, recordedMode(recorded, p.Name)); err != nil {
			return err
		}
		return regroup(ctx, path, e.GID)
	}
	switch wantedAt(e) {
	case tmpfs:
		err = trees.MountTmpfs(path, fmt.Sprintf("mode=%04o,size=%d", modeBits(e), e.SizeBytes), 0)
	case hugetlbfs:
		err = mountHugePages(path, e)
	default:
		return makeEmptyDir(path, e)
	}
	return errors.Join(err, ownEmptyDir(path, e))
}

// makeEmptyDir creates a directory on disk. It is completed under another name first, because an existing directory is never
// changed.
func makeEmptyDir(path string, e *volumeplan.EmptyDir) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		return err
	}
	if err := ownEmptyDir(tmp, e); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// mountHugePages mounts a hugetlbfs with pages of the kernel's pool.
func mountHugePages(path string, e *volumeplan.EmptyDir) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=%04o,pagesize=%d", modeBits(e), e.PageBytes)
	if e.SizeBytes > 0 {
		options += fmt.Sprintf(",size=%d", e.SizeBytes)
	}
	if err := unix.Mount("nodev", path, "hugetlbfs", 0, options); err != nil {
		return fmt.Errorf("mount hugetlbfs on %s: %w", path, err)
	}
	return nil
}

// medium is the magic number of the file system of an emptyDir; Disk stands for all others.
type medium int64

// The media of emptyDir volumes. Nothing stands for a missing directory.
const (
	Nothing   medium = -1
	Disk      medium = 0
	tmpfs     medium = unix.TMPFS_MAGIC
	hugetlbfs medium = unix.HUGETLBFS_MAGIC
)

func wantedAt(e *volumeplan.EmptyDir) medium {
	switch {
	case e.Memory:
		return tmpfs
	case e.PageBytes > 0:
		return hugetlbfs
	}
	return Disk
}

// EmptyDirAt returns the medium of an existing emptyDir, or Nothing.
func EmptyDirAt(path string) (medium, error) {
	var st unix.Statfs_t
	switch err := unix.Statfs(path, &st); {
	case errors.Is(err, fs.ErrNotExist):
		return Nothing, nil
	case err != nil:
		return Nothing, fmt.Errorf("stat %s: %w", path, err)
	}
	if m := medium(uint32(st.Type)); (m == tmpfs || m == hugetlbfs) && trees.IsMountPoint(path) {
		return m, nil
	}
	return Disk, nil
}

// clearEmptyDir removes an emptyDir for another medium. Running containers keep what they have mounted.
func clearEmptyDir(path string, there medium) error {
	if there == Disk {
		old := path + ".old"
		return errors.Join(trees.Remove(old), os.Rename(path, old))
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}

// keepEmptyDir applies edits of size and mode to an existing emptyDir. A mode that a container has set stays unless that of
// the manifest changes.
func keepEmptyDir(path string, e *volumeplan.EmptyDir, was fs.FileMode) error {
	if e.Memory {
		if err := resizeTmpfs(path, e.SizeBytes); err != nil {
			return err
		}
	}
	if was != e.Mode {
		return ownEmptyDir(path, e)
	}
	return nil
}

// resizeTmpfs changes the size of a tmpfs. The kernel refuses less than what is used.
func resizeTmpfs(path string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	if block := uint64(st.Bsize); st.Blocks == (uint64(size)+block-1)/block {
		return nil
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("change the size to %d: %w", size, err)
	}
	return nil
}

// recordedMode returns the mode of a volume in the recorded manifest.
func recordedMode(recorded *manifests.Pod, volume string) fs.FileMode {
	for i := range recorded.Object.Spec.Volumes {
		if v := &recorded.Object.Spec.Volumes[i]; v.Name == volume && v.EmptyDir != nil {
			return volumeplan.EmptyDirMode(v.EmptyDir)
		}
	}
	return volumeplan.EmptyDirMode(&corev1.EmptyDirVolumeSource{})
}

// modeBits returns the mode as the kernel encodes it.
func modeBits(e *volumeplan.EmptyDir) uint32 {
	bits := uint32(e.Mode.Perm())
	if e.Mode&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

// ownEmptyDir sets the mode of an emptyDir, and its group to fsGroup, with full access.
func ownEmptyDir(path string, e *volumeplan.EmptyDir) error {
	if e.GID == nil {
		return os.Chmod(path, e.Mode)
	}
	if err := os.Lchown(path, -1, int(*e.GID)); err != nil {
		return err
	}
	return os.Chmod(path, e.Mode|0o770|fs.ModeSetgid)
}

// regroup changes the group of an existing emptyDir after an edit. Usually it finds nothing to change: the directory was created
// with the group.
func regroup(ctx context.Context, path string, gid *int64) error {
	if gid == nil {
		return nil
	}
	return fsgroup.Apply(ctx, path, fsgroup.Owner{GID: *gid, OnRootMismatch: true})
}
