// Package file is the source of manifests in a directory or a file: it watches them, reads what changed, and keeps the last good content
// of each.
//
// Goroutines: Source.Run, and one for each call to a file system that does not answer. It must not judge manifests: the Loader it is
// given does.
package file

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/watcher"
)

// fileSource is the name of a Source that has no other.
const fileSource = "file"

// Config configures a Source.
type Config struct {
	// Name is that of the source; empty means "file".
	Name string
	// Path is a directory or a file. It is taken literally, metacharacters mean nothing.
	Path string
	// CheckFrequency is the interval of full scans, which need no event; 0 means 20 s.
	CheckFrequency time.Duration
	// Load turns a file into pods.
	Load watcher.Loader
	// Log gets one line per file whose state changes; nil means none.
	Log *slog.Logger
	// Whole, which may be nil, is held while the files are read. Writers that change several files as one hold it too.
	Whole sync.Locker
	// Aside is for how long the pods of a file stay that gets a name that is not read, as a backup has; 0 means 1 s.
	Aside time.Duration
}

// Source reads the manifests of a directory (not of its sub-directories), or a single file.
type Source struct {
	cfg    Config
	log    *slog.Logger
	graces graces

	// The rest belongs to the goroutine of Run. It outlives a Run, so that one that follows a panic still has the
	// last good contents.
	inputs map[string]*input
	// order has the inputs by path; nil: there are others than before.
	order []*input
	// absent are the inputs that were missing from the last listing.
	absent []*input
	// calls are those to file systems that do not answer.
	calls *calls
	// rechecks are the inputs to read again although no event may announce their change.
	rechecks map[string]*input
	// listedAt is when the directory was last listed; zero: what it holds is not known.
	listedAt time.Time
	// distinct is set if no two inputs of the last Set contributed objects of the same name.
	distinct bool
	// read is set once the path has been listed; location is where that was.
	read     bool
	single   bool
	location location
	// replacedAt is when the directory was last found to be another one.
	replacedAt time.Time
	// lastLoss is when an input was last found missing.
	lastLoss time.Time
	ignored  map[string]model.Input
	path     model.Input
	notify   *notifier
	// deaf is why changes are only seen by the periodic read.
	deaf error
}

