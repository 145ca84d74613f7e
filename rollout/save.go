package rollout

import (
	"errors"

	"monopod/manifests"
)

// ErrUnknown says that nothing is noted of a pod.
var ErrUnknown = errors.New("monopod keeps no revisions of it")

// ErrNotStored says that a rollback is carried out, but would not survive the agent.
var ErrNotStored = errors.New("it is not stored and lasts only until monopod is restarted")

// save writes states now. One that cannot be written is acted on all the same, and tried again later: a full disk must
// not keep a bad revision running.
func (c *Controller) save(entries []Entry) error {
	if c.cfg.Store == nil || len(entries) == 0 {
		return nil
	}
	return c.saved(entries, c.cfg.Store.Save(entries))
}

// saved notes what became of states that were to be written.
func (c *Controller) saved(entries []Entry, err error) error {
	for _, e := range entries {
		if delete(c.unsaved, e.Key); err != nil {
			c.unsaved[e.Key] = true
		}
	}
	if err != nil {
		c.cfg.Log.Error("revisions cannot be stored; after a restart they may not be known", "err", err)
		c.late = c.cfg.Clock().Since + saveAgain
	}
	return err
}

// hold has a state written in a moment.
func (c *Controller) hold(key manifests.Key) {
	c.unsaved[key] = true
	c.soon()
}

// saveLate writes what was held back, or the first part of it.
func (c *Controller) saveLate() {
	c.late = 0
	if c.cfg.Store == nil {
		clear(c.unsaved)
		c.dead = nil
		return
	}
	for _, key := range c.dead {
		if c.states[key] != nil {
			continue // it has come back
		}
		if err := c.cfg.Store.Remove(key); err != nil {
			c.cfg.Log.Warn("revisions of a pod that is gone cannot be removed", "pod", key, "err", err)
		}
	}
	c.dead = nil
	var entries []Entry
	for key := range c.unsaved {
		switch s := c.states[key]; {
		case s == nil:
			delete(c.unsaved, key)
		case len(entries) < atOnce:
			entries = append(entries, Entry{key, s})
		}
	}
	// What went wrong it has told, and will try again.
	if err := c.saved(entries, c.cfg.Store.SaveUnordered(entries)); err == nil && len(c.unsaved) > 0 {
		c.late = c.cfg.Clock().Since
	}
}
