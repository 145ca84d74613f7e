// Package fetch is the source of manifests from URLs and registries: it polls them, verifies signatures, and keeps a copy of the last good
// answer on disk for the next start.
//
// Goroutines: Remote.Run only. It must not judge manifests: the Loader it is given does.
package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
)

// Fetcher asks the place of a remote source, whatever its protocol is.
type Fetcher interface {
	// Fetch returns the current answer. seen identifies the accepted answer; if that is still current, the error is ErrNotModified. It is a
	// *Refusal if the answer must not be used, and a *Later if the server set the time of the next request.
	Fetch(ctx context.Context, seen Validators) (*Answer, error)
	// Close gives back idle connections.
	Close()
}

// Validators identify the known answer to the server: those of HTTP, or a digest as ETag.
type Validators struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
}

// Answer is the answer to one request.
type Answer struct {
	Body []byte
	// Signature vouches for Body and came apart from it; nil when there is none.
	Signature []byte
	Validators
}

// ErrNotModified reports that the accepted answer is still current.
var ErrNotModified = errors.New("not modified")

// Refusal is an answer that came but must not be used.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the reason.
func (r *Refusal) Unwrap() error { return r.Err }

func refuse(format string, args ...any) error { return &Refusal{fmt.Errorf(format, args...)} }

// Later is a failure with the time of the next request set by the server.
type Later struct {
	Err   error
	After time.Duration
}

func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the failure.
func (l *Later) Unwrap() error { return l.Err }

// Verify checks an answer, as it was received, before anything of it is parsed. It returns the manifests in it, which
// are the body itself unless that is an envelope, and the version it was signed with, 0 when it has none.
type Verify func(ctx context.Context, body, signature []byte) (payload []byte, version uint64, err error)

// RemoteConfig configures a Remote.
type RemoteConfig struct {
	// Name is that of the source.
	Name string
	// Input is how reports and origins call the place: its URL without password.
	Input string
	// Place is the full URL. It is stored as a hash only.
	Place string
	// Fetcher asks the place.
	Fetcher Fetcher
	// Period is the time between two requests; 0 means 20 s.
	Period time.Duration
	// Load turns the manifests of an answer into content. What it returns besides an error counts, object by object.
	Load watcher.Loader
	// Atomic refuses an answer as a whole when anything in it is refused.
	Atomic bool
	// Verify vouches for answers, also for the copy on disk; nil takes them as they are.
	Verify Verify
	// Copy keeps the last good answer; nil: it is not kept.
	Copy *Copy
	// Log gets one line when the state of the source changes; nil means none.
	Log *slog.Logger
	// Now is the clock of what is shown and kept; nil means the machine's.
	Now func() time.Time
}

// Times of a Remote.
const (
	// firstRetry is the pause after a first failure; it doubles up to Period.
	firstRetry = time.Second
	// longestLater is the longest pause that a place may ask for.
	longestLater = 10 * time.Minute
	// jitter is the share by which a pause is shortened or extended, so that a fleet does not poll in step.
	jitter = 0.1
)

// Remote reads the manifests of one remote place. Only a complete answer changes what it wants; anything else is
// reported, and the last good content stays. It begins with the copy of that on disk, before the place is asked.
type Remote struct {
	cfg RemoteConfig
	log *slog.Logger

	// The fields below belong to the goroutine of Run. They outlive a Run, so that the next one, after a panic, resumes with them.
	set watcher.Set
	// content is what counts, by the last answer that was taken over; flaws is what is wrong with parts of that answer.
	content manifests.Content
	flaws   error
	// clear is set if no error in that answer can concern an object that content lacks.
	clear bool
	// whole is set once content was everything the source wanted, in this run. fresh is set if nothing can run from the source since before
	// this run.
	whole, fresh bool
	// asked is set once a request has been made in this run.
	asked bool
	// good is the hash of the accepted answer, bad that of the last one refused as a whole; badErr is the reason.
	good, bad [sha256.Size]byte
	badErr    error
	// seen belongs to the answer in effect.
	seen Validators
	// signed is set if answers have versions.
	signed bool
	// loaded is set once the copy on disk has been read. copied is when the accepted answer was received, while that is known from the copy
	// only; otherwise zero.
	loaded bool
	copied time.Time
	age    string
	// kept is the hash of the copy on disk, unkept of the one that should be there; copyErr is why it is not.
	kept    [sha256.Size]byte
	unkept  *Kept
	copyErr error
	// version is that of the accepted answer, highest the maximum of all accepted ones, raised the part of it that is stored on disk;
	// versionErr is why storing failed.
	version, highest, raised uint64
	versionErr               error
	// failures counts requests in a row that did not give a valid answer; later is the pause the place asked for.
	failures int
	later    time.Duration
	// retry is the time of the next request after a failure.
	retry *model.Retry
}