// New makes a Source; Run starts it.
func New(cfg Config) *Source {
	if cfg.CheckFrequency <= 0 {
		cfg.CheckFrequency = 20 * time.Second
	}
	if cfg.Name == "" {
		cfg.Name = fileSource
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := defaultGraces()
	g.aside = cmp.Or(cfg.Aside, g.aside)
	return &Source{
		cfg: cfg, log: cfg.Log.With("source", cfg.Name), graces: g,
		calls: newCalls(), inputs: map[string]*input{}, rechecks: map[string]*input{}, ignored: map[string]model.Input{},
	}
}

// Name implements Source.
func (s *Source) Name() string { return s.cfg.Name }

// Run implements Source.
func (s *Source) Run(ctx context.Context, out chan<- watcher.Set) error {
	path, err := filepath.Abs(s.cfg.Path)
	if err != nil {
		return err
	}
	s.cfg.Path = path
	defer s.stopListening()
	var last watcher.Set
	set, wake := s.scanAll()
	for first := true; ; first = false {
		if first || !watcher.SameSet(last, set) {
			watcher.LogChanges(s.log, last.Inputs, set.Inputs)
			watcher.Send(ctx, out, set)
			last = set
		}
		if !s.sleep(ctx, wake) {
			return nil
		}
		set, wake = s.scanChanged()
	}
}

// The pause between two scans is at least minGap and at least the duration of the last scan, so that a burst of events uses at most half a
// core.
const (
	minGap = time.Millisecond
	maxGap = 200 * time.Millisecond
)

// nextScan is when to look again: not before earliest, at latest at latest, in between on an event.
type nextScan struct {
	earliest time.Duration
	latest   time.Duration
}

// sleep waits for a reason to look again. It returns false when ctx ends.
func (s *Source) sleep(ctx context.Context, r nextScan) bool {
	if !watcher.Pause(ctx, r.earliest) {
		return false
	}
	t := time.NewTimer(max(r.latest-r.earliest, 0))
	defer t.Stop()
	var events <-chan struct{}
	if s.notify != nil {
		events = s.notify.trigger
	}
	select {
	case <-ctx.Done():
		return false
	case <-events:
	case <-t.C:
	}
	return true
}

// scanAll scans everything once, reads what changed, and returns the new Set and the time of the next scan.
func (s *Source) scanAll() (watcher.Set, nextScan) {
	defer s.hold()()
	start := time.Now()
	s.distinct = false // the last scan may not have come to its end
	s.lookAtAll(start, pending{})
	return s.conclude(start)
}

// scanChanged is a scan that reads as little as possible: an edit of one file among thousands costs one file.
func (s *Source) scanChanged() (watcher.Set, nextScan) {
	defer s.hold()()
	start := time.Now()
	h := s.drain()
	if files, ok := s.changedFiles(start, h); ok {
		for _, c := range files {
			s.visit(c, h.dirty[c.real])
		}
	} else {
		s.lookAtAll(start, h)
	}
	return s.conclude(start)
}

// hold keeps others from changing several files at once, until the function that it returns is called.
func (s *Source) hold() (release func()) {
	if s.cfg.Whole == nil {
		return func() {}
	}
	s.cfg.Whole.Lock()
	return s.cfg.Whole.Unlock
}

// lookAtAll lists the path and reads what may have changed.
func (s *Source) lookAtAll(start time.Time, h pending) {
	l := s.look(&h)
	if l.err == nil && s.unmounted(l) {
		l.err = errUnmounted
	}
	if l.err != nil {
		s.unreachable(start, l.err)
		return
	}
	s.reachable(start, l)
	for _, c := range l.files {
		s.visit(c, h.lost || h.dirty[c.real])
	}
	s.forget(start) // what is still missing from a listing made after its grace
}

// conclude returns the Set after a scan that began at start, and the time of the next one.
func (s *Source) conclude(start time.Time) (watcher.Set, nextScan) {
	now := time.Now()
	r := nextScan{earliest: min(max(minGap, now.Sub(start)), maxGap), latest: s.cfg.CheckFrequency}
	if s.listedAt.Before(start) && !s.listedAt.IsZero() {
		r.latest -= now.Sub(s.listedAt)
	}
	if due := s.due(); !due.IsZero() {
		r.latest = min(r.latest, due.Sub(now))
	}
	return s.assemble(now), r
}

// look lists the path with all watches in place: whatever changes after it comes as an event. What was heard until then
// is added to h.
func (s *Source) look(h *pending) (l listing) {
	s.listen()
	const rounds = 5 // each watch that is added may show another one to be needed, e.g. along a path being made
	for range rounds {
		h.add(s.drain())
		want := interests{}
		l = survey(s.cfg.Path, s.single, want, s.calls)
		if s.notify == nil {
			break
		}
		added, err := s.notify.watch(want)
		s.deaf = err
		if !added {
			break
		}
	}
	return l
}

// reachable takes note of a listing: where it was and which inputs are missing from it.
func (s *Source) reachable(now time.Time, l listing) {
	if s.read && s.location != l.location {
		s.replacedAt = now
	}
	s.read, s.location, s.single, s.listedAt = true, l.location, l.single, now
	s.path = watcher.KeepSince(now, s.path, model.Input{Source: s.cfg.Name, Input: s.cfg.Path, State: model.InputAccepted})
	ignored := make(map[string]model.Input, len(l.ignored))
	for path, why := range l.ignored {
		r := model.Input{Source: s.cfg.Name, Input: path, State: model.InputIgnored, Errors: []string{path + ": " + why}}
		ignored[path] = watcher.KeepSince(now, s.ignored[path], r)
	}
	s.ignored = ignored
	s.markMissing(now, l)
}

// unreachable takes note that nothing is known about the content at now. Nothing is removed: what was about to be
// forgotten stays.
func (s *Source) unreachable(now time.Time, err error) {
	r := model.Input{Source: s.cfg.Name, Input: s.cfg.Path, State: model.InputUnreachable, Errors: watcher.Lines(err), Cause: cause.Cause{Kind: cause.InputUnreachable}}
	s.path, s.listedAt = watcher.KeepSince(now, s.path, r), time.Time{}
	for _, in := range s.inputs {
		in.missing, in.writing = absence{}, writing{}
	}
}

// visit reads an input if it may have changed.
func (s *Source) visit(c candidate, dirty bool) {
	in := s.inputs[c.path]
	if in == nil {
		in = s.addInput(c)
		s.inputs[c.path], s.order = in, nil
	}
	if in.gone() {
		in.missing, s.distinct = absence{}, false
	}
	if c.err == nil && in.stable && in.id == c.id && !dirty {
		return
	}
	was := in.contributed
	s.reread(in, c)
	s.distinct = s.distinct && slices.Equal(was.Pods, in.contributed.Pods) && slices.Equal(was.Objects, in.contributed.Objects)
	if s.rechecks[c.path] = in; in.stable {
		delete(s.rechecks, c.path)
	}
}

// reread reads an input again.
func (s *Source) reread(in *input, c candidate) {
	if c.err != nil {
		in.fail(watcher.Lines(c.err))
		return
	}
	got, err := s.readIn(c.path, waitForWriters)
	if errors.Is(err, errBeingWritten) {
		waited := in.wait(time.Now(), got.id)
		switch {
		case waited >= writerPatience:
			got, err = s.readIn(c.path, readAnyway)
		case waited >= quietWrite:
			in.trouble = []string{in.path + ": " + err.Error()}
		}
	}
	if err != nil {
		in.reject(got, err)
		return
	}
	in.load(got, s.cfg.Load, s.graces.shrink)
}

// readIn is readFile, as long as the file system answers.
func (s *Source) readIn(path string, force force) (contents, error) {
	return within(s.calls, path, func() (contents, error) { return readFile(path, force) })
}

// addInput creates the input of a new path. If a file of another name was moved there, its state is kept.
func (s *Source) addInput(c candidate) *input {
	for _, in := range s.absent {
		if in.known && in.id.sameFile(c.id) {
			in.missing.patience = 0
			return in.moved(c.path)
		}
	}
	return &input{source: s.cfg.Name, path: c.path}
}

// Prompt reports that the first Set needs no waiting.
func (s *Source) Prompt() bool { return true }
