// Package memory returns memory to the machine after a lot of work.
//
// It must remain optional: nothing may depend on it. Trimmer.Run is its only goroutine.
package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"monopod/internal/pause"
)

const (
	// manyPods is the number of pods from which garbage is collected earlier than usual. With fewer pods the saving is too small. So many
	// other objects, like Services, take as much memory as one pod.
	manyPods = 100
	perPod   = 10
	// usualGarbage and littleGarbage are values for GOGC, in percent of the memory in use.
	usualGarbage  = 100
	littleGarbage = 25
	// muchWork is the number of pod changes after which memory is returned: starting many pods takes several times the memory that they
	// need later, for parsed manifests and stacks.
	muchWork = 30
	// Memory is returned when no pod has changed for quietFor, or after busyFor even if pods keep changing. After startup the wait is
	// shorter, because startup touches more memory than all later work.
	quietFor     = 2 * time.Second
	quietAtStart = quietFor / 4
	busyFor      = 30 * time.Second
	// restFor is the minimum interval between trims for requests and other small work, so that a client that polls every few seconds does
	// not cause one each time.
	restFor = time.Minute
	// forgetEvery is the interval at which pages of the binary that garbage collections and periodic checks touch are dropped. For a
	// collection they describe the stack frames of all goroutines, several MiB. An idle agent collects every minute or two; a busy one pays a
	// millisecond or two each time.
	forgetEvery = restFor / 6
	// settledAfter is the time of a second trim after startup, when images have been imported and the first pods may have started.
	settledAfter = 15 * time.Second
)

// Trimmer returns memory to the machine after a lot of work. It sleeps while nothing happens.
type Trimmer struct {
	// Release returns memory; nil: FreeOSMemory, and the program is forgotten after each collection.
	Release func()
	// limit sets GOGC.
	limit func(percent int)
	// garbage is the last argument of limit.
	garbage atomic.Int64
	changes atomic.Int64
	// answers counts answered requests and other small work, see Touch.
	answers atomic.Int64
	woken   chan struct{}
	// forget drops the pages of the binary. mapped gets a value when many of them are mapped for a moment.
	forget func()
	mapped chan struct{}
}

// NewTrimmer returns a Trimmer for this process. GOGC in the environment turns its limit of garbage off.
func NewTrimmer() *Trimmer {
	t := &Trimmer{
		limit: func(percent int) { debug.SetGCPercent(percent) }, woken: make(chan struct{}, 1),
		forget: func() { _, _ = forgetProgram() }, mapped: make(chan struct{}, 1),
	}
	if os.Getenv("GOGC") != "" { // set by the operator
		t.limit = func(int) {}
	}
	t.garbage.Store(usualGarbage)
	return t
}

// Expect sets the number of desired pods and other objects.
func (t *Trimmer) Expect(pods, objects int) {
	percent := int64(usualGarbage)
	if pods+objects/perPod >= manyPods {
		percent = littleGarbage
	}
	if t.garbage.Swap(percent) != percent {
		t.limit(int(percent))
	}
}

// PodChanged records that a pod has changed.
func (t *Trimmer) PodChanged() {
	t.changes.Add(1)
	t.wake()
}

// Answered records that a request was answered.
func (t *Trimmer) Answered() {
	t.answers.Add(1)
	t.wake()
}

// Touch records other small work, such as reading an input.
func (t *Trimmer) Touch() { t.Answered() }

// Checked records that a periodic check begins. It leaves little garbage, but maps several MiB of the program that nothing else needs.
func (t *Trimmer) Checked() { notify(t.mapped) }

func (t *Trimmer) wake() { notify(t.woken) }

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// afterCollections announces garbage collections until ctx ends.
func afterCollections(ctx context.Context, collected chan<- struct{}) {
	runtime.AddCleanup(&struct{ large [64]byte }{}, func(struct{}) {
		if ctx.Err() == nil {
			afterCollections(ctx, collected) // first: the next collection may follow at once
			notify(collected)
		}
	}, struct{}{})
}

// largeInput is the size of an input above which its memory is returned immediately: reading takes ten times its size, which would
// otherwise still be allocated while the next input is read.
const largeInput = 512 << 10

// AfterInput returns memory after an input of that size was read.
func AfterInput(bytes int) {
	if bytes >= largeInput {
		debug.FreeOSMemory()
	}
}

// giveBack returns unused memory to the machine.
func giveBack() {
	debug.FreeOSMemory()
	_, _ = forgetProgram() // else its pages stay until the kernel wants them
}

// Run trims until ctx ends, first after startup.
func (t *Trimmer) Run(ctx context.Context) {
	if t.calm(ctx, quietAtStart); ctx.Err() != nil {
		return
	}
	if t.Release == nil {
		t.Release = giveBack
		afterCollections(ctx, t.mapped)
	}
	t.Release()
	var (
		changed, answered int64
		// again is the earliest time of a trim for small work. touched means that there was work that no counter shows, such as startup.
		again   = time.Now().Add(settledAfter)
		touched = true
		later   = time.After(settledAfter)
		// forget fires when the pages of the binary are to be dropped, droppedAt is when they last were.
		forget    <-chan time.Time
		droppedAt time.Time
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.woken:
		case <-later:
			later = nil
		case <-t.mapped:
			if forget == nil {
				forget = time.After(max(quietFor, forgetEvery-time.Since(droppedAt)))
			}
			continue
		case <-forget:
			forget, droppedAt = nil, time.Now()
			t.forget()
			continue
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

// calm waits until there were no changes for a while.
func (t *Trimmer) calm(ctx context.Context, quiet time.Duration) {
	for waited, before := time.Duration(0), int64(-1); waited < busyFor && before != t.changes.Load()+t.answers.Load(); waited += quiet {
		before = t.changes.Load() + t.answers.Load()
		pause.For(ctx, quiet)
	}
}
