package events

import (
	"container/list"
	"slices"
	"time"
)

// maxSimilar is how many events are kept that differ in their message only: one pod that says something else each time
// must not drive out the others.
const maxSimilar = 8

// book is the events in memory, bounded. It knows no clock and no disk.
type book struct {
	limit int64 // of used
	used  int64 // size of all records
	boot  uint64
	rev   uint64
	// entries holds *entry, the one that changed last at the end.
	entries *list.List
	byID    map[identity]*list.Element
	similar map[group][]*list.Element
	// walls is what the wall clock showed at the beginning of each earlier boot.
	walls map[uint64]time.Time
}

// entry is a record, and what of it is on disk.
type entry struct {
	record
	// written is the Rev that is on disk, or on its way there; 0: none.
	written uint64
}

func newBook(limit int64) *book {
	return &book{limit: limit, entries: list.New(), byID: map[identity]*list.Element{}, similar: map[group][]*list.Element{}, walls: map[uint64]time.Time{}}
}

// load fills an empty book from disk, and reports whether the records are from other boots than this one.
func (b *book) load(found []record, bootID string) (rebooted bool) {
	known := false
	for i := range found {
		r := &found[i]
		b.rev = max(b.rev, r.Rev, r.ID)
		switch same := bootID != "" && r.BootID == bootID; {
		case same && !known:
			b.boot, known = r.Boot, true
		case !known:
			b.boot = max(b.boot, r.Boot)
		}
	}
	if !known {
		b.boot++
	}
	ordered := latest(found)
	b.walls = wallsOf(ordered)
	for _, r := range ordered {
		if _, double := b.byID[r.identity]; !double {
			b.insert(&entry{record: r, written: r.Rev})
		}
	}
	return len(found) > 0 && !known && bootID != ""
}

// add adds an occurrence in this boot, or Count of them, and reports whether it is a new event rather than a repetition. Its ID and Rev are
// ignored.
func (b *book) add(seen record) (isNew bool) {
	b.rev++
	seen.Boot = b.boot
	if at, ok := b.byID[seen.identity]; ok {
		e := entryAt(at)
		e.Rev, e.Count = b.rev, e.Count+seen.Count
		e.Last, e.Wall = max(e.Last, seen.Last), seen.Wall
		b.entries.MoveToBack(at)
		return e.written == 0
	}
	seen.ID, seen.Rev = b.rev, b.rev
	b.insert(&entry{record: seen})
	return true
}

// insert adds an entry as the newest, and drops older ones for which there is no room.
func (b *book) insert(e *entry) {
	at := b.entries.PushBack(e)
	b.byID[e.identity] = at
	b.similar[e.group] = append(b.similar[e.group], at)
	b.used += e.size()
	if others := b.similar[e.group]; len(others) > maxSimilar {
		b.drop(oldest(others))
	}
	for b.used > b.limit && b.entries.Len() > 1 {
		b.drop(b.entries.Front())
	}
}

func oldest(elements []*list.Element) *list.Element {
	first := elements[0]
	for _, at := range elements[1:] {
		if entryAt(at).Rev < entryAt(first).Rev {
			first = at
		}
	}
	return first
}

func (b *book) drop(at *list.Element) {
	e := entryAt(at)
	b.entries.Remove(at)
	b.used -= e.size()
	delete(b.byID, e.identity)
	var left []*list.Element
	for _, other := range b.similar[e.group] {
		if other != at {
			left = append(left, other)
		}
	}
	if b.similar[e.group] = left; left == nil {
		delete(b.similar, e.group)
	}
}

func entryAt(at *list.Element) *entry { return at.Value.(*entry) } // nothing else is put there

// list returns the selected records in order.
func (b *book) list(f Filter) []record {
	var out []record
	for at := b.entries.Back(); at != nil && entryAt(at).Rev > f.After; at = at.Prev() {
		if e := entryAt(at); f.matches(&e.record) {
			out = append(out, e.record)
		}
	}
	slices.Reverse(out)
	return out
}

// all returns all records in order: that in which they changed is the same.
func (b *book) all() []record {
	out := make([]record, 0, b.entries.Len())
	for at := b.entries.Front(); at != nil; at = at.Next() {
		out = append(out, entryAt(at).record)
	}
	return out
}

// take returns the records that are not on disk, and with counts those that have changed there, to be written now.
func (b *book) take(counts bool) []record {
	var out []record
	for at := b.entries.Front(); at != nil; at = at.Next() {
		if e := entryAt(at); e.written == 0 || counts && e.written != e.Rev {
			e.written = e.Rev
			out = append(out, e.record)
		}
	}
	return out
}

// failed notes that what was taken could not be written.
func (b *book) failed(batch []record) {
	for i := range batch {
		if at, ok := b.byID[batch[i].identity]; ok {
			entryAt(at).written = 0
		}
	}
}
