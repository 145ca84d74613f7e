// Package foreign opens what is not ours: files below directories that containers write to, that images bring, or that other users change.
//
// Each name may become anything between two system calls. Opening a FIFO blocks, opening a device may start it, a link may lead to a file of
// the host, and files of the kernel block, never end, or change something when they are read. So a file is first found (O_PATH), which has no
// effect on it, then looked at, and opened only if it is a regular file or a directory; what was looked at is what is opened. The package
// must not know pods, and starts no goroutines. A file on a network file system whose server is down still blocks.
package foreign

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Errors of files that are not opened.
var (
	ErrSpecial  = errors.New("not a regular file")
	ErrKernel   = errors.New("not a regular file, but a virtual file of the kernel")
	ErrTooLarge = errors.New("too large")
	// ErrLeadsOut is the error of a link, or of "..", that leads out of the directory.
	ErrLeadsOut = errors.New("a link leads out of the directory")
)

// Links is how links in a name are resolved.
type Links uint64

// Within follows links that stay in the directory, Rooted follows them as a process with that root directory would, and None refuses them.
// Itself is None, but finds a link that is the last name. OneDevice is added to stay on the file system of the directory.
const (
	Within    Links = unix.RESOLVE_BENEATH
	Rooted    Links = unix.RESOLVE_IN_ROOT
	None      Links = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS
	Itself    Links = None | nofollow
	OneDevice Links = unix.RESOLVE_NO_XDEV

	nofollow Links = 1 << 63
)

// findTries limits how often a resolution is repeated that failed because of a concurrent rename.
const findTries = 128

// Dir finds a directory by its path, which must be ours; only what is below it may be foreign.
func Dir(path string) (*os.File, error) { return At(path, unix.O_DIRECTORY) }

// At finds a file by a path that a user names, or whose directory is ours. Links are followed, the last one not with unix.O_NOFOLLOW.
func At(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Find finds a file below a directory. It can be looked at, mounted, and passed to the other functions.
func Find(dir *os.File, name string, links Links) (*os.File, error) {
	return find(dir, name, links, 0)
}

// FindDir is Find for a directory.
func FindDir(dir *os.File, name string, links Links) (*os.File, error) {
	return find(dir, name, links, unix.O_DIRECTORY)
}

func find(dir *os.File, name string, links Links, flags uint64) (*os.File, error) {
	if links&nofollow != 0 {
		flags |= unix.O_NOFOLLOW
	}
	how := &unix.OpenHow{Flags: flags | unix.O_PATH | unix.O_CLOEXEC, Resolve: uint64(links&^nofollow) | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(int(dir.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && try < findTries: // a rename meanwhile
			continue
		case errors.Is(err, unix.EXDEV):
			err = fmt.Errorf("%w: %w", ErrLeadsOut, err)
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
}

// Path is a path to a file that was found, whatever has become of its name. The file must stay open meanwhile.
func Path(place *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(place.Fd())) }

// Chmod sets the mode of a file that was found, as the kernel encodes it; not of a link.
func Chmod(place *os.File, mode uint32) error {
	if err := unix.Chmod(Path(place), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: place.Name(), Err: err}
	}
	return nil
}

// Chgrp sets the group of a file that was found.
func Chgrp(place *os.File, gid int) error {
	if err := unix.Fchownat(int(place.Fd()), "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "chgrp", Path: place.Name(), Err: err}
	}
	return nil
}

// SetXattr sets an extended attribute of a file that was found, also of a link.
func SetXattr(place *os.File, name, value string) error {
	if err := unix.Setxattr(Path(place), name, []byte(value), 0); err != nil {
		return &fs.PathError{Op: "setxattr", Path: place.Name(), Err: err}
	}
	return nil
}

// Create creates a file in a directory that was found; any file of that name is an error.
func Create(dir *os.File, name string, mode fs.FileMode) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Open opens a regular file that was found. flags are added to those for reading, or are those for writing.
func Open(place *os.File, flags int) (*os.File, fs.FileInfo, error) {
	info, err := check(place)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: place.Name(), Err: err}
	}
	fd, err := unix.Open(Path(place), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: place.Name(), Err: err}
	}
	if err := unix.SetNonblock(fd, false); err != nil { // it was for the moment of opening
		_ = unix.Close(fd)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), place.Name()), info, nil
}

// check returns an error if a file must not be opened.
func check(place *os.File) (fs.FileInfo, error) {
	info, err := place.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrSpecial
	}
	made, err := KernelMade(place)
	if made {
		err = ErrKernel
	}
	return info, err
}

// Read returns the content of a regular file that was found; more than most bytes are an error.
func Read(place *os.File, most int) ([]byte, error) {
	f, _, err := Open(place, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		return nil, &fs.PathError{Op: "read", Path: place.Name(), Err: fmt.Errorf("%w: at most %d bytes are read", ErrTooLarge, most)}
	}
	return data, err
}

// List opens a directory that was found to read its names. Anything else is an error that matches unix.ENOTDIR.
func List(place *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(place.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: place.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), place.Name()), nil
}

// KernelMade reports whether a file is on a pseudo file system such as proc or sysfs. Reading there may block or have effects, and writing
// would use our privileges for what a container may not do.
func KernelMade(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, fmt.Errorf("file system of %s: %w", f.Name(), err)
	}
	switch uint32(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.BPF_FS_MAGIC, configfsMagic, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.BINFMTFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.NSFS_MAGIC, mqueueMagic, fusectlMagic, unix.RDTGROUP_SUPER_MAGIC, unix.AAFS_MAGIC,
		unix.BDEVFS_MAGIC, unix.USBDEVICE_SUPER_MAGIC, unix.XENFS_SUPER_MAGIC, unix.OPENPROM_SUPER_MAGIC:
		return true, nil
	}
	return false, nil
}

// Those that the package unix does not name.
const (
	configfsMagic = 0x62656570
	mqueueMagic   = 0x19800202
	fusectlMagic  = 0x65735543
)
