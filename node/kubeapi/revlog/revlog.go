// Package revlog assigns resource versions to changes of Kubernetes API objects, and keeps recent changes for watches.
//
// It compares the objects of its source with those of the previous comparison. It must not modify objects of the source, nor know about
// encoding or authorization.
//
// Goroutines: none. Callers of List, Get and Watch compare, one at a time; without lists and watches nothing runs, except a timer that
// drops old changes.
package revlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"monopod/node/kubeapi/kinds"
)

// Errors of watches.
var (
	// ErrExpired means that changes after the revision are no longer in the log: relist.
	ErrExpired = errors.New("too old resource version: relist")
	// ErrTooLarge means that the revision is newer than all changes.
	ErrTooLarge = errors.New("the resource version is newer than the current one")
)

var errNoReason = errors.New("unknown reason")

// Source provides all objects.
type Source interface {
	// Objects returns all objects, which are shared and immutable, and the kinds that cannot be read completely.
	Objects(ctx context.Context) (objects map[*kinds.Kind][]kinds.Object, unseen map[*kinds.Kind]error)
	// Subscribe returns a channel that gets a value after each change.
	Subscribe() (changed <-chan struct{}, cancel func())
}

const (
	// keepChanges, keepBytes and keepFor bound the log: older changes are dropped. Bytes are those of the old objects, encoded as protobuf:
	// only the log still needs them.
	keepChanges = 1024
	keepBytes   = 16 << 20
	keepFor     = 5 * time.Minute
	// maxBatch is the size of objects after which a watch gets its next changes later: a slow client must not keep those that the log drops.
	maxBatch = 1 << 20
	// maxScratch is the size up to which a buffer is kept.
	maxScratch = 64 << 10
)

// Log numbers changes. Create it with New. It is safe for concurrent use.
type Log struct {
	source Source
	now    func() time.Time
	// comparing holds a value while the source is compared.
	comparing chan struct{}

	mu sync.Mutex
	// started counts comparisons, ended is the number of the last one that succeeded.
	started, ended uint64
	// revision is the number of the last change, dropped the number of the newest change that is no longer in the log.
	revision, dropped uint64
	// changes are the most recent changes, oldest first.
	changes []change
	// bytes is the size of the old objects in changes.
	bytes int
	// trimScheduled reports whether a timer will drop old changes.
	trimScheduled bool
	kinds         map[*kinds.Kind]*objects
	// unseen has the kinds that the last comparison could not read.
	unseen map[*kinds.Kind]error
	// scratch is the buffer in which objects are encoded for their digests.
	scratch []byte
	// appended is closed and replaced when changes are added.
	appended chan struct{}
}

// change is an entry of the log.
type change struct {
	Event
	kind *kinds.Kind
	at   time.Time
	// oldSize and newSize are the sizes of the objects.
	oldSize, newSize int
}

type key struct{ namespace, name string }

// objects holds the objects of a kind. A kind that was never read has none.
type objects struct {
	// since is the revision at which the kind was first seen.
	since uint64
	byKey map[key]*entry
	// sorted is nil if it must be rebuilt.
	sorted []kinds.Object
}

// entry is an object: as last returned by the source, and as published.
type entry struct {
	source, given kinds.Object
	// seen is the number of the last comparison that found it.
	seen uint64
	// digest is the digest of source; zero if unknown.
	digest digest
}

// New returns a log. Its revisions are larger than those of all lower epochs.
func New(epoch uint32, source Source) *Log {
	first := uint64(epoch) << 32
	return &Log{
		source: source, now: time.Now, comparing: make(chan struct{}, 1), revision: first, dropped: first,
		kinds: map[*kinds.Kind]*objects{}, appended: make(chan struct{}),
	}
}

// List returns the current objects of a kind, in the order of kinds.Compare, and the revision of the list. The objects carry the revision
// of their last change; they and the slice are shared and must not be modified. It fails for kinds that were never read.
func (l *Log) List(ctx context.Context, k *kinds.Kind) ([]kinds.Object, uint64, error) {
	if err := l.sync(ctx); err != nil {
		return nil, 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of, err := l.ofLocked(k)
	if err != nil || of == nil {
		return nil, l.revision, err
	}
	if of.sorted == nil {
		of.sorted = make([]kinds.Object, 0, len(of.byKey))
		for _, e := range of.byKey {
			of.sorted = append(of.sorted, e.given)
		}
		slices.SortFunc(of.sorted, kinds.Compare)
	}
	return of.sorted, l.revision, nil
}

// Get returns one object, nil if it does not exist, and the current revision. It fails for kinds that were never read.
func (l *Log) Get(ctx context.Context, k *kinds.Kind, namespace, name string) (kinds.Object, uint64, error) {
	if err := l.sync(ctx); err != nil {
		return nil, 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of, err := l.ofLocked(k)
	if err != nil || of == nil {
		return nil, l.revision, err
	}
	if e := of.byKey[key{namespace, name}]; e != nil {
		return e.given, l.revision, nil
	}
	return nil, l.revision, nil
}

// All returns the present objects of all kinds, and the kinds that cannot be seen completely at present. Of those that were never seen it has
// no objects. The lists are the caller's, the objects are shared.
func (l *Log) All(ctx context.Context) (objects map[*kinds.Kind][]kinds.Object, unseen map[*kinds.Kind]error, err error) {
	if err := l.sync(ctx); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	objects = make(map[*kinds.Kind][]kinds.Object, len(l.kinds))
	for k, of := range l.kinds {
		objects[k] = make([]kinds.Object, 0, len(of.byKey))
		for _, e := range of.byKey {
			objects[k] = append(objects[k], e.given)
		}
		slices.SortFunc(objects[k], kinds.Compare)
	}
	return objects, l.unseen, nil
}

// Revision returns the present revision without a comparison: for lists of objects that have none.
func (l *Log) Revision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// Unseen returns the kinds that currently cannot be read completely, with the reason; lists show their last objects. The result is shared.
func (l *Log) Unseen(ctx context.Context) (map[*kinds.Kind]error, error) {
	if err := l.sync(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unseen, nil
}

// ofLocked returns the objects of a kind, nil if it never had any.
func (l *Log) ofLocked(k *kinds.Kind) (*objects, error) {
	of := l.kinds[k]
	if of != nil {
		return of, nil
	}
	if err, ok := l.unseen[k]; ok {
		return nil, fmt.Errorf("%s are not available yet: %w", k.Plural, cmp.Or(err, errNoReason))
	}
	return nil, nil
}

// sync compares the source with what is known, unless a comparison that began after the call has ended: one comparison serves all waiting
// callers.
func (l *Log) sync(ctx context.Context) error {
	l.mu.Lock()
	before := l.started
	l.mu.Unlock()
	select {
	case l.comparing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.comparing }()
	l.mu.Lock()
	if l.ended > before {
		l.mu.Unlock()
		return nil
	}
	l.started++
	l.mu.Unlock()
	found, unseen := l.source.Objects(ctx)
	if err := ctx.Err(); err != nil {
		return err // the result may be incomplete
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeLocked(found, unseen)
	l.ended = l.started
	return nil
}
