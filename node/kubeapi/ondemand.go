package kubeapi

import (
	"context"
	"sync"
	"time"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/revlog"
)

// onDemandLogs holds the revision logs of kinds whose objects are computed only on request: listing pods must not read images from disk. Each
// kind has its own log, created by the first request for the kind.
type onDemandLogs struct {
	state State
	epoch uint32

	mu   sync.Mutex
	logs map[*kinds.Kind]*revlog.Log
}

// logOf returns the revision log of a kind.
func (s *Server) logOf(k *kinds.Kind) *revlog.Log {
	if !k.OnDemand {
		return s.log
	}
	a := &s.apart
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.logs[k] == nil {
		if a.logs == nil {
			a.logs = map[*kinds.Kind]*revlog.Log{}
		}
		a.logs[k] = revlog.New(a.epoch, singleKind{a.state, k})
	}
	return a.logs[k]
}

// singleKind is the revlog.Source of a single kind.
type singleKind struct {
	state State
	kind  *kinds.Kind
}

// Objects implements revlog.Source.
func (a singleKind) Objects(ctx context.Context) (map[*kinds.Kind][]kinds.Object, map[*kinds.Kind]error) {
	objects, _, err := a.state.Computed(ctx, a.kind)
	found := map[*kinds.Kind][]kinds.Object{a.kind: objects}
	if err != nil {
		return found, map[*kinds.Kind]error{a.kind: err}
	}
	return found, nil
}

// Subscribe implements revlog.Source.
func (a singleKind) Subscribe() (changed <-chan struct{}, cancel func()) {
	if a.kind.Poll == 0 {
		return a.state.Subscribe()
	}
	out, done, ended := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(a.kind.Poll)
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			select {
			case out <- struct{}{}:
			default: // the previous notification is still pending
			}
		}
	}()
	return out, sync.OnceFunc(func() {
		tick.Stop()
		close(done)
		<-ended
	})
}
