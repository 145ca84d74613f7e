package imagegc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/daemontest"
)

func TestPinsAreKeptInStepWithWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p := NewPins(slog.New(slog.NewTextHandler(&log, nil)))
		rt := &daemontest.Pinned{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.Follow(ctx, rt) }()
		time.Sleep(time.Hour)
		if got := rt.Calls(); len(got) != 0 {
			t.Errorf("told before anything is known: %q", got)
		}
		p.Want(nil)
		synctest.Wait()
		p.Want([]string{"a"})
		synctest.Wait()
		time.Sleep(time.Hour) // nothing changes
		if got, want := rt.Calls(), []string{"", "a"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}

		rt.Answer(nil, errors.New("no containerd"))
		p.Want([]string{"a", "b"})
		time.Sleep(10 * time.Second) // 1, 2 and 4 seconds
		if got, want := rt.Calls(), []string{"", "a", "a b", "a b", "a b", "a b"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		rt.Answer([]string{"b"}, nil)
		time.Sleep(time.Hour)
		p.Want([]string{"a", "b", "c"})
		synctest.Wait()
		if got, want := rt.Calls()[6:], []string{"a b", "a b c"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		cancel()
		<-ended
		if strings.Count(log.String(), "no containerd") != 1 || strings.Count(log.String(), "images=[b]") != 1 {
			t.Errorf("the log:\n%s", log.String())
		}

		// The next runtime gets the pins immediately.
		rt = &daemontest.Pinned{}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go p.Follow(ctx, rt)
		synctest.Wait()
		if got, want := rt.Calls(), []string{"a b c"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}
