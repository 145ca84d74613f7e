package file

import (
	"maps"
	"os"
	"path/filepath"
	"time"
)

// heard is what events have told.
type heard struct {
	// dirty are the paths that have changed.
	dirty map[string]bool
	// lost says that events were lost: anything may have changed.
	lost bool
}

// hear takes what was told since the last call.
func (s *Source) hear() heard {
	if s.notify == nil {
		return heard{}
	}
	dirty, lost := s.notify.take()
	return heard{dirty: dirty, lost: lost}
}

func (h *heard) add(more heard) {
	h.lost = h.lost || more.lost
	if h.dirty == nil {
		h.dirty = more.dirty
		return
	}
	maps.Copy(h.dirty, more.dirty)
}

// glance looks at no more than the files that have changed or are to be looked at again. ok is false when the path must be
// listed: when events do not tell everything, when it was last listed too long ago, and when anything has changed but the
// content of manifests, and that new ones have come.
func (s *Source) glance(now time.Time, h heard) (files []candidate, ok bool) {
	if h.lost || len(h.dirty) == 0 && !s.awaited(now) || !s.overseen(now) {
		return nil, false
	}
	for path := range h.dirty {
		if !s.notify.plain(s.site.real, path) {
			return nil, false
		}
		c, ok := s.candidate(filepath.Base(path))
		if !ok {
			return nil, false
		}
		files = append(files, c)
	}
	for path := range s.restless {
		name := filepath.Base(path)
		if h.dirty[filepath.Join(s.site.real, name)] {
			continue
		}
		c, ok := s.candidate(name)
		if !ok {
			return nil, false
		}
		files = append(files, c)
	}
	return files, true
}

// overseen says that events tell of all that has changed since the last listing: of a directory, not long ago, of which
// nothing was missing. Where several files change as one, the events of some of them may be on their way.
func (s *Source) overseen(now time.Time) bool {
	return s.notify != nil && s.deaf == nil && !s.single && s.cfg.Whole == nil && now.Sub(s.listedAt) < s.cfg.CheckFrequency && len(s.absent) == 0 &&
		identifySite(s.site.real) == s.site
}

// awaited says that there is an input whose time has come to be looked at again.
func (s *Source) awaited(now time.Time) bool {
	for _, in := range s.restless {
		if next := in.writing.next; !next.IsZero() && !next.After(now) {
			return true
		}
	}
	return false
}

// plain says that path, in dir, is that of a manifest by its name, and not on the way to another file.
func (n *notifier) plain(dir, path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := filepath.Base(path)
	return filepath.Dir(path) == dir && classify(name) == manifest && !n.interests[dir].names[name]
}

// candidate looks at a manifest in the directory. ok is false if it is not a file that is there.
func (s *Source) candidate(name string) (c candidate, ok bool) {
	c = candidate{path: filepath.Join(s.cfg.Path, name), real: filepath.Join(s.site.real, name)}
	info, err := os.Lstat(c.real)
	if err != nil || !info.Mode().IsRegular() {
		return c, false
	}
	if _, other := s.ignored[c.path]; other { // it was something else
		return c, false
	}
	c.id = identify(info)
	return c, true
}
