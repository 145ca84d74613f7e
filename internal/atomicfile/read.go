package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrDamaged reports a path that exists but is not a readable file of Write.
var ErrDamaged = errors.New("damaged")

// MaxState is a limit for Read that no state file reaches.
const MaxState = 64 << 20

// Read returns the content of a file that this program wrote. A missing file is fs.ErrNotExist. Anything else that cannot be read (a directory,
// a link, a FIFO, more than limit bytes, a bad disk block) is ErrDamaged. It never blocks on a FIFO and never reads more than limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %w", path, ErrDamaged, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is %w: more than %d bytes", path, ErrDamaged, limit)
	}
	return data, nil
}

// Open opens an existing regular file with the errors of Read.
func Open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	switch {
	case err != nil && slices.ContainsFunc(foreign(), func(e error) bool { return errors.Is(err, e) }):
		return nil, fmt.Errorf("%s is %w: %w", path, ErrDamaged, err)
	case err != nil: // missing, or this process is short of something: the file may be fine
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is no regular file (%s)", info.Mode())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is %w: %w", path, ErrDamaged, err)
	}
	return f, nil
}

// foreign are the errors of opening something that is not a regular file, or is on a bad disk.
func foreign() []error {
	return []error{unix.ELOOP, unix.EISDIR, unix.ENOTDIR, unix.ENXIO, unix.EACCES, unix.EIO, unix.EUCLEAN}
}

// SetAside renames the file or directory at path within its directory, so that users can inspect it. An existing one with the new name is
// removed.
func SetAside(path, as string) error {
	if err := os.RemoveAll(as); err != nil {
		return err
	}
	return os.Rename(path, as)
}
