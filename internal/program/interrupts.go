package program

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"monopod/internal/signals"
)

// repeat is for how long another signal is the first one again: timeout(1), for one, sends it to the process, and then to its group.
const repeat = time.Second

// Interrupts is what becomes of the signals of the process: the first one asks it to stop, a second one does not
// wait for that, unless it follows at once. While another process is the point of this one, it gets them instead.
type Interrupts struct {
	signals chan os.Signal
	// ignored are the signals that the process was started to ignore, as a background job of a script is: it continues to ignore them. Its child processes do not.
	ignored []os.Signal
	Stop    func()
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	Mu sync.Mutex // guards what follows
	// To gets all signals if it is set.
	To func(os.Signal)
	// last is done before the process is ended at once.
	last func()
	// first is the signal that asked to stop; 0: none has.
	first syscall.Signal
	// firstAt is when it came.
	firstAt time.Time
}

// NewInterrupts returns the handling of signals; stop is called at the first one.
func NewInterrupts(stop func()) *Interrupts {
	i := &Interrupts{signals: make(chan os.Signal, 8), ignored: signals.Adopt(), Stop: stop}
	i.Also(syscall.SIGINT, syscall.SIGTERM)
	return i
}

// Run hands signals out, until the process ends.
func (i *Interrupts) Run() {
	for s := range i.signals {
		if i.Take(s) {
			os.Exit(ExitSignal)
		}
	}
}

// Take handles a signal and reports whether the process must end at once.
func (i *Interrupts) Take(s os.Signal) bool {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	switch sig, _ := s.(syscall.Signal); {
	case i.To != nil:
		i.To(s)
	case sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2: // they were meant for the other process
	case i.first != 0 && i.now().Sub(i.firstAt) < repeat:
	case i.first != 0:
		if i.last != nil {
			i.last()
		}
		return true
	default:
		i.first, i.firstAt = sig, i.now()
		i.Stop()
	}
	return false
}

func (i *Interrupts) now() time.Time {
	if i.Now != nil {
		return i.Now()
	}
	return time.Now()
}

// Forward passes signals on to another process, including kinds that do not end this one; nil ends that.
func (i *Interrupts) Forward(to func(os.Signal)) {
	if i == nil { // a test without a process of its own
		return
	}
	i.Mu.Lock()
	i.To = to
	i.Mu.Unlock()
}

// AtEnd has something done also when the process is ended at once; nil ends that.
func (i *Interrupts) AtEnd(last func()) {
	if i == nil { // a test without a process of its own
		return
	}
	i.Mu.Lock()
	i.last = last
	i.Mu.Unlock()
}

// Also makes further signals known, except those that are ignored.
func (i *Interrupts) Also(more ...os.Signal) {
	if i == nil {
		return
	}
	more = slices.DeleteFunc(more, func(s os.Signal) bool { return slices.Contains(i.ignored, s) })
	if len(more) > 0 && i.signals != nil { // without signals, Notify would take all; a test has no channel
		signal.Notify(i.signals, more...)
	}
}

// ExitCode is what a shell reports for a program that a signal has ended.
func (i *Interrupts) ExitCode() int {
	if i == nil {
		return ExitSignal
	}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.first == 0 {
		return ExitSignal
	}
	return 128 + int(i.first)
}
