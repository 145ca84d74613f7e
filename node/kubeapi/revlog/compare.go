package revlog

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/node/kubeapi/kinds"
)

// At returns a copy of an object with a different revision. It shares everything but the fields of the struct and of its metadata.
func At(o kinds.Object, revision uint64) kinds.Object {
	return withVersion(o, strconv.FormatUint(revision, 10))
}

func withVersion(o kinds.Object, version string) kinds.Object {
	c := reflect.New(reflect.TypeOf(o).Elem())
	c.Elem().Set(reflect.ValueOf(o).Elem())
	object := c.Interface().(kinds.Object)
	object.SetResourceVersion(version)
	return object
}

// digest identifies the content of an object, without its revision.
type digest [sha256.Size]byte

// digestLocked returns the digest of an object; false if its kind has none. Objects with different digests may be equal, for example with
// 1000m and 1 core.
func (l *Log) digestLocked(o kinds.Object) (digest, bool) {
	m, ok := withVersion(o, "").(runtime.ProtobufMarshaller)
	if !ok {
		return digest{}, false
	}
	size := m.Size()
	if cap(l.scratch) < size {
		l.scratch = make([]byte, size)
	}
	n, err := m.MarshalTo(l.scratch[:size])
	if err != nil {
		return digest{}, false
	}
	sum := sha256.Sum256(l.scratch[:n])
	if cap(l.scratch) > maxScratch {
		l.scratch = nil
	}
	return sum, true
}

// sameLocked reports whether an object of the source equals the published one. Most sources rebuild some objects on each read: digests are
// compared first, which takes a tenth of the time.
func (l *Log) sameLocked(e *entry, o kinds.Object) bool {
	sum, ok := l.digestLocked(o)
	if ok && e.digest == (digest{}) {
		e.digest, ok = l.digestLocked(e.given)
	}
	if ok && e.digest == sum {
		return true
	}
	e.digest = sum
	return equality.Semantic.DeepEqual(withVersion(o, e.given.GetResourceVersion()), e.given)
}

// takeLocked numbers the changes and adds them to the log.
func (l *Log) takeLocked(found map[*kinds.Kind][]kinds.Object, unseen map[*kinds.Kind]error) {
	first, before := l.ended == 0, len(l.changes)
	if first {
		// No client has a revision of this epoch yet: all objects get the same one, and none is logged.
		l.revision++
		l.dropped = l.revision
	}
	var loaded uint64
	for _, k := range kinds.All() {
		_, hidden := unseen[k]
		_, wasHidden := l.unseen[k]
		of := l.kinds[k]
		switch {
		case of != nil:
			l.compareLocked(k, of, found[k], !hidden)
		case hidden: // never seen
		case first:
			l.loadLocked(k, found[k])
		case wasHidden:
			// The kind is seen for the first time: no client can have listed it, so its objects are not changes.
			if loaded == 0 {
				l.revision++
				loaded = l.revision
			}
			l.loadLocked(k, found[k])
		case len(found[k]) > 0:
			of = &objects{byKey: map[key]*entry{}}
			l.kinds[k] = of
			l.compareLocked(k, of, found[k], true)
		}
	}
	l.unseen = unseen
	added := len(l.changes) > before
	l.trimLocked()
	if added {
		close(l.appended)
		l.appended = make(chan struct{})
	}
}

// loadLocked loads the first objects of a kind, all at the current revision.
func (l *Log) loadLocked(k *kinds.Kind, found []kinds.Object) {
	of := &objects{since: l.revision, byKey: make(map[key]*entry, len(found))}
	for _, o := range found {
		if at := keyOf(o); of.byKey[at] == nil { // otherwise a duplicate
			of.byKey[at] = &entry{source: o, given: At(o, l.revision)}
		}
	}
	l.kinds[k] = of
}

// compareLocked logs the changes of a kind. Missing objects count as deleted only if the kind was read completely.
func (l *Log) compareLocked(k *kinds.Kind, of *objects, found []kinds.Object, complete bool) {
	round, present := l.started, 0
	for _, o := range found {
		e := of.byKey[keyOf(o)]
		if e == nil {
			e = &entry{}
			of.byKey[keyOf(o)] = e
		} else if e.seen == round {
			continue // a duplicate
		}
		e.seen = round
		present++
		l.updateLocked(k, of, e, o)
	}
	if !complete || present == len(of.byKey) {
		return
	}
	var gone []kinds.Object
	for at, e := range of.byKey {
		if e.seen != round {
			gone = append(gone, e.given)
			delete(of.byKey, at)
		}
	}
	slices.SortFunc(gone, kinds.Compare)
	for _, o := range gone {
		of.sorted = nil
		l.addLocked(k, o, nil)
	}
}

// updateLocked updates an entry from an object of the source; the entry of a new object is empty.
func (l *Log) updateLocked(k *kinds.Kind, of *objects, e *entry, o kinds.Object) {
	if e.source == o {
		return
	}
	e.source = o
	old := e.given
	switch {
	case old == nil:
	case old.GetUID() != o.GetUID():
		// A different object with the same name.
		l.addLocked(k, old, nil)
		old, e.digest = nil, digest{}
	case l.sameLocked(e, o):
		return
	}
	of.sorted = nil
	e.given = At(o, l.revision+1)
	l.addLocked(k, old, e.given)
}

func (l *Log) addLocked(k *kinds.Kind, from, to kinds.Object) {
	l.revision++
	c := change{Event: Event{l.revision, from, to}, kind: k, at: l.now(), oldSize: sizeOf(from), newSize: sizeOf(to)}
	l.changes = append(l.changes, c)
	l.bytes += c.oldSize
}

// sizeOf returns the size of an encoded object; nil has none.
func sizeOf(o kinds.Object) int {
	if o == nil {
		return 0
	}
	if sized, ok := o.(interface{ Size() int }); ok {
		return sized.Size()
	}
	data, err := json.Marshal(o)
	if err != nil {
		return keepBytes // cannot happen: it would be the only one kept
	}
	return len(data)
}

// trimLocked drops changes beyond the limits of number, size and age.
func (l *Log) trimLocked() {
	drop, oldest := 0, l.now().Add(-keepFor)
	for drop < len(l.changes) && (len(l.changes)-drop > keepChanges || l.bytes > keepBytes || l.changes[drop].at.Before(oldest)) {
		l.bytes -= l.changes[drop].oldSize
		drop++
	}
	if drop > 0 {
		l.dropped = l.changes[drop-1].Revision
		l.changes = slices.Delete(l.changes, 0, drop)
	}
	if len(l.changes) == 0 {
		l.changes = nil
	} else if !l.trimScheduled {
		// They hold old objects, and there may be no further request.
		l.trimScheduled = true
		time.AfterFunc(keepFor+time.Second, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.trimScheduled = false
			l.trimLocked()
		})
	}
}

func keyOf(o kinds.Object) key { return key{o.GetNamespace(), o.GetName()} }
