package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/fsnotify/fsnotify"

	"monopod/internal/regular"
)

// settle is how long a file must be quiet before it is read: one that is being copied is not complete.
const settle = 300 * time.Millisecond

// An archive that could not be imported is tried again when it changes, when containerd is back, and also by itself
// after these times: the reason may have been a full disk.
const (
	minRetry = 30 * time.Second
	maxRetry = time.Hour
)

// stamp tells whether a file is the one we know.
type stamp struct {
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
	Inode uint64    `json:"inode"`
}

// imported is what we remember about an archive: in memory, and in containerd as a label of the namespace, so
// that it shares the fate of the images.
type imported struct {
	stamp
	Names []string `json:"names"`

	// err is why it could not be imported.
	err error
}

// preloader imports the archives of the preload directories. It belongs to one goroutine.
type preloader struct {
	store *Store
	known map[string]imported
	// hot are files and directories with the time of their last event: they may not be complete yet.
	hot map[string]time.Time
	// retry is how long to wait before failed archives are tried again; 0: none failed.
	retry time.Duration
}

// RunPreload imports all archives of the preload directories, reports to done once, then watches them for
// changes until ctx ends. A directory that does not exist is waited for. An archive that is removed leaves
// its images; one that fails is logged and does not stop the others.
func (s *Store) RunPreload(ctx context.Context, done func(error)) error {
	ctx = s.namespaced(ctx)
	if len(s.cfg.PreloadDirs) == 0 {
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
	p := &preloader{store: s, known: s.remembered(ctx), hot: map[string]time.Time{}}
	p.watch(w)
	done(p.scan(ctx))
	return p.follow(ctx, w)
}

// follow scans again when something changed, and when a retry is due.
func (p *preloader) follow(ctx context.Context, w *fsnotify.Watcher) error {
	timer := time.NewTimer(maxRetry)
	p.rest(timer)
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return errors.New("watch preload directories: watcher ended")
			}
			p.hot[ev.Name] = time.Now()
			p.rest(timer)
		case err := <-w.Errors: // an overflow: look at everything
			p.store.cfg.Log.Warn("watch preload directories", "error", err)
			p.hot[""] = time.Now()
			p.rest(timer)
		case <-p.store.back:
			p.retry = 0 // what failed while containerd was away says nothing of the archives
			_ = p.scan(ctx)
			p.rest(timer)
		case <-timer.C:
			p.cool()
			p.watch(w)
			_ = p.scan(ctx) // logged there
			p.rest(timer)
		}
	}
}

// Back says that containerd can be reached again, so that archives whose import it interrupted do not wait for their next
// retry.
func (s *Store) Back() {
	select {
	case s.back <- struct{}{}:
	default: // said, and not heard yet
	}
}

// cool forgets events that are old enough.
func (p *preloader) cool() {
	for path, at := range p.hot {
		if time.Since(at) >= settle {
			delete(p.hot, path)
		}
	}
}

// rest sets the timer for what comes next: hot files, a retry, or nothing.
func (p *preloader) rest(timer *time.Timer) {
	switch {
	case len(p.hot) > 0:
		timer.Reset(settle)
	case p.retry > 0:
		timer.Reset(p.retry)
	default:
		timer.Stop()
	}
}

