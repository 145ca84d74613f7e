// Package linuxns creates the namespaces of sandboxes and pins them by bind mounts. It owns the pins and the sysctls in new namespaces; it must
// not decide which namespaces a pod gets.
//
// Goroutines: one OS thread per Pin, which ends with it.
package linuxns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containerd/containerd/v2/pkg/sys"
	"golang.org/x/sys/unix"
)

// Set is the set of namespaces of a sandbox.
type Set struct {
	Net bool
	IPC bool
	UTS bool
	// Users creates a user namespace that owns the others; nil: that of the machine is used.
	Users *Users
	// PID is not created by Pin, which has no process for it; see PinPID.
	PID bool
	// Hostname is set in the new UTS namespace; empty: the host's name is kept.
	Hostname string
	// Sysctls are written in the new net and ipc namespaces, in either spelling (net.ipv4.x or net/ipv4/x).
	// Two of containerd's CRI are added unless given: net.ipv4.ip_unprivileged_port_start=0 and
	// net.ipv4.ping_group_range="0 2147483647". A sysctl outside the new namespaces is refused.
	Sysctls map[string]string
}

// Users is the range of ids of the machine that a user namespace maps to its ids from 0.
type Users struct {
	FirstID uint32
	Count   uint32
}

// kind is a type of namespace.
type kind struct {
	// file is the name of the pin and of the entry in /proc/thread-self/ns.
	file string
	flag int
}

// kinds returns the requested namespaces, in a fixed order.
func (n Set) kinds() []kind {
	var ks []kind
	if n.Users != nil {
		ks = append(ks, kind{"user", unix.CLONE_NEWUSER})
	}
	if n.Net {
		ks = append(ks, kind{"net", unix.CLONE_NEWNET})
	}
	if n.IPC {
		ks = append(ks, kind{"ipc", unix.CLONE_NEWIPC})
	}
	if n.UTS {
		ks = append(ks, kind{"uts", unix.CLONE_NEWUTS})
	}
	if n.PID {
		ks = append(ks, kind{"pid", unix.CLONE_NEWPID})
	}
	return ks
}

// Pin creates namespaces and pins them as dir/net, dir/ipc, dir/uts and dir/user. Existing pins are kept. A namespace is pinned only when it is
// complete (lo up, sysctls, hostname), so that a crash never leaves an incomplete one.
//
// The pins are unbindable. Otherwise a pod that mounts the host's / or /run would get copies of them, which would keep the namespaces of
// removed pods alive.
func Pin(dir string, ns Set) error {
	settings, err := sysctlSettings(ns)
	if err != nil {
		return fmt.Errorf("pin namespaces in %s: %w", dir, err)
	}
	var missing []kind
	for _, k := range ns.kinds() {
		if !IsNamespace(filepath.Join(dir, k.file)) {
			missing = append(missing, k)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("pin namespaces: %w", err)
	}
	p := pinner{dir: dir, kinds: missing, ns: ns, settings: settings, source: "/proc/thread-self/ns"}
	if ns.Users != nil {
		return p.inUserNamespace()
	}
	if err := RunOnThread(p.run); err != nil {
		return fmt.Errorf("pin namespaces in %s: %w", dir, err)
	}
	return nil
}

// RunOnThread runs fn on an OS thread that ends afterwards, because its namespaces cannot be restored. The first thread of the process is never
// used: the runtime parks it instead of ending it, so it would keep the namespaces alive, and /proc/<pid>/ns would show them.
func RunOnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// This thread stays locked, so that the scheduler cannot choose it again.
			done <- RunOnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
	}()
	return <-done
}

// PinPID pins the PID namespace of a process as dir/pid.
func PinPID(dir string, pid int) error {
	if err := bindPin(fmt.Sprintf("/proc/%d/ns/pid", pid), filepath.Join(dir, "pid")); err != nil {
		return fmt.Errorf("pin process namespace: %w", err)
	}
	return nil
}

// pinner creates and pins the missing namespaces of one sandbox. run is called on a thread of its own.
type pinner struct {
	dir      string
	kinds    []kind
	ns       Set
	settings []setting
	// source is the directory in /proc with the namespaces to pin.
	source string
}

