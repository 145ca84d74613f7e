// Package locks bounds concurrent work: one lock for each key, and a number of slots. It must not know what the work is.
package locks

import "sync"

// ByKey is one mutex per key, for work on one container or sandbox that the worker and the teardown may both do.
type ByKey struct {
	mu   sync.Mutex
	held map[string]*heldKey
}

type heldKey struct {
	free  chan struct{}
	users int
}

// Lock waits for the key and returns the function that gives it back.
func (k *ByKey) Lock(key string) func() {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*heldKey{}
	}
	h := k.held[key]
	if h == nil {
		h = &heldKey{free: make(chan struct{}, 1)}
		h.free <- struct{}{}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	<-h.free
	return func() {
		h.free <- struct{}{}
		k.mu.Lock()
		defer k.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(k.held, key)
		}
	}
}
