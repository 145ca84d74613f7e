package locks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestSlotsLimitWhatRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(2)
		var free []func()
		for range 2 {
			f, err := s.Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			free = append(free, f)
		}
		ctx, cancel := context.WithCancel(t.Context())
		refused, taken := make(chan error, 1), make(chan func(), 1)
		go func() { _, err := s.Take(ctx); refused <- err }()
		synctest.Wait()
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("a third one that gives up: %v", err)
		}
		go func() { f, _ := s.Take(t.Context()); taken <- f }()
		synctest.Wait()
		if len(taken) != 0 {
			t.Error("three have a slot")
		}
		free[0]()
		(<-taken)()
		free[1]()
		if len(s) != 0 {
			t.Errorf("%d slots are taken", len(s))
		}
	})
}
