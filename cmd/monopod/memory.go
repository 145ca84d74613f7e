package main

import (
	"context"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// garbagePercent is how much garbage may gather before it is collected, in percent of what is in use; Go's own choice is 100.
	garbagePercent = 50
	// muchWork is after how many changes of pods memory is given back: a start of many pods takes several times of what they need
	// later, for manifests that are parsed, and for stacks.
	muchWork = 100
	// quietFor is how long no pod has changed when that is done, busyFor after how long it is done though pods still change.
	quietFor = 2 * time.Second
	busyFor  = 30 * time.Second
)

// thrift gives memory back to the machine after much work. It sleeps while nothing happens.
type thrift struct {
	release func()
	changes atomic.Int64
	stirred chan struct{}
}

func newThrift() *thrift {
	return &thrift{release: debug.FreeOSMemory, stirred: make(chan struct{}, 1)}
}

// limitGarbage has garbage collected earlier, unless the environment says when.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}

// stir notes that a pod has changed.
func (t *thrift) stir() {
	t.changes.Add(1)
	select {
	case t.stirred <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (t *thrift) run(ctx context.Context) {
	for done := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.stirred:
		}
		if t.changes.Load()-done < muchWork {
			continue
		}
		t.calm(ctx)
		if ctx.Err() != nil {
			return
		}
		done = t.changes.Load()
		t.release()
	}
}

// calm waits until nothing changes.
func (t *thrift) calm(ctx context.Context) {
	for waited, before := time.Duration(0), int64(-1); waited < busyFor && before != t.changes.Load(); waited += quietFor {
		before = t.changes.Load()
		sleep(ctx, quietFor)
	}
}
