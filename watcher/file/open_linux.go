package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/regular"
	"monopod/watcher"
)

var (
	errBeingWritten = errors.New("another process has it open for writing; it is read as soon as that is closed")
	errTooLarge     = fmt.Errorf("larger than %d MiB", watcher.MaxInput>>20)
)

// identity detects that a file may have changed since it was read, without reading it. ctime is part of it because it cannot be set: a
// rewrite that preserves size and mtime still changes it.
type identity struct {
	fileID
	size         int64
	mtime, ctime int64
}

// fileID names a file on this machine, whatever its paths.
type fileID struct{ dev, ino uint64 }

// sameFile reports whether id and o are one file under two names. A rename changes ctime only. Size and mtime are compared because a new
// file often gets the inode number of the one just removed.
func (id identity) sameFile(o identity) bool {
	return id.fileID == o.fileID && id.size == o.size && id.mtime == o.mtime
}

func identify(info fs.FileInfo) identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{
		fileID: fileID{st.Dev, st.Ino},
		size:   st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
	}
}

// tick is longer than the resolution of file times. A file changed less than a tick before it was read may have been
// changed again without another ctime, so it is read once more when next looked at.
const tick = 50 * time.Millisecond

// settled reports whether an identity read at now cannot stay the same when the content changes.
func (id identity) settled(now time.Time) bool { return now.Sub(time.Unix(0, id.ctime)) > tick }

// contents is a file as it was read.
type contents struct {
	data []byte
	sum  [sha256.Size]byte
	id   identity
	// stable is set if id belongs to exactly this data.
	stable bool
}

// readFile reads a regular file and nothing else: it neither blocks on a fifo nor opens a device. Unless force is
// set it returns errBeingWritten, with the identity, while a process has it open for writing.
func readFile(path string, force force) (contents, error) {
	f, info, err := regular.Open(path, unix.O_NOATIME)
	if errors.Is(err, unix.EPERM) { // who does not own it, and is not root, may not ask for that
		f, info, err = regular.Open(path, 0)
	}
	if err != nil {
		return contents{}, err
	}
	defer f.Close()
	c := contents{id: identify(info)}
	if force == waitForWriters && beingWritten(f) {
		return c, errBeingWritten
	}
	if info.Size() <= watcher.MaxInput {
		if c.data, err = readAll(f, info.Size()); err != nil {
			return c, err
		}
	}
	if info.Size() > watcher.MaxInput || len(c.data) > watcher.MaxInput {
		c.stable = c.id.settled(time.Now())
		return c, errTooLarge
	}
	if info, err = f.Stat(); err != nil {
		return c, err
	}
	c.sum = sha256.Sum256(c.data)
	c.stable = identify(info) == c.id && c.id.settled(time.Now())
	return c, nil
}

// readAll reads up to one byte more than an input may have, into a buffer that is made for what is expected.
func readAll(r io.Reader, expected int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(expected, 0), watcher.MaxInput)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(r, watcher.MaxInput+1))
	return b.Bytes(), err
}

// openUnnoticed opens a file or directory with O_NOATIME, which saves a disk write after each change. The kernel allows that to the owner
// and to root only.
func openUnnoticed(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOATIME|flags, 0)
	if errors.Is(err, unix.EPERM) {
		return os.OpenFile(path, os.O_RDONLY|flags, 0)
	}
	return f, err
}

// readDir is os.ReadDir by openUnnoticed.
func readDir(path string) ([]fs.DirEntry, error) {
	d, err := openUnnoticed(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// force selects what readFile does with a file that is open for writing.
type force int

const (
	waitForWriters force = iota
	readAnyway
)

// beingWritten reports whether any process has f open for writing. The kernel grants a read lease only if none has; the lease is released
// at once, and a writer that opens the file meanwhile waits for these microseconds. Where leases do not exist or are not permitted, it
// returns false.
//
// Without this check a manifest that is written in pieces would run in pieces: the first half of a pod is often a valid pod.
func beingWritten(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err != nil {
		return errors.Is(err, unix.EAGAIN) && !remote(f)
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err != nil
}

// remote reports whether f is on a network file system. NFS and SMB grant leases only for files that the server delegated, so a refusal
// there does not imply a writer.
func remote(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return true
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return true
	}
	return false
}

// identifySite identifies the directory at dir, a path without links, so that another one at that path is noticed. Unknown parts stay zero.
func identifySite(dir string) location {
	at := location{real: dir}
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MNT_ID, &st) != nil {
		return at
	}
	at.id = fileID{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		at.born = st.Btime
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		at.mount = st.Mnt_id
	}
	return at
}
