package file

import (
	"slices"
	"time"
)

// absence is how long an input is already missing from its directory.
type absence struct {
	// since is zero while it is there.
	since time.Time
	// patience is how long its pods stay wanted.
	patience time.Duration
}

// graces are the times for which what looks like a loss of pods is not believed. Tools that replace a file by
// removing it first (tar, git, editors), or write it piece by piece, need a moment until it is whole again.
type graces struct {
	// loss is for files that are gone. It counts from the last loss in the directory, so that a directory that is
	// being removed file by file is seen as removed and not as emptied; longestLoss bounds that.
	loss, longestLoss time.Duration
	// aside is for files renamed to a name that is not read: an editor's backup, or x.yaml.off.
	aside time.Duration
	// replaced is for files missing from a directory that took the place of another one: it may still be being filled.
	replaced time.Duration
	// shrink is for new content that holds fewer pods: scripts write a file piece by piece (cat a > all.yaml; cat b >>
	// all.yaml), and each piece may be valid.
	shrink time.Duration
}

func defaultGraces() graces {
	return graces{
		loss: 5 * time.Millisecond, longestLoss: 500 * time.Millisecond,
		aside: time.Second, replaced: 2 * time.Second, shrink: 250 * time.Millisecond,
	}
}

// markMissing starts the absence of all inputs that are not in l.
func (s *Source) markMissing(now time.Time, l listing) {
	present := make(map[string]bool, len(l.files))
	for _, c := range l.files {
		present[c.path] = true
	}
	var aside map[fileID]bool
	s.absent = s.absent[:0]
	for path, in := range s.inputs {
		if present[path] {
			continue
		}
		s.absent, s.distinct = append(s.absent, in), false
		if in.gone() {
			if s.replacedAt.After(in.missing.since) { // it was removed together with its directory
				in.missing = absence{since: s.replacedAt, patience: s.graces.replaced}
			}
			continue
		}
		if aside == nil {
			aside = backups(l.location.real)
		}
		s.lastLoss = now
		in.missing = absence{since: now, patience: s.graces.loss}
		switch {
		case now.Sub(s.replacedAt) < s.graces.replaced:
			in.missing.patience = s.graces.replaced
		case aside[in.id.fileID]:
			in.missing.patience = s.graces.aside
		}
	}
}

// gone reports whether the input is missing from its directory.
func (in *input) gone() bool { return !in.missing.since.IsZero() }

// deadline is when a missing input is forgotten.
func (s *Source) deadline(in *input) time.Time {
	m := in.missing
	if m.patience == s.graces.loss {
		last := min(s.lastLoss.Sub(m.since), s.graces.longestLoss)
		return m.since.Add(last + s.graces.loss)
	}
	return m.since.Add(m.patience)
}

// forget drops the inputs that have been missing for long enough. now is the start of the listing that did not contain them: a scan that is
// delayed must not use up their grace period.
func (s *Source) forget(now time.Time) {
	for _, in := range s.absent {
		if in.gone() && !s.deadline(in).After(now) {
			delete(s.inputs, in.path)
			delete(s.rechecks, in.path)
			s.order, s.distinct = nil, false
		}
	}
	s.absent = slices.DeleteFunc(s.absent, func(in *input) bool { return s.inputs[in.path] != in })
}

// due is when something is to be done without an event; zero when nothing is.
func (s *Source) due() time.Time {
	var due time.Time
	consider := func(at time.Time) {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	for _, in := range s.rechecks {
		if !in.gone() {
			consider(in.writing.next)
		}
	}
	for _, in := range s.absent {
		if in.gone() {
			consider(s.deadline(in))
		}
	}
	return due
}

// unmounted reports whether l is the empty directory under a mount point whose file system is gone. Such a listing carries no information
// about the manifests.
func (s *Source) unmounted(l listing) bool {
	return s.read && len(s.inputs) > 0 && len(l.files) == 0 &&
		l.location.real == s.location.real && l.location.mount != s.location.mount
}