// watch watches the preload directories, and for those that do not exist the nearest parent that does.
func (p *preloader) watch(w *fsnotify.Watcher) {
	want := map[string]bool{}
	for _, dir := range p.store.cfg.PreloadDirs {
		for d := filepath.Clean(dir); !want[d]; d = filepath.Dir(d) {
			if err := w.Add(d); err == nil {
				want[d] = true
			} else if !errors.Is(err, fs.ErrNotExist) {
				p.store.cfg.Log.Warn("watch preload directory", "directory", d, "error", err)
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

// scan imports what is new or changed. The error names every archive that could not be imported.
func (p *preloader) scan(ctx context.Context) error {
	var errs []error
	brought, failed := false, false
	for _, path := range p.archives() {
		if _, hot := p.hot[path]; hot {
			continue
		}
		now, err := stampOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile, which is an event
		}
		known, ok := p.known[path]
		if ok && known.err == nil && known.same(now) {
			continue
		}
		again := ok && known.err != nil && known.same(now)
		rec := imported{stamp: now, err: err}
		if err == nil {
			rec.Names, rec.err = p.store.importArchive(ctx, path)
		}
		p.log(ctx, path, rec, again)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.known[path] = rec
		p.store.noteArchive(path, rec.Names)
		if rec.err != nil {
			errs = append(errs, fmt.Errorf("preload %s: %w", path, rec.err))
			failed = true
			continue
		}
		brought = true
	}
	p.retry = nextRetry(p.retry, failed)
	if brought {
		p.store.cfg.OnNew()
	}
	if brought && p.store.cfg.OnChange != nil {
		p.store.cfg.OnChange()
	}
	return errors.Join(errs...)
}

// nextRetry doubles the time between retries as long as something fails.
func nextRetry(last time.Duration, failed bool) time.Duration {
	switch {
	case !failed:
		return 0
	case last == 0:
		return minRetry
	}
	return min(2*last, maxRetry)
}

// log logs how the import of an archive went, and remembers one that succeeded. again says that it failed before as it is.
func (p *preloader) log(ctx context.Context, path string, rec imported, again bool) {
	log := p.store.cfg.Log.With("archive", path)
	switch {
	case ctx.Err() != nil:
	case rec.err != nil && again:
		log.Debug("preload archive still cannot be imported", "error", rec.err)
	case rec.err != nil:
		log.Warn("preload archive cannot be imported", "error", rec.err)
	default:
		log.Info("preload archive imported", "images", rec.Names)
		if err := p.store.remember(ctx, path, rec); err != nil {
			log.Warn("preload archive will be imported again at the next start", "error", err)
		}
	}
}

// archives lists the archives of all directories, by name within each.
func (p *preloader) archives() []string {
	var paths []string
	for _, dir := range p.store.cfg.PreloadDirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.store.cfg.Log.Warn("read preload directory", "directory", dir, "error", err)
		}
		for _, e := range entries {
			if _, ok := archiveStem(e.Name()); ok {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths
}

// stampOf follows links: a preload directory may be made of them.
func stampOf(path string) (stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	if !st.Mode().IsRegular() {
		return stamp{}, &fs.PathError{Op: "open", Path: path, Err: regular.ErrSpecial}
	}
	s := stamp{Size: st.Size(), MTime: st.ModTime().UTC()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.Inode = sys.Ino
	}
	return s, nil
}

func (s stamp) same(o stamp) bool {
	return s.Size == o.Size && s.Inode == o.Inode && s.MTime.Equal(o.MTime)
}

// labelPreload starts the keys of namespace labels that remember archives. The rest is a hash of the path.
const labelPreload = "monopod.dev/preload."

// memo is the value of such a label. Labels hold 4096 bytes with their key: an archive with very many images
// is not remembered and imported at each start.
type memo struct {
	Path string `json:"path"`
	imported
}

func (s *Store) remember(ctx context.Context, path string, rec imported) error {
	b, err := json.Marshal(memo{Path: path, imported: rec})
	if err != nil {
		return err
	}
	return s.client.NamespaceService().SetLabel(ctx, s.namespace(ctx), memoKey(path), string(b))
}

func memoKey(path string) string {
	return fmt.Sprintf("%s%x", labelPreload, sha256.Sum256([]byte(path)))
}

// remembered returns the archives that were imported in earlier runs and whose images are all still here.
func (s *Store) remembered(ctx context.Context) map[string]imported {
	known := map[string]imported{}
	labels, err := s.client.NamespaceService().Labels(ctx, s.namespace(ctx))
	if err != nil {
		if !errdefs.IsNotFound(err) {
			s.cfg.Log.Warn("preload archives are imported again", "error", err)
		}
		return known
	}
	for key, value := range labels {
		var m memo
		if err := json.Unmarshal([]byte(value), &m); err != nil || memoKey(m.Path) != key {
			continue // another label
		}
		missing := func(name string) bool { _, err := s.present(ctx, name); return err != nil }
		if !slices.ContainsFunc(m.Names, missing) {
			known[m.Path] = m.imported
			if slices.Contains(s.cfg.PreloadDirs, filepath.Dir(m.Path)) {
				s.noteArchive(m.Path, m.Names)
			}
		}
	}
	return known
}