func (p *pinner) run() error {
	flags := p.flags()
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := p.configure(flags); err != nil {
		return err
	}
	return p.pin()
}

func (p *pinner) flags() int {
	flags := 0
	for _, k := range p.kinds {
		flags |= k.flag
	}
	return flags
}

func (p *pinner) pin() error {
	for _, k := range p.kinds {
		if err := bindPin(filepath.Join(p.source, k.file), filepath.Join(p.dir, k.file)); err != nil {
			return fmt.Errorf("%s: %w", k.file, err)
		}
	}
	return nil
}

// inUserNamespace recreates all namespaces, because existing pins from before a crash belong to another user namespace, and are unused. The
// namespaces are created for a process that never runs and has ended when they are pinned.
func (p *pinner) inUserNamespace() error {
	if err := Unpin(p.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o711); err != nil {
		return fmt.Errorf("pin namespaces: %w", err)
	}
	p.kinds = p.ns.kinds()
	others := p.flags() &^ unix.CLONE_NEWUSER
	ids := fmt.Sprintf("0:%d:%d", p.ns.Users.FirstID, p.ns.Users.Count)
	err := sys.UnshareAfterEnterUserns(ids, ids, uintptr(others), func(pid int) error {
		p.source = fmt.Sprintf("/proc/%d/ns", pid)
		return RunOnThread(func() error {
			if err := p.join(); err != nil {
				return err
			}
			if err := p.configure(others); err != nil {
				return err
			}
			return p.pin()
		})
	})
	if err != nil {
		return fmt.Errorf("pin namespaces in %s: %w", p.dir, err)
	}
	return nil
}

// join moves the calling thread into all namespaces except the user namespace, because configuring them needs privileges on the host.
func (p *pinner) join() error {
	for _, k := range p.kinds {
		if k.flag == unix.CLONE_NEWUSER {
			continue
		}
		f, err := os.Open(filepath.Join(p.source, k.file))
		if err != nil {
			return err
		}
		err = unix.Setns(int(f.Fd()), k.flag)
		f.Close()
		if err != nil {
			return fmt.Errorf("join %s namespace: %w", k.file, err)
		}
	}
	return nil
}

func (p *pinner) configure(flags int) error {
	if flags&unix.CLONE_NEWNET != 0 {
		if err := LoopbackUp(); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
	}
	if flags&unix.CLONE_NEWUTS != 0 && p.ns.Hostname != "" {
		if err := unix.Sethostname([]byte(p.ns.Hostname)); err != nil {
			return fmt.Errorf("set hostname %q: %w", p.ns.Hostname, err)
		}
	}
	for _, s := range p.settings {
		if flags&s.flag == 0 {
			continue
		}
		if err := s.write(); err != nil {
			return err
		}
	}
	return nil
}

// bindPin mounts the namespace file at target.
func bindPin(source, target string) error {
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind mount", Path: target, Err: err}
	}
	if err := unix.Mount("", target, "", unix.MS_UNBINDABLE, ""); err != nil {
		return &os.PathError{Op: "make unbindable", Path: target, Err: err}
	}
	return nil
}

// LoopbackUp brings up lo in the network namespace of the calling thread.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// Pinned reports whether all namespaces of a set are pinned in dir. Plain files, which remain after a reboot if dir is on a disk, do not count.
func Pinned(dir string, ns Set) bool {
	for _, k := range ns.kinds() {
		if !IsNamespace(filepath.Join(dir, k.file)) {
			return false
		}
	}
	return true
}

// IsNamespace reports whether path is a pinned namespace.
func IsNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.NSFS_MAGIC
}

// Unpin removes the pins and dir. Pins may be missing, mounted more than once, or plain files.
func Unpin(dir string) error {
	var errs []error
	for _, k := range (Set{Net: true, IPC: true, UTS: true, PID: true, Users: &Users{}}).kinds() {
		path := filepath.Join(dir, k.file)
		errs = append(errs, unmountAll(path))
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unpin namespaces: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("unpin namespaces: %w", err)
	}
	return nil
}

// unmountAll unmounts all mounts on path, the topmost first.
func unmountAll(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil // no mount is left
		default:
			return &os.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}
