package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/embed/boltfile"
)

const (
	// settle is how long changes are collected before they are copied to the mirror. A container that was started after the last copy
	// is killed when the agent and the database are lost at once, and made again. No start waits for a copy.
	settle = 100 * time.Millisecond
	// calm is how long nothing may have changed before a backup is made, and backupEvery how long ago the last one must be.
	calm        = time.Second
	backupEvery = 10 * time.Minute
)

// Watch begins to keep copies of the databases, which must be open. What cannot be copied is logged.
func (g *Guard) Watch() error {
	if g == nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch databases: %w", err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	for _, path := range g.databases() { // the files may come later
		if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MODIFY); err != nil {
			return errors.Join(fmt.Errorf("watch %s: %w", path, err), changes.Close())
		}
	}
	for _, dir := range []string{filepath.Join(g.cfg.Mirror, g.cfg.Boot), g.cfg.Backup} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return errors.Join(err, changes.Close())
		}
	}
	for _, path := range g.databases() {
		if h, err := headOf(g.backup(path)); err == nil {
			g.backedUp[path] = h.Tx
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	g.mu.Lock()
	g.watching = true
	g.mu.Unlock()
	g.stop = func() {
		cancel()
		_ = changes.Close() // ends the read
		<-done
	}
	go func() {
		defer close(done)
		g.run(ctx, changes)
	}()
	return nil
}

// Close ends the copying. The databases may be closed afterwards.
func (g *Guard) Close() error {
	if g == nil || g.stop == nil {
		return nil
	}
	g.stop()
	err := g.Flush()
	g.mu.Lock()
	g.watching = false
	g.mu.Unlock()
	return err
}

// run copies after changes, until changes is closed.
func (g *Guard) run(ctx context.Context, changes *os.File) {
	buf := make([]byte, 4096)
	var said string
	flush := func() {
		err := g.Flush()
		if err != nil && err.Error() != said {
			said = err.Error()
			g.cfg.Log.Warn("copy the databases of containerd", "err", err)
		}
	}
	flush()
	for ctx.Err() == nil {
		// A deadline is when a backup is due; none: wait for the next change.
		if err := changes.SetReadDeadline(g.backupDue(time.Now())); err != nil {
			return
		}
		switch _, err := changes.Read(buf); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := g.makeBackup(time.Now()); err != nil {
				g.cfg.Log.Warn("back up the databases of containerd", "err", err)
			}
			continue
		case err != nil:
			return
		}
		if !sleep(ctx, settle) {
			return
		}
		flush()
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Flush copies the databases to the mirror, unless it has all of their transactions.
func (g *Guard) Flush() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.watching {
		return nil
	}
	var errs []error
	for _, path := range g.databases() {
		errs = append(errs, g.mirrorLocked(path))
	}
	return errors.Join(errs...)
}

func (g *Guard) mirrorLocked(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return ignoreMissing(err) // the snapshotter makes its own when it is used first
	}
	defer func() { _ = f.Close() }()
	h, err := boltfile.ReadHead(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if h == g.copied[path] {
		return nil
	}
	h, err = copyTo(g.mirror(path), f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	g.copied[path] = h
	return nil
}

// copyTo replaces a file by a copy of an open database. It is not synced.
func copyTo(path string, from *os.File) (boltfile.Head, error) {
	w, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return boltfile.Head{}, err
	}
	h, err := boltfile.Copy(w, from)
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.Rename(w.Name(), path)
	}
	if err != nil {
		return h, errors.Join(err, os.Remove(w.Name()))
	}
	return h, nil
}

func headOf(path string) (boltfile.Head, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY)
	if err != nil {
		return boltfile.Head{}, err
	}
	defer func() { _ = f.Close() }()
	return boltfile.ReadHead(f)
}

// backupDue says when a backup is to be made if nothing changes until then; zero: none is.
func (g *Guard) backupDue(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, path := range g.databases() {
		if h, ok := g.copied[path]; ok && h.Tx != g.backedUp[path] {
			due := now.Add(calm)
			if at := g.backupAt.Add(backupEvery); !g.backupAt.IsZero() && at.After(due) {
				due = at
			}
			return due
		}
	}
	return time.Time{}
}

// makeBackup puts what the mirror has on the disk. A copy that is damaged does not replace one that is not.
func (g *Guard) makeBackup(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backupAt = now
	var errs []error
	for _, path := range g.databases() {
		h, ok := g.copied[path]
		if !ok || h.Tx == g.backedUp[path] {
			continue
		}
		err := g.check(g.mirror(path))
		var data []byte
		if err == nil {
			data, err = os.ReadFile(g.mirror(path))
		}
		if err == nil {
			err = atomicfile.Write(g.backup(path), data, 0o600)
		}
		if err == nil {
			g.backedUp[path] = h.Tx
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
