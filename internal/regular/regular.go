// Package regular reads files that other programs or users name or create: only regular files on file systems that store what is written to
// them, up to a size limit.
//
// A FIFO blocks the process that opens it, opening a device may have any effect, and files of the kernel look like regular ones but block
// (/proc/kmsg), never end (trace_pipe) or change something when they are read. The package must not start goroutines; therefore a file on a
// network file system whose server is down still blocks.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Errors of files that are not read.
var (
	ErrSpecial  = errors.New("not a regular file")
	ErrKernel   = errors.New("not a regular file, but a virtual file of the kernel")
	ErrTooLarge = errors.New("too large")
)

// Open opens a file to read it. flags are added to those of open(2).
func Open(path string, flags int) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path) // before it is opened: opening a device may have effects
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: failed.Err} // as if there were no such look
	}
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: ErrSpecial}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = Check(f); err != nil {
		_ = f.Close()
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, info, nil
}

// Check returns an error if an open file must not be read.
func Check(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrSpecial
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err == nil && madeUp(uint32(st.Type)) {
		return nil, ErrKernel
	}
	return info, nil
}

// madeUp reports the file systems whose files the kernel makes up.
func madeUp(kind uint32) bool {
	switch kind {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.BINFMTFS_MAGIC:
		return true
	}
	return false
}

// ReadFile is os.ReadFile for a file of at most most bytes.
func ReadFile(path string, most int) ([]byte, error) {
	f, _, err := Open(path, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: at most %d bytes are read", ErrTooLarge, most)}
	}
	return data, err
}
