package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Open finds a path below root as a process with that root directory would: links in it are followed, and lead nowhere else.
// The file can be looked at and nothing more.
func Open(root *os.File, name string) (*os.File, error) {
	return openat2(root, path.Clean("/"+name), 0, unix.RESOLVE_IN_ROOT)
}

// openat2 opens a path without following what resolve forbids, and keeps the name for messages. The kernel prevents that the file is moved
// outside meanwhile. os.Root does not fit: it opens FIFOs, which blocks, and devices, which starts them.
func openat2(dir *os.File, name string, flags int, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN): // which is a rename meanwhile
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// beneath finds a directory below another one. Links that lead out of that are errors.
func beneath(dir *os.File, name string) (*os.File, error) {
	f, err := openat2(dir, name, unix.O_DIRECTORY, unix.RESOLVE_BENEATH)
	if errors.Is(err, unix.EXDEV) {
		err = fmt.Errorf("%s: %w", name, errLeadsOut)
	}
	return f, err
}

var errLeadsOut = errors.New("a link leads out of the directory")

// Target is where a tree goes that is to be at a path: Dir/Name.
type Target struct {
	Dir  *os.File
	Name string
}

// FindTarget finds the place for a tree called name: in the directory that to is, else in its parent under the last name of to.
// Without a name, to must be a directory. See Open for links.
func FindTarget(root *os.File, to, name string) (Target, error) {
	f, err := openat2(root, path.Clean("/"+to), unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	if err == nil {
		return Target{Dir: f, Name: name}, nil
	}
	clean := path.Clean("/" + to)
	if name == "" || strings.HasSuffix(to, "/") || clean == "/" || !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, fs.ErrNotExist) {
		return Target{}, err
	}
	f, err = openat2(root, path.Dir(clean), unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	return Target{Dir: f, Name: path.Base(clean)}, err
}

// pathError adds the path that the user named.
func pathError(err error, name string) error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}

// again is a path to what a descriptor stands for, whatever has become of its name.
func again(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// kernelMade reports whether a file is on a pseudo file system such as proc or sysfs. Reading there may block or have effects, and writing
// would use our privileges for what a container may not do.
func kernelMade(f *os.File) (bool, error) {
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
