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

// ErrUnknown means that a pod has no rollout state.
var ErrUnknown = errors.New("monopod keeps no revisions of it")

// ErrNotStored means that a rollback is carried out, but will not survive a restart of the agent.
var ErrNotStored = errors.New("it is not stored and is lost when monopod restarts")

// saver stores the states of a Controller: immediately those that must be stored before they are acted on, others in the background.
type saver struct {
	cfg *Config
	// wake makes the Controller decide again; write wakes the writer for states that are due.
	wake  func()
	write chan struct{}
	// work guards the following fields. It is the mutex of the Controller, which also owns the states.
	work   *sync.Mutex
	states map[manifests.Key]*State
	// unsaved are the states that are not on disk; late is when to write them. refused are the states that could not be written; again is when
	// to retry them, trouble the logged error.
	unsaved, refused map[manifests.Key]bool
	late, again      time.Duration
	trouble          string
	// number is the number of the last Entry.
	number uint64
	// dead are the pods whose states must be removed from disk.
	dead []manifests.Key
}

// save writes states now, with Store.Save or Store.SaveUnordered. A state that cannot be written is acted on anyway and retried later: a
// full disk must not keep a bad revision running.
func (c *saver) save(entries []Entry, by func(*Store, []Entry) ([]Entry, error)) error {
	if c.cfg.Store == nil || len(entries) == 0 {
		return nil
	}
	failed, err := by(c.cfg.Store, entries)
	c.saved(entries, failed, err)
	return err
}

// entry returns the current state of a pod for storing; it replaces all earlier entries.
func (c *saver) entry(key manifests.Key) Entry {
	c.number++
	return Entry{Key: key, State: c.states[key], Number: c.number}
}

// saved handles the result of writing states. A failed state that has been replaced meanwhile is not retried.
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
		c.cfg.Log.Error("revisions cannot be stored and may be lost after a restart", "err", err)
	}
}

// retry retries failed writes if they are due.
func (c *saver) retry(now boottime.Moment) {
	if c.again == 0 || now.Since < c.again {
		return
	}
	maps.Copy(c.unsaved, c.refused)
	clear(c.refused)
	c.again, c.late = 0, now.Since
}

// hold schedules the write of a state.
func (c *saver) hold(key manifests.Key) {
	c.unsaved[key] = true
	c.soon()
}

// writeLate writes scheduled states when they are due, until ctx ends. A slow or hanging disk blocks nothing else.
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

// flush writes all scheduled states, and retries failed ones once. The caller ensures that no other goroutine writes.
func (c *saver) flush() {
	c.work.Lock()
	maps.Copy(c.unsaved, c.refused)
	clear(c.refused)
	c.work.Unlock()
	for c.saveLate() {
	}
}

// saveLate writes the scheduled states, or the first part of them, and reports whether more must be written now. Only one goroutine at a
// time may call it.
func (c *saver) saveLate() (more bool) {
	entries, dead := c.takeLate()
	for _, e := range dead {
		if err := c.cfg.Store.Remove(e); err != nil {
			c.cfg.Log.Warn("revisions of a deleted pod cannot be removed", "pod", e.Key, "err", err)
		}
	}
	if len(entries) == 0 {
		return false
	}
	failed, err := c.cfg.Store.SaveUnordered(entries)
	c.work.Lock()
	defer c.work.Unlock()
	if c.saved(entries, failed, err); err != nil {
		c.wake() // to schedule the retry
	}
	return len(c.unsaved) > 0
}

// takeLate returns the states to write now, and for pods to be forgotten, entries without a state.
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

// soon schedules the write of all pending states.
func (c *saver) soon() {
	if c.late == 0 {
		c.late = c.cfg.Clock().Since + saveAfter
	}
}
