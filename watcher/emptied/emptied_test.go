package emptied

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chatty sends a set again and again.
type chatty struct{ set watcher.Set }

func (c chatty) Name() string { return c.set.Source }

func (c chatty) Run(ctx context.Context, out chan<- watcher.Set) error {
	for ctx.Err() == nil {
		send(ctx, out, c.set)
	}
	return ctx.Err()
}

// broken ends at once.
type broken struct{ chatty }

func (broken) Run(context.Context, chan<- watcher.Set) error { return errors.New("broken") }

func TestAnEmptiedSourceHasNothingAnyMore(t *testing.T) {
	set := watcher.Set{Source: "file", Pods: []*manifests.Pod{{}}, Inputs: []model.Input{{}}}
	for name, s := range map[string]*Source{"fixed": Fixed(set), "other": Of(chatty{set})} {
		ctx, cancel := context.WithCancel(t.Context())
		out, done := make(chan watcher.Set), make(chan error, 1)
		go func() { done <- s.Run(ctx, out) }()
		if got := <-out; s.Name() != "file" || !s.Prompt() || len(got.Pods) != 1 {
			t.Errorf("%s: %s has %+v", name, s.Name(), got)
		}
		s.Empty()
		s.Empty()
		got := <-out
		for len(got.Pods) > 0 { // what was under way
			got = <-out
		}
		if got.Source != "file" || len(got.Inputs) != 0 {
			t.Errorf("%s: emptied, it has %+v", name, got)
		}
		select {
		case got := <-out:
			t.Errorf("%s: then it has %+v", name, got)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnotherSourceMayFail(t *testing.T) {
	if err := Of(broken{}).Run(t.Context(), nil); err == nil || err.Error() != "broken" {
		t.Error(err)
	}
}

func TestASourceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range []*Source{Fixed(watcher.Set{}), Of(chatty{})} {
		s.Empty()
		if err := s.Run(ctx, nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