// NewRemote makes a Remote; Run starts it.
func NewRemote(cfg RemoteConfig) *Remote {
	if cfg.Period <= 0 {
		cfg.Period = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	signed := cfg.Verify != nil
	if !signed {
		cfg.Verify = func(_ context.Context, body, _ []byte) ([]byte, uint64, error) { return body, 0, nil }
	}
	return &Remote{cfg: cfg, signed: signed, log: cfg.Log.With("source", cfg.Name), retry: &model.Retry{}, set: watcher.Set{Source: cfg.Name, Unread: true, Partial: true}}
}

// Name implements Source.
func (s *Remote) Name() string { return s.cfg.Name }

// Run implements Source.
func (s *Remote) Run(ctx context.Context, out chan<- watcher.Set) error {
	defer s.cfg.Fetcher.Close()
	var last watcher.Set
	first := true
	tell := func() {
		if first || !watcher.SameSet(last, s.set) {
			watcher.LogChanges(s.log, last.Inputs, s.set.Inputs)
			watcher.Send(ctx, out, s.set)
			first, last = false, s.set
		}
	}
	if found, err := s.restore(ctx); found {
		s.note(err)
		s.failures = 0 // no request was sent
		tell()
	}
	for {
		err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.doubt(err)
		s.note(err)
		tell()
		if !watcher.Pause(ctx, spread(s.delay())) {
			return nil
		}
	}
}

// ask makes one request and takes over a good answer.
func (s *Remote) ask(ctx context.Context) error {
	answer, err := s.cfg.Fetcher.Fetch(ctx, s.seen)
	switch {
	case errors.Is(err, ErrNotModified) && s.good != [sha256.Size]byte{}:
		return s.confirm() // only the validators of the answer in effect are ever sent
	case err != nil:
		return err
	}
	return s.take(ctx, answer)
}

// confirm notes that the accepted answer is still current.
func (s *Remote) confirm() error {
	if err := s.outdated(s.version); err != nil {
		return &Refusal{fmt.Errorf("%s: %w", s.cfg.Input, err)}
	}
	s.copied = time.Time{}
	s.keep()
	s.know(s.clear) // after all, it was not stale
	return s.flaws
}

// take judges an answer, unless it is the one that was judged last.
func (s *Remote) take(ctx context.Context, a *Answer) error {
	sum := sumOf(a.Body, a.Signature)
	switch {
	case sum == s.good:
		s.seen = a.Validators
		return s.confirm()
	case s.badErr != nil && sum == s.bad:
		return s.badErr
	}
	payload, version, err := s.cfg.Verify(ctx, a.Body, a.Signature)
	if err == nil {
		err = s.outdated(version)
	}
	if err != nil { // asked again, for keys may change
		return &Refusal{fmt.Errorf("%s: %w", s.cfg.Input, err)}
	}
	got, err := s.judge(payload)
	if err != nil {
		s.bad, s.badErr = sum, &Refusal{err}
		return s.badErr
	}
	var counts []byte
	if got.held {
		if counts, err = listOf(&got.content); err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Input, err)
		}
	}
	s.unkept = &Kept{
		Body: a.Body, Signature: a.Signature, Counts: counts,
		Stamp: Stamp{Place: hashOf(s.cfg.Place), Validators: a.Validators, Version: version, Received: s.cfg.Now().UTC()},
	}
	s.highest = max(s.highest, version)
	s.keep()
	s.seen, s.copied = a.Validators, time.Time{}
	s.version = version
	s.accept(sum, got)
	s.know(got.whole)
	return s.flaws
}

// outdated is the error of an answer that is older than one that was accepted before.
func (s *Remote) outdated(version uint64) error {
	if version >= s.highest {
		return nil
	}
	return fmt.Errorf("version %d is older than version %d, which was accepted before", version, s.highest)
}

// verdict is what an answer comes to.
type verdict struct {
	partly
	// flaws is what is wrong with parts of it.
	flaws error
}

