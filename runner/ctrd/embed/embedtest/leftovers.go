// Package embedtest tells tests what an embedded containerd leaves in its process. It is imported by tests only.
package embedtest

import "go.uber.org/goleak"

// Leftovers ignores the goroutines that stay when a containerd in this process has been stopped: containerd gives no way
// to end them.
func Leftovers() []goleak.Option {
	return []goleak.Option{
		// The event exchange has no Close.
		goleak.IgnoreAnyFunction("github.com/docker/go-events.(*Broadcaster).run"),
		// Each tells the garbage collector of a change, also one that has ended.
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/plugins/gc.(*gcScheduler).mutationCallback.func1"),
		// It waits for roots that a collection which was cut off does not send any more.
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/core/metadata.(*DB).getMarked.func1.1"),
	}
}
