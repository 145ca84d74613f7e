package taskwatch

import (
	"context"
	"testing"
	"testing/synctest"

	"monopod/manifests"
)

var testKey = manifests.Key{Namespace: "default", Name: "web"}

func TestEventsBeforeTheFirstWatchAreMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		w.Notify(testKey)
		ctx, cancel := context.WithCancel(t.Context())
		var got []manifests.Key
		done := make(chan error, 1)
		go func() { done <- w.Follow(ctx, func(k manifests.Key) { got = append(got, k) }) }()
		synctest.Wait()
		w.Notify(testKey)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(got) != 2 || got[0] != (manifests.Key{}) || got[1] != testKey {
			t.Errorf("notified of %v", got)
		}
	})
}
