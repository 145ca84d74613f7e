package volumes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath keeps the resolution of a path inside of a volume, whoever changes the volume meanwhile: a link or a ".."
// that leads out of it is an error of the kernel, and links of /proc are none at all.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// resolveTries bounds how often a resolution is repeated that the kernel gave up because of a rename beside it.
const resolveTries = 128

// OpenBelow opens what is at sub in a volume, for mounting only (O_PATH). Links are followed as long as they stay in
// the volume, absolute ones too when they point into it. An error matches fs.ErrNotExist when nothing is there.
func OpenBelow(volume, sub string) (*os.File, error) {
	root, err := openRoot(volume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := openIn(root, sub, unix.O_PATH, beneath)
	if !errors.Is(err, unix.EXDEV) {
		return f, err
	}
	// It leads out: by an absolute link perhaps, which names a place in the volume as the machine sees it.
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
	return openIn(root, inside, unix.O_PATH, beneath|unix.RESOLVE_NO_SYMLINKS)
}

// ReadBelow reads a regular file of a volume, at most limit bytes of it: more is an error. Whoever writes the volume may
// be trusted with nothing: nothing is opened that could block, or that lies elsewhere.
func ReadBelow(volume, sub string, limit int) ([]byte, error) {
	place, err := OpenBelow(volume, strings.TrimLeft(sub, "/"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = place.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", place.Fd()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(text) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return text, err
}

// MakeBelow is OpenBelow that makes directories which do not exist, with the mode of the volume's root. They belong to
// root, and to the group of the directory above if that has the setgid bit.
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

// makeDirs makes the missing directories of sub, step by step. Only in what it opened before it makes the next: a
// directory swapped for a link at that moment is either still in the volume or not entered.
func makeDirs(volume, sub string) error {
	at, err := openRoot(volume)
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
	for done < len(names) { // as far as it exists: links may be among it
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

// makeDir makes one directory in another and opens it. One that somebody else makes at the same time will do.
func makeDir(parent *os.File, name string, mode uint32) (*os.File, error) {
	err := unix.Mkdirat(int(parent.Fd()), name, mode&0o777)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	dir, err := openIn(parent, name, unix.O_DIRECTORY|unix.O_RDONLY, beneath|unix.RESOLVE_NO_SYMLINKS)
	if err != nil || !made {
		return dir, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		_ = dir.Close()
		return nil, err
	}
	// The umask must not matter, and what the kernel inherited stays.
	if err := unix.Fchmod(int(dir.Fd()), mode|st.Mode&unix.S_ISGID); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

func openRoot(volume string) (*os.File, error) {
	fd, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: volume, Err: err}
	}
	return os.NewFile(uintptr(fd), volume), nil
}

func openIn(dir *os.File, name string, flags int, resolve uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(int(dir.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && try < resolveTries:
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("%s leads out of the volume: %w", name, err)
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
}

// Bind mounts an open file or directory, and what is mounted below it, at target, which must not exist. It is the very
// file that was opened, wherever its name points to by now.
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
	source := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
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

// Unbind undoes all Binds to targets directly in dir, and removes dir. It never removes anything but empty mount
// points: while something is mounted on one, the kernel refuses that.
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
		// Taken out of its peer group first: else what is mounted below would be unmounted in the original, too.
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