// judge decides what of the manifests of an answer counts. The error refuses all of it.
func (s *Remote) judge(payload []byte) (verdict, error) {
	now, err := watcher.SafeLoad(s.cfg.Load, s.cfg.Input, payload)
	if now != nil {
		err = errors.Join(err, watcher.ImmutableEdits(&s.content, now))
	}
	if err == nil {
		return verdict{partly: partly{content: *now, whole: true}}, nil
	}
	problems := manifests.Errors(err)
	if now == nil || s.cfg.Atomic || len(problems) == 0 {
		return verdict{}, err
	}
	v := verdict{partly: acceptPartly(&s.content, now, problems), flaws: &Refusal{err}}
	if len(identities(now)) == 0 {
		return verdict{}, err // nothing of it counts
	}
	return v, nil
}

// accept makes an answer the one in effect.
func (s *Remote) accept(sum [sha256.Size]byte, v verdict) {
	s.good, s.content, s.flaws = sum, v.content, v.flaws
	s.bad, s.badErr = [sha256.Size]byte{}, nil // after other content the refused one may be right
	s.clear = v.whole
	s.set.Pods, s.set.Objects, s.set.Workloads = v.content.Pods, v.content.Objects, v.content.Workloads
}

// know notes whether content is all that the source wants.
func (s *Remote) know(whole bool) {
	s.whole = s.whole || whole
	s.set.Unread = !s.whole && !s.fresh
}

// doubt notes, by the result of a request, whether the source may want more than is known.
func (s *Remote) doubt(err error) {
	var refused *Refusal
	switch {
	case err == nil, err == s.flaws: //nolint:errorlint // that very error: the rest of the answer counts
		s.set.Partial = !s.clear
	case errors.As(err, &refused):
		s.set.Partial = true
	case !s.asked:
		s.set.Partial = false // without requests, the copy decides it
	}
	s.asked = true
}

// note enters the outcome of a request into the set.
func (s *Remote) note(err error) {
	r := model.Input{Source: s.cfg.Name, Input: s.cfg.Input, State: model.InputUnreachable, Errors: watcher.Bounded(watcher.Lines(err)), FromDisk: s.copied}
	for i := range r.Errors {
		r.Errors[i] = localAddress.ReplaceAllString(r.Errors[i], "$1")
	}
	s.failures++
	var refused *Refusal
	var later *Later
	s.later = 0
	switch {
	case err == nil:
		r.State, s.failures = model.InputAccepted, 0
	case err == s.flaws: //nolint:errorlint // that very error: the rest of the answer counts
		r.State, s.failures = model.InputRefused, 0
	case errors.As(err, &refused):
		r.State = model.InputRefused
	case errors.As(err, &later):
		s.later = min(later.After, longestLater)
	}
	switch r.State {
	case model.InputUnreachable:
		r.Cause = causeOf(err)
	case model.InputRefused:
		r.Mistaken = mistaken(err)
	}
	r.Problems = watcher.Problems(err)
	s.scheduled(err)
	r.Retry = s.retry
	r = watcher.WithContent(r, &s.content)
	if !s.copied.IsZero() {
		r.Errors = append(r.Errors, s.age)
	}
	for _, err := range []error{s.copyErr, s.versionErr} {
		r.Errors = append(r.Errors, watcher.Lines(err)...)
	}
	var was model.Input
	if len(s.set.Inputs) > 0 {
		was = s.set.Inputs[0]
	}
	s.set.Inputs = []model.Input{watcher.KeepSince(s.cfg.Now(), was, r)} // a new slice: the old one was sent
}

// scheduled records the time of the next request after a failure.
func (s *Remote) scheduled(err error) {
	if err == nil {
		s.retry.Set(time.Time{})
		return
	}
	s.retry.Set(s.cfg.Now().Add(s.delay()))
}

// localAddress is our side of a connection in an error text. Its port is another one each time, which would make
// every failed attempt look like news.
var localAddress = regexp.MustCompile(`((?:tcp|udp)[46]? )[0-9A-Fa-f.:\[\]%a-z]+->`)

// delay is the pause before the next request.
func (s *Remote) delay() time.Duration {
	if s.failures == 0 {
		return s.cfg.Period
	}
	return max(s.later, min(s.cfg.Period, firstRetry<<min(s.failures-1, 10)))
}

// spread makes d up to a jitter shorter or longer.
func spread(d time.Duration) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*jitter*float64(d))
}

func sumOf(parts ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, p := range parts {
		one := sha256.Sum256(p)
		h.Write(one[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Prompt reports whether a copy of the last good answer can be used at once.
func (s *Remote) Prompt() bool { return s.cfg.Copy != nil && s.cfg.Copy.exists() }

func (c *Copy) exists() bool {
	for _, name := range []string{copyFile, staleFile} {
		if _, err := os.Stat(filepath.Join(c.dir, name)); err == nil {
			return true
		}
	}
	return false
}
