package state

import "sync"

// Changes wakes subscribers whenever something has changed. Several changes may arrive as one signal. The zero value is ready.
type Changes struct {
	mu          sync.Mutex
	subscribers map[chan struct{}]bool
}

// Notify wakes all subscribers. It does not block.
func (c *Changes) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subscribers {
		select {
		case s <- struct{}{}:
		default: // it has not read the last signal yet
		}
	}
}

// Subscribe returns a channel that receives a value after each change, and a function that ends the subscription.
func (c *Changes) Subscribe() (<-chan struct{}, func()) {
	s := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subscribers == nil {
		c.subscribers = map[chan struct{}]bool{}
	}
	c.subscribers[s] = true
	return s, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subscribers, s)
	}
}
