package main

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"monopod/internal/signals"
)

// interrupts is what becomes of the signals of the process: the first one asks it to stop, the second one does not
// wait for that. While another process is the point of this one, it gets them instead.
type interrupts struct {
	signals chan os.Signal
	// ignored are the signals that the process was started to ignore, as a background job of a script is: it goes on ignoring them. What it starts does not.
	ignored []os.Signal
	stop    func()

	mu sync.Mutex // guards what follows
	// to, unless nil, gets all signals.
	to func(os.Signal)
	// last is done before the process is ended at once.
	last func()
	// first is the signal that asked to stop; 0: none has.
	first syscall.Signal
}

func newInterrupts(stop func()) *interrupts {
	i := &interrupts{signals: make(chan os.Signal, 8), ignored: signals.Adopt(), stop: stop}
	i.also(syscall.SIGINT, syscall.SIGTERM)
	return i
}

// run hands signals out, until the process ends.
func (i *interrupts) run() {
	for s := range i.signals {
		if i.take(s) {
			os.Exit(exitSignal)
		}
	}
}

// take deals with a signal, and says whether the process is to end at once.
func (i *interrupts) take(s os.Signal) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch sig, _ := s.(syscall.Signal); {
	case i.to != nil:
		i.to(s)
	case sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2: // they were meant for the other process
	case i.first != 0:
		if i.last != nil {
			i.last()
		}
		return true
	default:
		i.first = sig
		i.stop()
	}
	return false
}

// forward hands signals to another process from now on, more kinds of them than end this one; nil: not any more.
func (i *interrupts) forward(to func(os.Signal)) {
	if i == nil { // a test without a process of its own
		return
	}
	i.mu.Lock()
	i.to = to
	i.mu.Unlock()
}

// atEnd has something done also when the process is ended at once.
func (i *interrupts) atEnd(last func()) {
	if i == nil { // a test without a process of its own
		return
	}
	i.mu.Lock()
	i.last = last
	i.mu.Unlock()
}

// also makes further signals known, except those that are ignored.
func (i *interrupts) also(more ...os.Signal) {
	if i == nil {
		return
	}
	more = slices.DeleteFunc(more, func(s os.Signal) bool { return slices.Contains(i.ignored, s) })
	if len(more) > 0 { // without signals, Notify would take all
		signal.Notify(i.signals, more...)
	}
}

// exitCode is what a shell reports for a program that a signal has ended.
func (i *interrupts) exitCode() int {
	if i == nil {
		return exitSignal
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.first == 0 {
		return exitSignal
	}
	return 128 + int(i.first)
}
