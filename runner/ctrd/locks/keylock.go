// Package locks limits concurrency, with one lock for each key, and with slots. It must not know what it protects.
package locks

import "sync"

// ByKey is one mutex for each key: for work on a container or sandbox by both the worker and the teardown.
type ByKey struct {
	mu   sync.Mutex
	held map[string]*heldKey
}

type heldKey struct {
	free  chan struct{}
	users int
}

// Lock locks a key and returns the function that unlocks it.
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
