// Package preload imports the image archives of the preload directories and watches these for changes. It owns the record of imported
// archives, labels of the containerd namespace; it must not remove images.
//
// Goroutines: the caller of Run.
package preload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"monopod/runner/ctrd/image/archive"
	"monopod/runner/ctrd/image/local"
	"monopod/runner/ctrd/image/repair"
)

// Settle is how long a file must not change before it is read, because it may be incomplete.
const Settle = 300 * time.Millisecond

// An archive that could not be imported is tried again when it changes, when containerd is reachable again, and after these intervals,
// because the cause may have been a full disk.
const (
	// MinRetry is the first interval. It doubles up to maxRetry.
	MinRetry = 30 * time.Second
	maxRetry = time.Hour
)

// Config of a Preloader.
type Config struct {
	Local  *local.Store
	Repair *repair.Repairer
	// Dirs have the archives. Missing ones are waited for.
	Dirs []string
	// Record is called with the images of each archive.
	Record func(path string, names []string)
	// OnImport is called after archives were imported. It must not block.
	OnImport func()
	Log      *slog.Logger
}

// Preloader imports archives.
type Preloader struct {
	Config
	// retryNow holds a value when failed archives should be tried again at once.
	retryNow chan struct{}
}

// New returns a Preloader. It does no I/O.
func New(cfg Config) *Preloader { return &Preloader{Config: cfg, retryNow: make(chan struct{}, 1)} }

// Retry makes Run import failed archives again at once. It is called when containerd is reachable again.
func (p *Preloader) Retry() {
	select {
	case p.retryNow <- struct{}{}:
	default: // requested already
	}
}

// Run imports all archives, calls done once with the result, and follows changes until ctx ends. Images stay when their archive is removed.
// A failing archive is logged and does not keep the others from being imported.
func (p *Preloader) Run(ctx context.Context, done func(error)) error {
	ctx = p.Local.Namespaced(ctx)
	if len(p.Dirs) == 0 {
		done(nil)
		<-ctx.Done()
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		err = fmt.Errorf("watch preload directories: %w", err)
		done(err)
		return err
	}
	defer func() { _ = w.Close() }()
	r := &run{Preloader: p, known: p.remembered(ctx), settling: map[string]time.Time{}}
	r.watch(w)
	done(r.scan(ctx))
	return r.follow(ctx, w)
}

// run is the state of one Run. It is used by one goroutine.
type run struct {
	*Preloader
	known map[string]imported
	// settling has files and directories that changed recently, with the time of their last event. "" stands for an event overflow.
	settling map[string]time.Time
	// retry is the time until failed archives are tried again; 0: none failed.
	retry time.Duration
}

// follow scans again after changes, and when a retry is due.
func (r *run) follow(ctx context.Context, w *fsnotify.Watcher) error {
	timer := time.NewTimer(maxRetry)
	r.schedule(timer)
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return errors.New("watch preload directories: watcher ended")
			}
			r.settling[ev.Name] = time.Now()
		case err := <-w.Errors: // an overflow: scan everything
			r.Log.Warn("watch preload directories", "err", err)
			r.settling[""] = time.Now()
		case <-r.retryNow:
			r.retry = 0 // failures while containerd was unreachable do not count
			_ = r.scan(ctx)
		case <-timer.C:
			r.settle()
			r.watch(w)
			_ = r.scan(ctx) // it logs its errors
		}
		r.schedule(timer)
	}
}

// settle removes the files that have settled.
func (r *run) settle() {
	for path, at := range r.settling {
		if time.Since(at) >= Settle {
			delete(r.settling, path)
		}
	}
}

// schedule sets the timer for settling files or a retry, or stops it.
func (r *run) schedule(timer *time.Timer) {
	switch {
	case len(r.settling) > 0:
		timer.Reset(Settle)
	case r.retry > 0:
		timer.Reset(r.retry)
	default:
		timer.Stop()
	}
}

// watch watches the preload directories, and for missing ones the nearest parent that exists.
func (r *run) watch(w *fsnotify.Watcher) {
	want := map[string]bool{}
	for _, dir := range r.Dirs {
		for d := filepath.Clean(dir); !want[d]; d = filepath.Dir(d) {
			if err := w.Add(d); err == nil {
				want[d] = true
			} else if !errors.Is(err, fs.ErrNotExist) {
				r.Log.Warn("watch preload directory", "directory", d, "err", err)
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	for _, d := range w.WatchList() {
		if !want[d] {
			_ = w.Remove(d)
		}
	}
}

// scan imports new and changed archives. The error has all archives that could not be imported.
func (r *run) scan(ctx context.Context) error {
	paths, err := archive.List(r.Dirs)
	if err != nil {
		r.Log.Warn("read preload directories", "err", err)
	}
	var errs []error
	succeeded, failed := false, false
	for _, path := range paths {
		if _, settling := r.settling[path]; settling {
			continue
		}
		now, err := stampOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile, which is an event
		}
		known, ok := r.known[path]
		if ok && known.err == nil && known.same(now) {
			continue
		}
		rec := imported{stamp: now, err: err}
		if err == nil {
			rec.Names, rec.err = r.importArchive(ctx, path)
		}
		r.report(ctx, path, rec, ok && known.err != nil && known.same(now))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.known[path] = rec
		r.Record(path, rec.Names)
		if rec.err != nil {
			errs = append(errs, fmt.Errorf("preload %s: %w", path, rec.err))
			failed = true
			continue
		}
		succeeded = true
	}
	r.retry = nextRetry(r.retry, failed)
	if succeeded {
		r.OnImport()
	}
	return errors.Join(errs...)
}

// nextRetry doubles the time between retries while archives fail.
func nextRetry(last time.Duration, failed bool) time.Duration {
	switch {
	case !failed:
		return 0
	case last == 0:
		return MinRetry
	}
	return min(2*last, maxRetry)
}

// report logs the result of an import, and remembers it on success. again: the unchanged archive failed before.
func (r *run) report(ctx context.Context, path string, rec imported, again bool) {
	log := r.Log.With("archive", path)
	switch {
	case ctx.Err() != nil:
	case rec.err != nil && again:
		log.Debug("preload archive still cannot be imported", "err", rec.err)
	case rec.err != nil:
		log.Warn("preload archive cannot be imported", "err", rec.err)
	default:
		log.Info("preload archive imported", "images", rec.Names)
		if err := r.remember(ctx, path, rec); err != nil {
			log.Warn("preload archive will be imported again at the next start", "err", err)
		}
	}
}
