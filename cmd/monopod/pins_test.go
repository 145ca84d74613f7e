package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod/runner/runtimetest"
)

// pinned notes which images a runtime was told to keep.
type pinned struct {
	Runtime
	mu    sync.Mutex
	calls []string
	// gone and err are the answers to come.
	gone []string
	err  error
}

// SyncPins implements Runtime.
func (p *pinned) SyncPins(_ context.Context, digests []string) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, strings.Join(digests, " "))
	return p.gone, p.err
}

func (p *pinned) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *pinned) answer(gone []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone, p.err = gone, err
}

func TestPinsAreKeptInStepWithWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		p := newPins(slog.New(slog.NewTextHandler(&log, nil)))
		rt := &pinned{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.follow(ctx, rt) }()
		time.Sleep(time.Hour)
		if got := rt.told(); len(got) != 0 {
			t.Errorf("told before anything is known: %q", got)
		}
		p.want(nil)
		synctest.Wait()
		p.want([]string{"a"})
		synctest.Wait()
		time.Sleep(time.Hour) // nothing changes
		if got, want := rt.told(), []string{"", "a"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}

		rt.answer(nil, errors.New("no containerd"))
		p.want([]string{"a", "b"})
		time.Sleep(10 * time.Second) // 1, 2 and 4 seconds
		if got, want := rt.told(), []string{"", "a", "a b", "a b", "a b", "a b"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		rt.answer([]string{"b"}, nil)
		time.Sleep(time.Hour)
		p.want([]string{"a", "b", "c"})
		synctest.Wait()
		if got, want := rt.told()[6:], []string{"a b", "a b c"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		cancel()
		<-ended
		if strings.Count(log.String(), "no containerd") != 1 || strings.Count(log.String(), "images=[b]") != 1 {
			t.Errorf("the log:\n%s", log.String())
		}

		// The next runtime is told at once.
		rt = &pinned{}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go p.follow(ctx, rt)
		synctest.Wait()
		if got, want := rt.told(), []string{"a b c"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

func TestTheImagesOfRevisionsArePinnedForAsLongAsTheseAreKept(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	last := func(want int) (pins []string) {
		t.Helper()
		d.eventually(fmt.Sprintf("%d images are pinned", want), func() error {
			calls := d.pins.told()
			if len(calls) > 0 {
				pins = strings.Fields(calls[len(calls)-1])
			}
			if len(calls) == 0 || len(pins) != want {
				return fmt.Errorf("%q", calls)
			}
			return nil
		})
		return pins
	}
	last(0)
	d.put("web.yaml", podYAML("web", runtimetest.ScriptServe))
	first := last(1)
	d.put("web.yaml", strings.Replace(podYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1))
	both := last(2)
	if !slices.Contains(both, first[0]) {
		t.Errorf("%q, then %q", first, both)
	}
	d.eventually("the revisions are stored", func() error {
		b, err := os.ReadFile(d.path("root", "revisions", "default", "web", "state"))
		if err == nil && (!strings.Contains(string(b), both[0]) || !strings.Contains(string(b), both[1])) {
			err = errors.New("not yet")
		}
		return err
	})
	calls := len(d.pins.told())
	d.end()
	d.start()
	d.shows("Running", "get", "pod", "web")
	d.eventually("the next agent has told", func() error {
		if len(d.pins.told()) == calls {
			return errors.New("it has not")
		}
		return nil
	})
	if got := d.pins.told()[calls:]; !slices.Equal(got, []string{strings.Join(both, " ")}) {
		t.Errorf("after a restart it tells %q", got)
	}
	if err := os.Remove(d.path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	last(0)
}
