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
	"monopod/internal/pause"
	"monopod/runner/ctrd/embed/boltfile"
)

const (
	// settle is how long changes are collected before they are copied to the mirror. If agent and database are lost at the same time, a
	// container that was started after the last copy is killed and recreated. Starts do not wait for a copy.
	settle = 100 * time.Millisecond
	// calm is how long the databases must be unchanged before a backup, backupEvery the minimum interval of backups.
	calm        = time.Second
	backupEvery = 10 * time.Minute
	// retryEvery is the retry interval of failed copies without a change.
	retryEvery = 10 * time.Second
)

// Watch starts to copy the databases, which must be open. Each has a copy when it returns, or the error was logged.
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
	g.firstCopies()
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

// Close makes a last copy and stops. The databases may be closed before or after it, as long as nothing writes to them.
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
	var retry time.Time // zero: the last copy is good
	flush := func() {
		err := g.Flush()
		said, retry = g.reportOnce(err, said)
		if g.flushed != nil {
			g.flushed(err)
		}
	}
	flush()
	for ctx.Err() == nil {
		// The deadline is the next backup or retry; without one it waits for the next change.
		due := retry
		if due.IsZero() {
			due = g.backupDue(time.Now())
		}
		if err := changes.SetReadDeadline(due); err != nil {
			return
		}
		switch _, err := changes.Read(buf); {
		case errors.Is(err, os.ErrDeadlineExceeded) && !retry.IsZero():
			flush()
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := g.makeBackup(time.Now()); err != nil {
				g.cfg.Log.Warn("back up the databases of containerd", "err", err)
			}
			continue
		case err != nil:
			return
		}
		if !pause.For(ctx, settle) {
			return
		}
		flush()
	}
}

// reportOnce logs an error of a copy, unless it was the last one logged. It returns the logged text, and the time of the next attempt.
func (g *Guard) reportOnce(err error, said string) (string, time.Time) {
	if err == nil {
		return "", time.Time{}
	}
	if err.Error() != said {
		g.cfg.Log.Warn("copy the databases of containerd; the previous copies are kept", "err", err)
	}
	return err.Error(), time.Now().Add(retryEvery)
}

// Flush copies the databases to the mirror, unless it is up to date.
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

// firstCopies creates missing and outdated copies, so that copies exist also after a reboot. Errors are logged.
func (g *Guard) firstCopies() {
	g.mu.Lock()
	defer g.mu.Unlock()
	errs := []error{os.MkdirAll(filepath.Join(g.cfg.Mirror, g.cfg.Boot), 0o700)}
	for _, path := range g.databases() {
		h, err := headOf(path)
		if err != nil {
			errs = append(errs, ignoreMissing(err)) // the snapshotter makes its own when it is used first
			continue
		}
		if m, err := headOf(g.mirror(path)); err != nil || m != h {
			errs = append(errs, g.mirrorLocked(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		g.cfg.Log.Warn("copy the databases of containerd", "err", err)
	}
}

// firstBackups reads the heads of the backups, and creates missing ones.
func (g *Guard) firstBackups() {
	g.mu.Lock()
	defer g.mu.Unlock()
	errs := []error{os.MkdirAll(g.cfg.Backup, 0o700)}
	for _, path := range g.databases() {
		if h, err := headOf(g.backup(path)); err == nil {
			g.backedUp[path] = h.Tx
		} else {
			errs = append(errs, g.backupLocked(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		g.cfg.Log.Warn("back up the databases of containerd", "err", err)
	}
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

// copyTo replaces a file by a copy of an open database, without syncing it. A damaged copy does not replace a good one, for example with a bad
// disk. Values are not decoded, because that takes ten times as long.
func copyTo(path string, from *os.File) (boltfile.Head, error) {
	if err := os.RemoveAll(path + ".new"); err != nil { // also of a process that was killed
		return boltfile.Head{}, err
	}
	w, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return boltfile.Head{}, err
	}
	h, err := boltfile.Copy(w, from)
	if err == nil {
		_, err = boltfile.Check(w, h.Size(), nil)
	}
	if err == nil && h.Torn {
		err = errTorn
	}
	if info, serr := os.Lstat(path); err == nil && serr == nil && info.IsDir() {
		err = os.RemoveAll(path) // rename does not replace it
	}
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

// backupDue returns the time of the next backup if nothing changes until then; zero: none.
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

// makeBackup writes the mirror to the disk.
func (g *Guard) makeBackup(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backupAt = now
	var errs []error
	for _, path := range g.databases() {
		errs = append(errs, g.backupLocked(path))
	}
	return errors.Join(errs...)
}

// backupLocked does that for one database. A damaged copy does not replace a good one.
func (g *Guard) backupLocked(path string) error {
	h, ok := g.copied[path]
	if !ok || h.Tx == g.backedUp[path] {
		return nil
	}
	if err := g.check(g.mirror(path)); err != nil {
		return err
	}
	data, err := os.ReadFile(g.mirror(path))
	if err != nil {
		return err
	}
	if err := atomicfile.Write(g.backup(path), data, 0o600); err != nil {
		return err
	}
	g.backedUp[path] = h.Tx
	return nil
}
