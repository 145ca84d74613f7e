package image

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// What an embedded containerd leaves behind when it is stopped.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/docker/go-events.(*Broadcaster).run"),
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/plugins/gc.(*gcScheduler).mutationCallback.func1"))
}
