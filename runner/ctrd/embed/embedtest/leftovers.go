// Package embedtest is test support for packages that start an embedded containerd. It must be imported by tests only.
package embedtest

import "go.uber.org/goleak"

// Leftovers ignores the goroutines that remain after an embedded containerd was stopped, because containerd cannot end them.
func Leftovers() []goleak.Option {
	return []goleak.Option{
		// The event exchange has no Close.
		goleak.IgnoreAnyFunction("github.com/docker/go-events.(*Broadcaster).run"),
		// Each reports a change to the garbage collector, also after its end.
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/plugins/gc.(*gcScheduler).mutationCallback.func1"),
		// It waits for roots that an interrupted collection no longer sends.
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/core/metadata.(*DB).getMarked.func1.1"),
	}
}
