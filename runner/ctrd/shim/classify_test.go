package shim

import "testing"

func TestMessagesOfEachEndAreDropped(t *testing.T) {
	for msg, want := range map[string]bool{
		"cgroups: epoll wait: bad file descriptor": true, "post event": true, "forward event": true,
		"failed to post event": false, "delete bundle": false, "": false,
	} {
		if got := noise(msg); got != want {
			t.Errorf("%q: %v", msg, got)
		}
	}
}
