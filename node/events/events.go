// Package events keeps the record of what happened to pods, to the inputs and to the daemon: events in the shape of a
// Kubernetes v1 Event, bounded in memory and on disk, which a power cut or a full disk does not damage.
//
// It owns the files in its directory. It must not decide anything, nor know who records or asks.
//
// Who records never waits for the disk: Recorder.Event changes memory only. What repeats raises a count, which is
// written once a minute at most; when nothing happens, nothing is written.
//
//	Event -> book (memory, newest entries) --Run--> events.log --full--> events.old
//	                     ^                              |                    |
//	                     +------------- load -----------+--------------------+
//
// The order of events is that of boots, and within a boot of the time since it (CLOCK_BOOTTIME). The wall clock, which
// may be wrong or jump, is only shown.
//
// Goroutines: none of its own; Recorder.Run writes in that of its caller.
package events

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
)

// Kinds of objects besides Pod and Node that events are about.
const (
	// KindInput is a file, directory or URL that manifests are read from; its name is the path or URL.
	KindInput = "Input"
)

// Filter selects events by the object that they are about. Empty fields select all.
type Filter struct {
	// Kind is Pod, Node or Input.
	Kind, Namespace, Name string
	// After selects those that came, or came again, after the event with this resource version.
	After uint64
}

// Config of a Recorder. New fills in zero fields.
type Config struct {
	// Dir is where the record is kept. It is made when something is written.
	Dir string
	// Node is the name of this machine.
	Node string
	Log  *slog.Logger
	// Seen is called with the type and reason of each event; it must not block. It may be nil.
	Seen func(eventType, reason string)
	// Now is the clock; default: boottime.Now.
	Now func() boottime.Moment
	// MaxFile is the size of each of the two files, in bytes. Half of it bounds what is kept in memory.
	MaxFile int64
	// WriteAfter is how long new events may wait for others before they are written together.
	WriteAfter time.Duration
	// CountAfter is how long the counts of events that repeat may wait.
	CountAfter time.Duration
}

const (
	defaultMaxFile    = 512 << 10
	defaultWriteAfter = time.Second
	defaultCountAfter = time.Minute
	// lastRetry is the longest wait between attempts to write to a disk that refuses.
	lastRetry = time.Minute
)

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Seen == nil {
		c.Seen = func(string, string) {}
	}
	if c.Now == nil {
		c.Now = boottime.Now
	}
	if c.MaxFile <= 0 {
		c.MaxFile = defaultMaxFile
	}
	if c.WriteAfter <= 0 {
		c.WriteAfter = defaultWriteAfter
	}
	if c.CountAfter <= 0 {
		c.CountAfter = defaultCountAfter
	}
	return c
}

// Recorder is the record of a daemon. All methods may be called from any goroutine; Run only once.
type Recorder struct {
	cfg Config
	// changed wakes Run: there is something to write.
	changed chan struct{}
	loading sync.Once

	mu sync.Mutex
	// All below is guarded by mu.
	book *book // nil until the record has been read
	// early holds the events that came before that, within the same bounds.
	early *book
	// fresh and counted are since when new events, and higher counts, wait to be written; zero: there are none.
	fresh, counted time.Time
	readers        map[chan struct{}]bool

	// The rest belongs to the goroutine of Run, once the record has been read.
	store    *store
	retryAt  time.Time
	failures int
	trouble  string
}

// New returns a Recorder. It does no I/O.
func New(cfg Config) *Recorder {
	cfg = cfg.withDefaults()
	return &Recorder{
		cfg: cfg, changed: make(chan struct{}, 1), readers: map[chan struct{}]bool{},
		store: &store{dir: cfg.Dir, limit: cfg.MaxFile}, early: newBook(cfg.MaxFile / 2),
	}
}

// Event records that something happened to an object. eventType is Normal or Warning. It never waits for the disk.
func (r *Recorder) Event(object corev1.ObjectReference, eventType, reason, message string) {
	r.cfg.Seen(eventType, reason)
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := observe(r.cfg.Now(), object, eventType, reason, message)
	if r.book == nil {
		r.early.add(seen)
		if r.fresh.IsZero() {
			r.fresh = time.Now()
		}
		return
	}
	r.addLocked(seen)
	r.wakeLocked()
}

// addLocked puts what was seen into the book and notes since when it waits to be written.
func (r *Recorder) addLocked(seen record) {
	waits := &r.fresh
	if !r.book.add(seen) {
		waits = &r.counted
	}
	if waits.IsZero() {
		*waits = time.Now()
	}
}

