// Package podfiles owns the small files of a pod that containers can write to although they are not volumes: /etc/hosts,
// /etc/hostname, /etc/resolv.conf and the termination messages. It must not know pods or containers, or the content of the files.
//
// The files are on a tmpfs of the pod with little spare space: a container that writes too much gets ENOSPC, and what it writes is
// accounted to the memory of its own cgroup, not to the node's disk. It has no goroutines. Calls of Write for one Dir must not be
// concurrent.
package podfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// room is the space that containers can fill, besides the initial content.
	room = 1 << 20
	// maxInodes also limits extended attributes, whose memory a tmpfs accounts as inodes.
	maxInodes = 1024
	// maxMessage is the maximum size of a termination message.
	maxMessage = 4096
	// flags are the mount flags: no programs and no devices.
	flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

// Dir is the directory of the files of one pod.
type Dir struct {
	// Path is the mount point.
	Path string
	// Owner is the user and group of the files: root in the pod's user namespace.
	Owner int
}

// Files is the content of the files that all containers of a pod share.
type Files struct{ Hosts, Hostname, ResolvConf string }

// Hosts is the path of /etc/hosts.
func (d Dir) Hosts() string { return filepath.Join(d.Path, "hosts") }

// Hostname is the path of /etc/hostname.
func (d Dir) Hostname() string { return filepath.Join(d.Path, "hostname") }

// ResolvConf is the path of /etc/resolv.conf.
func (d Dir) ResolvConf() string { return filepath.Join(d.Path, "resolv.conf") }

// Message is the path of the termination message of a container.
func (d Dir) Message(id string) string { return filepath.Join(d.Messages(), id) }

// Messages is the directory of the termination messages.
func (d Dir) Messages() string { return filepath.Join(d.Path, "messages") }

// Complete reports whether Write has finished. It has not after a reboot, or when the agent was killed during Write. The directory of the
// messages is on the tmpfs and created last.
func (d Dir) Complete() bool {
	st, err := os.Lstat(d.Messages())
	return err == nil && st.IsDir()
}

// Write creates the shared files, or rewrites those whose content differs.
func (d Dir) Write(f Files) error {
	if err := d.mount(size(f)); err != nil {
		return err
	}
	if err := d.retried(f, d.write); err != nil {
		return err
	}
	if err := os.Mkdir(d.Messages(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// WriteHosts rewrites /etc/hosts if the files are complete; otherwise the error matches fs.ErrNotExist. The other files stay as
// containers have changed them.
func (d Dir) WriteHosts(f Files) error {
	if !d.Complete() {
		return &fs.PathError{Op: "write", Path: d.Hosts(), Err: fs.ErrNotExist}
	}
	if err := d.enlarge(size(f)); err != nil {
		return err
	}
	return d.retried(f, func(f Files) error { return d.put(d.Hosts(), f.Hosts) })
}

// retried writes files. If a container has filled the tmpfs, it empties the files and retries.
func (d Dir) retried(f Files, write func(Files) error) error {
	err := write(f)
	if errors.Is(err, unix.ENOSPC) {
		if err = d.discard(); err == nil {
			err = d.write(f)
		}
	}
	if errors.Is(err, unix.ENOSPC) { // hide ENOSPC: the node's disk is not full
		return fmt.Errorf("containers of the pod keep filling its files: %s", err.Error())
	}
	return err
}

func (d Dir) write(f Files) error {
	return errors.Join(d.put(d.Hostname(), f.Hostname), d.put(d.ResolvConf(), f.ResolvConf), d.put(d.Hosts(), f.Hosts))
}

// size returns the size of the tmpfs for some content, with twice its space so that an edit can lengthen it.
func size(f Files) int64 { return room + 2*int64(len(f.Hosts)+len(f.Hostname)+len(f.ResolvConf)) }

// mount mounts the tmpfs unless it is mounted.
func (d Dir) mount(size int64) error {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	if mounted, err := mountinfo.Mounted(d.Path); err != nil {
		return err
	} else if !mounted {
		options := fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", size, maxInodes)
		if err := unix.Mount("tmpfs", d.Path, "tmpfs", flags, options); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", d.Path, err)
		}
	}
	return d.enlarge(size)
}

// enlarge sets the size of the tmpfs unless it is larger.
func (d Dir) enlarge(size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Path, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: d.Path, Err: err}
	}
	if int64(st.Blocks*uint64(st.Bsize)) >= size {
		return nil
	}
	if err := unix.Mount("tmpfs", d.Path, "tmpfs", unix.MS_REMOUNT|flags, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("enlarge the tmpfs on %s: %w", d.Path, err)
	}
	return nil
}

// put writes a shared file, and sets its owner.
func (d Dir) put(path, text string) error {
	if err := WriteInPlace(path, text); err != nil {
		return err
	}
	return os.Lchown(path, d.Owner, d.Owner)
}

// discard empties the shared files, and messages that are too long.
func (d Dir) discard() error {
	var errs []error
	for _, path := range []string{d.Hostname(), d.ResolvConf(), d.Hosts()} {
		if err := os.Truncate(path, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	messages, err := os.ReadDir(d.Messages())
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, m := range messages {
		if st, err := m.Info(); err == nil && st.Size() > maxMessage {
			errs = append(errs, os.Truncate(d.Message(m.Name()), 0))
		}
	}
	return errors.Join(errs...)
}

// NewMessage creates the empty file for a container's termination message, and returns its path. Write must have been called.
func (d Dir) NewMessage(id string) (string, error) {
	path := d.Message(id)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	// Writable for any user of the container, independent of the umask.
	if err := errors.Join(f.Chmod(0o666), f.Chown(d.Owner, d.Owner), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// WriteInPlace writes a small file without replacing it, if its content differs. It does not read a file of another size, which
// containers may have made large.
func WriteInPlace(path, text string) error {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == int64(len(text)) {
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			return nil
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) // independent of the umask
}
