package rollout

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"monopod/internal/boottime"
	"monopod/manifests"
)

// ErrUnknown says that nothing is noted of a pod.
var ErrUnknown = errors.New("monopod keeps no revisions of it")

// ErrNotStored says that a rollback is carried out, but would not survive the agent.
var ErrNotStored = errors.New("it is not stored and lasts only until monopod is restarted")

// saver stores the states of a Controller: those that must be stored before they are acted on at once, others in the background.
type saver struct {
	cfg *Config
	// wake makes the Controller look again; write wakes the writer: what was held back is due.
	wake  func()
	write chan struct{}
	// work guards what follows. It is that of the Controller, and so are the states.
	work   *sync.Mutex
	states map[manifests.Key]*State
	// unsaved are the states that are not on disk, late is when to write them. refused are the states that could not be written, again
	// is when they are tried again, trouble the error that was logged.
	unsaved, refused map[manifests.Key]bool
	late, again      time.Duration
	trouble          string
	// number is that of the last Entry.
	number uint64
	// dead are the pods whose states are to be removed from disk.
	dead []manifests.Key
}

// save writes states now, by Store.Save or Store.SaveUnordered. One that cannot be written is acted on all the same, and tried again later: a full disk must
// not keep a bad revision running.
func (c *saver) save(entries []Entry, by func(*Store, []Entry) ([]Entry, error)) error {
	if c.cfg.Store == nil || len(entries) == 0 {
		return nil
	}
	failed, err := by(c.cfg.Store, entries)
	c.saved(entries, failed, err)
	return err
}

// entry is the present state of a pod, to be stored in place of all that was so before.
func (c *saver) entry(key manifests.Key) Entry {
	c.number++
	return Entry{Key: key, State: c.states[key], Number: c.number}
}

// saved notes what became of states that were to be written. One that there is a newer one of by now is not asked for
// any more.
func (c *saver) saved(entries, failed []Entry, err error) {
	for _, e := range entries {
		if c.states[e.Key] == e.State {
			delete(c.unsaved, e.Key)
			delete(c.refused, e.Key)
		}
	}
	for _, e := range failed {
		if c.states[e.Key] == e.State {
			c.refused[e.Key] = true
		}
	}
	if err == nil {
		if len(c.refused) == 0 {
			c.trouble = ""
		}
		return
	}
	if c.again == 0 {
		c.again = c.cfg.Clock().Since + saveAgain
	}
	if text := err.Error(); text != c.trouble {
		c.trouble = text
		c.cfg.Log.Error("revisions cannot be stored; after a restart they may not be known", "err", err)
	}
}

// retry has what could not be written tried again, if it is time.
func (c *saver) retry(now boottime.Moment) {
	if c.again == 0 || now.Since < c.again {
		return
	}
	maps.Copy(c.unsaved, c.refused)
	clear(c.refused)
	c.again, c.late = 0, now.Since
}

// hold has a state written in a moment.
func (c *saver) hold(key manifests.Key) {
	c.unsaved[key] = true
	c.soon()
}

// writeLate writes what was held back whenever it is due, until ctx ends. A disk that is slow or hangs keeps nobody else
// waiting.
func (c *saver) writeLate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.write:
		}
		for c.saveLate() && ctx.Err() == nil {
		}
	}
}

// flush writes all that was held back, and tries once more what the disk did not take. It is called when nobody else writes.
func (c *saver) flush() {
	c.work.Lock()
	maps.Copy(c.unsaved, c.refused)
	clear(c.refused)
	c.work.Unlock()
	for c.saveLate() {
	}
}

// saveLate writes what was held back, or the first part of it, and says whether there is more to be written now. One
// goroutine at a time may call it.
func (c *saver) saveLate() (more bool) {
	entries, dead := c.takeLate()
	for _, e := range dead {
		if err := c.cfg.Store.Remove(e); err != nil {
			c.cfg.Log.Warn("revisions of a pod that is gone cannot be removed", "pod", e.Key, "err", err)
		}
	}
	if len(entries) == 0 {
		return false
	}
	failed, err := c.cfg.Store.SaveUnordered(entries)
	c.work.Lock()
	defer c.work.Unlock()
	if c.saved(entries, failed, err); err != nil {
		c.wake() // for the time at which it is tried again
	}
	return len(c.unsaved) > 0
}

// takeLate returns the states to write now, and the entries without one of the pods that are to be forgotten.
func (c *saver) takeLate() (entries, dead []Entry) {
	c.work.Lock()
	defer c.work.Unlock()
	if c.cfg.Store == nil {
		clear(c.unsaved)
		c.dead = nil
		return nil, nil
	}
	for _, key := range c.dead {
		if c.states[key] == nil { // it has not come back
			dead = append(dead, c.entry(key))
		}
	}
	c.dead = nil
	for key := range c.unsaved {
		switch {
		case c.states[key] == nil:
			delete(c.unsaved, key)
		case len(entries) < atOnce:
			entries = append(entries, c.entry(key))
		}
	}
	return entries, dead
}

// soon has what was held back written in a moment.
func (c *saver) soon() {
	if c.late == 0 {
		c.late = c.cfg.Clock().Since + saveAfter
	}
}