func (r *Recorder) wakeLocked() {
	signal(r.changed)
	for c := range r.readers {
		signal(c)
	}
}

// signal wakes the receiver of a channel of size one; what it has not noticed yet counts for this as well.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// List returns the selected events, the oldest first: by boot, then by when they happened last.
func (r *Recorder) List(f Filter) []corev1.Event {
	r.load()
	now := r.cfg.Now()
	r.mu.Lock()
	all := r.book.list(f)
	walls := maps.Clone(r.book.walls)
	walls[r.book.boot] = now.Wall.Add(-now.Since)
	r.mu.Unlock()
	return convert(all, walls, r.cfg.Node)
}

// Subscribe returns a channel that gets a value after each change (several changes may give one), and a function that
// ends the subscription.
func (r *Recorder) Subscribe() (changed <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers[c] = true
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.readers, c)
	}
}

// load reads what earlier daemons have recorded, once, and takes in what has come before. What cannot be read is
// reported and does without.
func (r *Recorder) load() {
	r.loading.Do(func() {
		found, err := r.store.load()
		if err != nil {
			r.cfg.Log.Warn("recorded events cannot be read", "dir", r.cfg.Dir, "err", err)
		}
		now := r.cfg.Now()
		b := newBook(r.cfg.MaxFile / 2)
		rebooted := b.load(found, now.Boot)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.book = b
		if rebooted {
			r.addLocked(observe(now, NodeRef(r.cfg.Node), corev1.EventTypeWarning, "Rebooted",
				"Node "+r.cfg.Node+" has been rebooted, boot id: "+now.Boot))
		}
		for _, seen := range r.early.all() {
			r.addLocked(seen)
		}
		r.early = nil
		r.wakeLocked()
	})
}

// Run writes the record until ctx ends, and then what is still to be written. It always returns nil: a disk that cannot
// be written to is reported and tried again.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.store.close()
	timer := time.NewTimer(r.cfg.WriteAfter)
	defer timer.Stop()
	select { // reading takes a while, and right after a start there is more important work
	case <-ctx.Done():
	case <-timer.C:
	case <-r.changed:
	}
	r.load()
	for {
		var due <-chan time.Time
		if at := r.due(); !at.IsZero() {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			r.write(true)
			return nil
		case <-r.changed:
		case <-due:
			r.write(false)
		}
	}
}

// due is when to write next; zero: nothing has to be written.
func (r *Recorder) due() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at time.Time
	if !r.fresh.IsZero() {
		at = r.fresh.Add(r.cfg.WriteAfter)
	}
	if !r.counted.IsZero() {
		if c := r.counted.Add(r.cfg.CountAfter); at.IsZero() || c.Before(at) {
			at = c
		}
	}
	if !at.IsZero() && at.Before(r.retryAt) {
		at = r.retryAt
	}
	return at
}

// write writes the new events, and the counts if they are due or all is to be written.
func (r *Recorder) write(all bool) {
	started := time.Now()
	r.mu.Lock()
	counts := !r.counted.IsZero() && (all || time.Since(r.counted) >= r.cfg.CountAfter)
	batch := r.book.take(counts)
	r.fresh = time.Time{}
	if counts {
		r.counted = time.Time{}
	}
	r.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	err := r.store.write(batch, r.everything)
	if err != nil {
		r.mu.Lock()
		r.book.failed(batch)
		r.fresh = earlier(r.fresh, started)
		r.mu.Unlock()
	}
	r.tell(err) // without the lock: a log may block
}

// tell reports that writing fails, or works again, and returns when to retry.
func (r *Recorder) tell(err error) {
	if err == nil {
		if r.trouble != "" {
			r.cfg.Log.Info("events are stored on disk again", "dir", r.cfg.Dir)
		}
		r.retryAt, r.failures, r.trouble = time.Time{}, 0, ""
		return
	}
	wait := min(r.cfg.WriteAfter<<min(r.failures, 10), lastRetry)
	r.failures++
	r.retryAt = time.Now().Add(wait)
	if r.trouble != err.Error() {
		r.trouble = err.Error()
		r.cfg.Log.Warn("events are kept in memory only", "err", err, "retry_in", wait)
	}
}

// earlier returns the first of two times. A zero time is ignored.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// everything returns the whole book, for a new file.
func (r *Recorder) everything() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.all()
}
