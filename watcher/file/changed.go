package file

import (
	"maps"
	"os"
	"path/filepath"
	"time"
)

// pending are the changes that events have reported.
type pending struct {
	// dirty are the paths that have changed.
	dirty map[string]bool
	// lost is set if events were lost: anything may have changed.
	lost bool
}

// drain returns the events since the last call.
func (s *Source) drain() pending {
	if s.notify == nil {
		return pending{}
	}
	dirty, lost := s.notify.take()
	return pending{dirty: dirty, lost: lost}
}

func (h *pending) add(more pending) {
	h.lost = h.lost || more.lost
	if h.dirty == nil {
		h.dirty = more.dirty
		return
	}
	maps.Copy(h.dirty, more.dirty)
}

// changedFiles returns the files that changed or are due to be read again. ok is false if the path must be listed: when events may be
// incomplete, when the last listing is too old, and when anything but the content or the appearance of manifests has changed.
func (s *Source) changedFiles(now time.Time, h pending) (files []candidate, ok bool) {
	if h.lost || len(h.dirty) == 0 && !s.anyDue(now) || !s.tracked(now) {
		return nil, false
	}
	for path := range h.dirty {
		if !s.notify.plain(s.location.real, path) {
			return nil, false
		}
		c, ok := s.candidate(filepath.Base(path))
		if !ok {
			return nil, false
		}
		files = append(files, c)
	}
	for path := range s.rechecks {
		name := filepath.Base(path)
		if h.dirty[filepath.Join(s.location.real, name)] {
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

// tracked reports whether events cover all changes since the last listing: the path is a directory, the listing is recent, and no input was
// missing. Where several files change as one, the events of some may still be on their way.
func (s *Source) tracked(now time.Time) bool {
	return s.notify != nil && s.deaf == nil && !s.single && s.cfg.Whole == nil && now.Sub(s.listedAt) < s.cfg.CheckFrequency && len(s.absent) == 0 &&
		identifySite(s.location.real) == s.location
}

// anyDue reports whether an input is due to be read again.
func (s *Source) anyDue(now time.Time) bool {
	for _, in := range s.rechecks {
		if next := in.writing.next; !next.IsZero() && !next.After(now) {
			return true
		}
	}
	return false
}

// plain reports whether path, in dir, is a manifest by its name and not part of the way to another file.
func (n *notifier) plain(dir, path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := filepath.Base(path)
	return filepath.Dir(path) == dir && classify(name) == manifest && !n.interests[dir].names[name]
}

// candidate inspects one manifest in the directory. ok is false if it is not an existing file.
func (s *Source) candidate(name string) (c candidate, ok bool) {
	c = candidate{path: filepath.Join(s.cfg.Path, name), real: filepath.Join(s.location.real, name)}
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
