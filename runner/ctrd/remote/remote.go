// Package remote mounts storage that needs tools of the host: NFS exports, iSCSI disks, and file systems on block devices. It must
// not know pods or volumes: its callers pass targets and sources.
//
// A server may never answer, so each attempt has a goroutine of its own, for which callers wait only briefly. An attempt that is
// blocked in the kernel ends when the server answers, or with the process; Close waits for it only briefly.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// patience is how long a caller waits.
	patience = 250 * time.Millisecond
	// attemptTimeout is the timeout of tools.
	attemptTimeout = 2 * time.Minute
	// killDelay is how long a killed tool may keep its output open.
	killDelay = 2 * time.Second
)

// Mounter makes attempts, one at a time for each target.
type Mounter struct {
	// done is called when an attempt has ended without a waiting caller.
	done   func()
	ctx    context.Context //nolint:containedctx // attempts outlive the calls that start them
	cancel context.CancelFunc
	disks  disks
	// mounts reads the mount table.
	mounts func(mountinfo.FilterFunc) ([]*mountinfo.Info, error)

	mu sync.Mutex
	// attempts are by target, guarded by mu. A failed one without a waiting caller stays until the next call.
	attempts map[string]*attempt
	// targets are the iSCSI targets with a login or logout in progress, guarded by mu.
	targets map[string]chan struct{}
}

type attempt struct {
	what   string
	began  time.Time
	cancel context.CancelFunc
	// over is closed when err is set.
	over chan struct{}
	err  error
	// missed is set if the caller did not wait for the end; guarded by Mounter.mu.
	missed bool
}

// NewMounter returns a Mounter. It calls done, from any goroutine, when a slow attempt has ended.
func NewMounter(done func()) *Mounter {
	m := &Mounter{done: done, disks: hostDisks(), mounts: mountinfo.GetMounts, attempts: map[string]*attempt{}, targets: map[string]chan struct{}{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close cancels attempts in progress, as far as the kernel permits.
func (m *Mounter) Close() {
	m.cancel()
	m.mu.Lock()
	open := slices.Collect(maps.Values(m.attempts))
	m.mu.Unlock()
	timer := time.NewTimer(killDelay)
	defer timer.Stop()
	for _, a := range open {
		select {
		case <-a.over:
		case <-timer.C:
			return
		}
	}
}

// try runs do for a target unless an attempt is in progress, and returns its error, or one that reports that it is still in
// progress.
func (m *Mounter) try(target, what string, do func(context.Context) error) error {
	m.mu.Lock()
	a, old := m.attempts[target]
	if !old {
		a = &attempt{what: what, began: time.Now(), over: make(chan struct{})}
		m.attempts[target] = a
		var ctx context.Context
		ctx, a.cancel = context.WithTimeout(m.ctx, attemptTimeout)
		go m.run(ctx, target, a, do)
	}
	m.mu.Unlock()
	wait := patience
	if old {
		wait = 0 // a caller has waited already
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-a.over:
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-a.over:
		if m.attempts[target] == a {
			delete(m.attempts, target)
		}
		return a.err
	default:
		a.missed = true
		return fmt.Errorf("%s: no answer after %s", a.what, time.Since(a.began).Round(10*time.Millisecond))
	}
}

func (m *Mounter) run(ctx context.Context, target string, a *attempt, do func(context.Context) error) {
	defer a.cancel()
	err := do(ctx)
	m.mu.Lock()
	if err != nil {
		a.err = fmt.Errorf("%s: %w", a.what, err)
	}
	close(a.over)
	missed := a.missed
	if err == nil && m.attempts[target] == a {
		delete(m.attempts, target)
	}
	m.mu.Unlock()
	if missed {
		m.done()
	}
}

// mounted reports whether target is a mount point, without contacting the server.
func mounted(target string) (bool, error) {
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(target))
	return len(infos) > 0, err
}

// mount calls do unless target is mounted, and checks that the mounted storage answers.
func (m *Mounter) mount(target, what string, do func(context.Context) error) error {
	there, err := mounted(target)
	if err != nil {
		return err
	}
	if !there {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		if err := m.try(target, "mount "+what, do); err != nil {
			return err
		}
	}
	return m.try(target, "use "+what, func(context.Context) error {
		_, err := os.Stat(target)
		return err
	})
}

// unmount unmounts a target, even if its server does not answer.
func (m *Mounter) unmount(target string) error {
	there, err := mounted(target)
	if err != nil || !there {
		return err
	}
	err = m.try("unmount "+target, "unmount "+target, func(context.Context) error {
		return unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	})
	if there, merr := mounted(target); merr == nil && !there {
		return nil // the kernel may finish it later
	}
	return err
}

// UnmountBelow unmounts everything that was mounted for a pod, and removes the mount points, so that attempts in progress cannot
// mount anything. If it returns nil, the directory contains no mount.
func (m *Mounter) UnmountBelow(podDir string) error {
	m.mu.Lock()
	for target, a := range m.attempts {
		if strings.HasPrefix(target, podDir+"/") {
			a.cancel()
			a.missed = false
		}
	}
	m.mu.Unlock()
	places, err := targets(podDir)
	if len(places) == 0 {
		return err // without mount points the long mount table need not be read
	}
	infos, merr := m.mounts(func(i *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(i.Mountpoint, podDir+"/") || !slices.Contains(kinds(), filepath.Base(filepath.Dir(i.Mountpoint))), false
	})
	if merr != nil {
		return errors.Join(err, merr)
	}
	errs := []error{err}
	for _, i := range slices.Backward(infos) {
		errs = append(errs, m.unmount(i.Mountpoint))
	}
	for _, place := range places {
		errs = append(errs, os.Remove(place))
	}
	return errors.Join(errs...)
}

// targets returns the mount points in a pod's directory, past, current and future. It does not stat them: a server may not answer.
func targets(podDir string) ([]string, error) {
	var all []string
	var errs []error
	for _, kind := range kinds() {
		dir := filepath.Join(podDir, "volumes", kind)
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		names, err := f.Readdirnames(-1)
		errs = append(errs, err, f.Close())
		for _, name := range names {
			all = append(all, filepath.Join(dir, name))
		}
	}
	return all, errors.Join(errs...)
}

// Target returns the mount point of a volume of a pod. kind is nfs, iscsi or local-volume.
func Target(podDir, kind, volume string) string {
	return filepath.Join(podDir, "volumes", "kubernetes.io~"+kind, volume)
}

// kinds returns the directories of targets.
func kinds() []string {
	return []string{"kubernetes.io~nfs", "kubernetes.io~iscsi", "kubernetes.io~local-volume"}
}

// tool finds a program on the host, whose name must be a constant: it becomes a part of a path. install is what to install if it is missing.
func tool(name, install string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on this machine: install %s", name, install)
}

// run runs a tool; its error is the tool's output.
func run(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = killDelay
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		if text != "" {
			return text, fmt.Errorf("%s: %w: %s", filepath.Base(path), err, text)
		}
		return text, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return text, nil
}
