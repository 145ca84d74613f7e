package file

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"slices"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
)

// input is one file with its last good content:
//
//	           read, valid                read, invalid
//	(new) ------------------> Accepted <----------------> Refused     verdict; content stays that of the last valid read
//	   \_ cannot be read ___> (either, with trouble) _____/           shown as Unreachable until it can be read again
//	missing from its directory ---- patience passes ----> (forgotten) its pods are no longer wanted
type input struct {
	// source is the name of its source.
	source string
	path   string
	// id is what was read last; it is only compared when stable is set.
	id     identity
	stable bool
	// sum is the hash of what was judged last.
	sum    [sha256.Size]byte
	judged bool

	verdict  model.InputState
	reasons  []string
	problems []model.Problem
	// trouble is why it cannot be read now.
	trouble []string
	// known is set once content was read in this run.
	known   bool
	content manifests.Content
	// contributed are the names in content, kept because every Set names them.
	contributed model.Input

	// state and since are what was reported last.
	state model.InputState
	since time.Time

	missing absence
	writing writing
}

// writing is the wait for the end of a write.
type writing struct {
	// id was seen unchanged since then; since is zero if nothing is awaited.
	id    identity
	since time.Time
	// next is when to look again, after a pause that grows.
	next  time.Time
	pause time.Duration
}

// Recheck intervals of an input that is open for writing. Its content is accepted after writerPatience without a change, because a process
// may keep it open forever.
const (
	firstWritePause = time.Millisecond
	lastWritePause  = 100 * time.Millisecond
	writerPatience  = 5 * time.Second
	// quietWrite is how long a write may take before it is reported.
	quietWrite = time.Second
)

// wait notes that the input, seen as id, is not trusted yet at now. Returns the time since its last change.
func (in *input) wait(now time.Time, id identity) time.Duration {
	w := &in.writing
	if w.since.IsZero() || w.id != id {
		w.id, w.since, w.pause = id, now, 0
	}
	w.pause = min(max(2*w.pause, firstWritePause), lastWritePause)
	w.next = now.Add(w.pause)
	in.stable = false
	return now.Sub(w.since)
}

// load replaces the content by what was read, unless that is what it had.
func (in *input) load(c contents, load watcher.Loader, shrink time.Duration) {
	if in.judged && in.sum == c.sum {
		in.settle(c)
		return
	}
	got, err := watcher.SafeLoad(load, in.path, c.data)
	if err == nil && loses(&in.content, got) && in.wait(time.Now(), c.id) < shrink {
		return
	}
	in.settle(c)
	in.sum, in.judged = c.sum, true
	if err == nil {
		err = watcher.ImmutableEdits(&in.content, got)
	}
	if err != nil {
		in.refuse(watcher.Lines(err))
		in.problems = watcher.Problems(err)
		return
	}
	in.verdict, in.reasons, in.problems, in.known = model.InputAccepted, nil, nil, true
	in.take(*got)
}

// take replaces the content.
func (in *input) take(c manifests.Content) {
	in.content, in.contributed = c, watcher.WithContent(model.Input{State: model.InputAccepted}, &c)
}

// settle notes that the content of c has been dealt with.
func (in *input) settle(c contents) {
	in.id, in.stable, in.trouble, in.writing = c.id, c.stable, nil, writing{}
}

// loses reports whether a pod or object of old is missing from now.
func loses(old, now *manifests.Content) bool {
	there := make(map[manifests.Key]bool, len(now.Pods))
	for _, p := range now.Pods {
		there[p.Key()] = true
	}
	objects := manifests.NewObjects(slices.Concat(now.Objects, now.Workloads))
	gone := func(o *manifests.Object) bool { return objects.Get(o.ID()) == nil }
	return slices.ContainsFunc(old.Pods, func(p *manifests.Pod) bool { return !there[p.Key()] }) ||
		slices.ContainsFunc(old.Objects, gone) || slices.ContainsFunc(old.Workloads, gone)
}

// reject takes the error of readFile.
func (in *input) reject(got contents, err error) {
	switch {
	case errors.Is(err, errBeingWritten), errors.Is(err, fs.ErrNotExist):
		in.stable = false // it changes right now: an event, or writing.next, brings us back
	case errors.Is(err, errTooLarge):
		in.settle(got)
		in.judged = false
		in.refuse([]string{in.path + ": " + err.Error()})
	default:
		in.fail(watcher.Lines(err))
	}
}

func (in *input) refuse(reasons []string) {
	in.verdict, in.reasons, in.problems = model.InputRefused, watcher.Bounded(reasons), nil
}

// fail notes that it cannot be read now.
func (in *input) fail(reasons []string) {
	in.trouble, in.stable, in.writing = reasons, false, writing{}
}

// moved returns the input under another path: the file was renamed.
func (in *input) moved(path string) *input {
	out := &input{source: in.source, path: path, known: in.known, verdict: in.verdict, reasons: in.reasons, problems: in.problems, state: in.state, since: in.since}
	c := manifests.Content{Notes: in.content.Notes, Ignored: in.content.Ignored}
	for _, p := range in.content.Pods {
		origin := p.Origin
		origin.File = path
		c.Pods = append(c.Pods, &manifests.Pod{Object: p.Object, Origin: origin, Owner: p.Owner})
	}
	c.Objects, c.Workloads = movedObjects(in.content.Objects, path), movedObjects(in.content.Workloads, path)
	out.take(c)
	return out
}

func movedObjects(objects []*manifests.Object, path string) []*manifests.Object {
	var out []*manifests.Object
	for _, o := range objects {
		origin := o.Origin
		origin.File = path
		out = append(out, &manifests.Object{Object: o.Object, Kind: o.Kind, Origin: origin, Owner: o.Owner})
	}
	return out
}

// report returns the state of the input at now. ok is false while nothing is known about a new file.
func (in *input) report(now time.Time) (r model.Input, ok bool) {
	state, reasons := in.verdict, in.reasons
	if len(in.trouble) > 0 {
		state, reasons = model.InputUnreachable, in.trouble
	}
	if state == "" {
		return model.Input{}, false
	}
	r = model.Input{Source: in.source, Input: in.path, State: state, Errors: reasons, Pods: in.contributed.Pods, Objects: in.contributed.Objects}
	if state == model.InputAccepted {
		r.State, r.Errors = in.contributed.State, in.contributed.Errors
	}
	if state == model.InputRefused {
		r.Problems = in.problems
	}
	if in.state != r.State {
		in.state, in.since = r.State, now
	}
	r.Since = in.since
	return r, true
}
