package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// OpenBelow opens sub in a volume, for mounting only (O_PATH). Links are followed within the volume, also absolute ones that point
// into it. The error matches fs.ErrNotExist if sub does not exist.
func OpenBelow(volume, sub string) (*os.File, error) {
	root, err := foreign.Dir(volume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := find(root, sub, foreign.Within)
	if !errors.Is(err, unix.EXDEV) {
		return f, err
	}
	// It leads out of the volume: perhaps by an absolute link, which names a path in the volume as the host sees it.
	place, rerr := filepath.EvalSymlinks(filepath.Join(volume, sub))
	if rerr != nil {
		return nil, err
	}
	base, rerr := filepath.EvalSymlinks(volume)
	if rerr != nil {
		return nil, err
	}
	inside, ok := strings.CutPrefix(place, strings.TrimSuffix(base, "/")+"/")
	if !ok {
		return nil, err
	}
	return find(root, inside, foreign.None)
}

// ReadBelow reads a regular file of a volume; more than limit bytes are an error. The content of the volume is not trusted: it
// opens nothing that could block, or that is outside.
func ReadBelow(volume, sub string, limit int) ([]byte, error) {
	place, err := OpenBelow(volume, strings.TrimLeft(sub, "/"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = place.Close() }()
	return foreign.Read(place, limit)
}

// MakeBelow is OpenBelow but creates missing directories, with the mode of the volume's root. They belong to root, and to the
// group of their parent if that has the setgid bit.
func MakeBelow(volume, sub string) (*os.File, error) {
	f, err := OpenBelow(volume, sub)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := makeDirs(volume, sub); err != nil {
		return nil, err
	}
	return OpenBelow(volume, sub)
}

// makeDirs creates the missing directories of sub one by one, each in the parent that it has opened: a directory that is swapped
// for a link meanwhile is either still in the volume or not entered.
func makeDirs(volume, sub string) error {
	at, err := foreign.Dir(volume)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return err
	}
	names := strings.Split(filepath.Clean(sub), "/")
	done := 0
	for done < len(names) { // the existing part, which may contain links
		next, err := OpenBelow(volume, filepath.Join(names[:done+1]...))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		_ = at.Close()
		at = next
		done++
	}
	for _, name := range names[done:] {
		next, err := makeDir(at, name, st.Mode&0o7777)
		if err != nil {
			return fmt.Errorf("make directory %s: %w", name, err)
		}
		_ = at.Close()
		at = next
	}
	return nil
}

// makeDir creates one directory in another and opens it. It may have been created concurrently.
func makeDir(parent *os.File, name string, mode uint32) (*os.File, error) {
	err := unix.Mkdirat(int(parent.Fd()), name, mode&0o777)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	dir, err := foreign.FindDir(parent, name, foreign.None)
	if err != nil || !made {
		return dir, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		_ = dir.Close()
		return nil, err
	}
	// The mode is independent of the umask, and keeps the inherited setgid bit.
	if err := foreign.Chmod(dir, mode|st.Mode&unix.S_ISGID); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// find finds a file of a volume, even if that changes concurrently.
func find(root *os.File, name string, links foreign.Links) (*os.File, error) {
	f, err := foreign.Find(root, name, links)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s leads out of the volume: %w", name, err)
	}
	return f, err
}

// Bind bind-mounts an open file or directory, with all mounts below it, at target, which must not exist. It mounts the file that
// was opened, whatever its path refers to now.
func Bind(f *os.File, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	if err := makeMountPoint(target, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	if err := unix.Mount(foreign.Path(f), target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		_ = os.Remove(target)
		return fmt.Errorf("bind mount: %w", err)
	}
	return nil
}

func makeMountPoint(target string, dir bool) error {
	if dir {
		return os.Mkdir(target, 0o700)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Unbind unmounts all Binds to targets directly in dir, and removes dir. It removes only empty mount points: the kernel refuses
// others.
func Unbind(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, unbind(filepath.Join(dir, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(dir)
}

func unbind(target string) error {
	for {
		// First made private: otherwise mounts below it would be unmounted in the original, too.
		err := unix.Mount("", target, "", unix.MS_REC|unix.MS_PRIVATE, "")
		if errors.Is(err, unix.EINVAL) {
			break // not a mount point
		}
		if err == nil {
			err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return os.Remove(target)
}
