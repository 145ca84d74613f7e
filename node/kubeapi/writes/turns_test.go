package writes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestUsersTakeTurns: a user with many writes delays only its own.
func TestUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns()
		take := func(user string) func() {
			end, err := all.take(t.Context(), user)
			if err != nil {
				t.Error(err)
			}
			return end
		}
		var greedy []func()
		for range maxUserWrites {
			greedy = append(greedy, take("greedy"))
		}
		var mu sync.Mutex
		var order []string
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				end := take("greedy")
				mu.Lock()
				order = append(order, "greedy")
				mu.Unlock()
				end()
			})
		}
		synctest.Wait()
		take("root")() // at once
		var others []func()
		for _, user := range []string{"a", "b", "c"} {
			for range maxUserWrites {
				others = append(others, take(user))
			}
		}
		waiting.Go(func() {
			end := take("root")
			mu.Lock()
			order = append(order, "root")
			mu.Unlock()
			end()
		})
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("%v run already", order)
		}
		others[0]() // greedy has as many as it may
		synctest.Wait()
		if !slices.Equal(order, []string{"root"}) {
			t.Errorf("order: %v", order)
		}
		for _, end := range append(greedy, others[1:]...) {
			end()
		}
		waiting.Wait()
		if len(order) != 4 || all.running != 0 || len(all.byUser)+len(all.waiting)+len(all.order) != 0 {
			t.Errorf("%v, left is %+v", order, all)
		}
	})
}

func TestAWaitingWriteEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns()
		var ends []func()
		for range maxUserWrites {
			end, err := all.take(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := all.take(ctx, "u")
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, end := range ends {
			end()
		}
		if all.running != 0 || len(all.byUser)+len(all.waiting)+len(all.order) != 0 {
			t.Errorf("left is %+v", all)
		}
	})
}
