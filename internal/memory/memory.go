// Package memory gives memory back to the machine after much work.
//
// It must not be needed for anything to work. Trimmer.Run is its only goroutine.
package memory

import (
	"context"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"monopod/internal/pause"
)

const (
	// manyPods is from how many pods on garbage is collected earlier than usual. Where there is little, it is not worth the work.
	manyPods = 100
	// usualGarbage and littleGarbage are how much may gather, in percent of what is in use.
	usualGarbage  = 100
	littleGarbage = 25
	// muchWork is after how many changes of pods memory is given back: a start of many pods takes several times of what they need
	// later, for manifests that are parsed, and for stacks.
	muchWork = 30
	// quietFor is how long no pod has changed when that is done, busyFor after how long it is done though pods still change.
	// After a start less is waited: it touches more than all that comes later.
	quietFor     = 2 * time.Second
	quietAtStart = quietFor / 4
	busyFor      = 30 * time.Second
	// restFor is how often it is done at most for what answers and little work have taken: who asks every few seconds would pay for it each time.
	restFor = time.Minute
	// settledAfter is when it is done once more after the start: images are imported after it, and the first pods may be started.
	settledAfter = 15 * time.Second
)

// Trimmer gives memory back to the machine after much work. It sleeps while nothing happens.
type Trimmer struct {
	Release func()
	// limit sets how much garbage may gather, in percent of what is in use.
	limit func(percent int)
	// garbage is what limit was called with last.
	garbage atomic.Int64
	changes atomic.Int64
	// answers are the requests that were answered, and what else has taken memory but little: see touch.
	answers atomic.Int64
	stirred chan struct{}
}

// NewTrimmer returns a Trimmer for this process. GOGC in the environment turns its limit of garbage off.
func NewTrimmer() *Trimmer {
	t := &Trimmer{Release: giveBack, limit: func(percent int) { debug.SetGCPercent(percent) }, stirred: make(chan struct{}, 1)}
	if os.Getenv("GOGC") != "" { // somebody knows better
		t.limit = func(int) {}
	}
	t.garbage.Store(usualGarbage)
	return t
}

// Expect says how many pods are wanted.
func (t *Trimmer) Expect(pods int) {
	percent := int64(usualGarbage)
	if pods >= manyPods {
		percent = littleGarbage
	}
	if t.garbage.Swap(percent) != percent {
		t.limit(int(percent))
	}
}

// Stir notes that a pod has changed.
func (t *Trimmer) Stir() {
	t.changes.Add(1)
	t.wake()
}

// Answered notes that a request was answered.
func (t *Trimmer) Answered() {
	t.answers.Add(1)
	t.wake()
}

// Touch notes that something else was done, such as reading an input.
func (t *Trimmer) Touch() { t.Answered() }

func (t *Trimmer) wake() {
	select {
	case t.stirred <- struct{}{}:
	default:
	}
}

// largeInput is from which size on the memory that reading an input took is given back at once: ten times its size, which would else
// still be there while the next one is read.
const largeInput = 512 << 10

// AfterInput gives memory back after an input of a size.
func AfterInput(bytes int) {
	if bytes >= largeInput {
		debug.FreeOSMemory()
	}
}

// giveBack returns to the machine what memory the process does not need now.
func giveBack() {
	debug.FreeOSMemory()
	_, _ = forgetProgram() // else its pages stay until the kernel wants them
}

// Run works until ctx ends. What the start of the process has taken is given back, too.
func (t *Trimmer) Run(ctx context.Context) {
	if t.calm(ctx, quietAtStart); ctx.Err() != nil {
		return
	}
	t.Release()
	var (
		changed, answered int64
		// again is when little work is enough; touched: there was some that nothing tells of, as after a start.
		again   = time.Now().Add(settledAfter)
		touched = true
		later   = time.After(settledAfter)
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.stirred:
		case <-later:
			later = nil
		}
		if t.changes.Load()-changed < muchWork {
			if !touched && t.changes.Load() == changed && t.answers.Load() == answered {
				continue
			}
			if rest := time.Until(again); rest > 0 {
				if later == nil {
					later = time.After(rest)
				}
				continue
			}
		}
		t.calm(ctx, quietFor)
		if ctx.Err() != nil {
			return
		}
		changed, answered = t.changes.Load(), t.answers.Load()
		again, later, touched = time.Now().Add(restFor), nil, false
		t.Release()
	}
}

// calm waits until nothing has changed for a while.
func (t *Trimmer) calm(ctx context.Context, quiet time.Duration) {
	for waited, before := time.Duration(0), int64(-1); waited < busyFor && before != t.changes.Load()+t.answers.Load(); waited += quiet {
		before = t.changes.Load() + t.answers.Load()
		pause.For(ctx, quiet)
	}
}
