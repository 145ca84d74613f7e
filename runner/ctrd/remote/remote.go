// Package remote mounts storage that needs a tool of the machine: NFS exports, iSCSI disks, and file systems on block
// devices.
//
// It knows targets and sources only: who needs which is decided by its callers. Whatever it waits for may never answer,
// because a server is gone, so each attempt has a goroutine of its own, for which callers wait a short time only. One that
// the kernel does not let go of ends when the server answers, or with the process; Close does not wait for it for long.
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
	// patience is how long a caller is kept waiting.
	patience = 250 * time.Millisecond
	// attemptTimeout ends tools that do not come to an end.
	attemptTimeout = 2 * time.Minute
	// killDelay is how long a tool that was killed may keep its output open.
	killDelay = 2 * time.Second
)

// Mounter makes attempts, one at a time for each target.
type Mounter struct {
	// done is called when an attempt has ended for which nobody waited any more.
	done   func()
	ctx    context.Context //nolint:containedctx // attempts outlive the calls that begin them
	cancel context.CancelFunc
	// mounts reads the mount table.
	mounts func(mountinfo.FilterFunc) ([]*mountinfo.Info, error)

	mu sync.Mutex
	// attempts by target, guarded by mu. One that failed when nobody waited stays until somebody asks.
	attempts map[string]*attempt
	// targets are the iSCSI targets that somebody is logging in to or out of, guarded by mu.
	targets map[string]chan struct{}
}

type attempt struct {
	what   string
	began  time.Time
	cancel context.CancelFunc
	// over is closed when err is set.
	over chan struct{}
	err  error
	// missed says that the caller did not wait for the end; guarded by Mounter.mu.
	missed bool
}

// NewMounter returns a Mounter. done is called, from any goroutine, when something has ended that took long.
func NewMounter(done func()) *Mounter {
	m := &Mounter{done: done, mounts: mountinfo.GetMounts, attempts: map[string]*attempt{}, targets: map[string]chan struct{}{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close ends what is going on, as far as the kernel lets it.
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

// try runs do for a target unless that is going on, and returns its error, or one that says that it is still going on.
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
		wait = 0 // somebody has waited
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

// mounted says whether something is mounted at a target, without asking whoever is behind it.
func mounted(target string) (bool, error) {
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(target))
	return len(infos) > 0, err
}

// mount mounts with do unless something is mounted at target, and sees to it that what is there answers.
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

// unmount unmounts what is mounted at a target. A server that does not answer does not keep it there.
func (m *Mounter) unmount(target string) error {
	there, err := mounted(target)
	if err != nil || !there {
		return err
	}
	err = m.try("unmount "+target, "unmount "+target, func(context.Context) error {
		return unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	})
	if there, merr := mounted(target); merr == nil && !there {
		return nil // the kernel may still be busy with it, out of sight
	}
	return err
}

// UnmountBelow unmounts all that was mounted for a pod, and removes the places where it was: whatever is still under way
// finds none to be mounted at. When it returns nil, nothing in the directory is anybody else's.
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
		return err // nothing can be mounted where nothing is: the table, which is long, need not be read
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

// targets returns the places in a pod's directory that something is, was or will be mounted at. It does not look at them:
// whoever is behind one may not answer.
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

// Target is where a volume of a pod is mounted. kind is nfs, iscsi or local-volume.
func Target(podDir, kind, volume string) string {
	return filepath.Join(podDir, "volumes", "kubernetes.io~"+kind, volume)
}

// kinds are the directories of targets.
func kinds() []string {
	return []string{"kubernetes.io~nfs", "kubernetes.io~iscsi", "kubernetes.io~local-volume"}
}

// tool finds a program of the machine. install says what to install when it is not there.
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

// run runs a tool; its error is what the tool says.
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
