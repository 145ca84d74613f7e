package watcher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/model"
)

// scripted is a Source that does what a test says.
type scripted struct {
	name string
	run  func(ctx context.Context, out chan<- Set) error
}

func (s *scripted) Name() string                                  { return s.name }
func (s *scripted) Run(ctx context.Context, out chan<- Set) error { return s.run(ctx, out) }

// sender sends the sets that come from a channel.
func sender(name string) (*scripted, chan<- Set) {
	in := make(chan Set)
	return &scripted{name, func(ctx context.Context, out chan<- Set) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case s := <-in:
				Send(ctx, out, s)
			}
		}
	}}, in
}

// published collects what a Watcher publishes.
type published struct {
	mu  sync.Mutex
	all []model.Desired
}

func (p *published) add(d model.Desired) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, d)
}

func (p *published) list() []model.Desired {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func (p *published) contents() []string {
	var all []string
	for _, d := range p.list() {
		all = append(all, content(d.Pods))
	}
	return all
}

// running runs a Watcher inside a synctest bubble and stops it at the end of f.
func running(t *testing.T, w *Watcher, publish func(model.Desired), f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, publish) }()
	synctest.Wait()
	f()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestTheFirstPublishWaitsForNoOtherSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, fromFile := sender("file")
		web, fromWeb := sender("http")
		var p published
		running(t, New(nil, file, web), p.add, func() {
			if got := p.list(); len(got) != 0 {
				t.Fatalf("published %v before anything was known", got)
			}
			fromFile <- setOf("file", podIn("file", "a", "x", "v1"))
			synctest.Wait()
			if d := p.list(); len(d) != 1 || content(d[0].Pods) != "x=v1@a" || !d[0].Reported["file"] || d[0].Reported["http"] {
				t.Fatalf("published %+v", d)
			}
			fromWeb <- setOf("http", podIn("http", "u", "y", "v1"))
			synctest.Wait()
			if d := p.list(); len(d) != 2 || content(d[1].Pods) != "x=v1@a y=v1@u" || !d[1].Reported["http"] {
				t.Fatalf("published %+v", d)
			}
		})
	})
}

// promptSource is a scripted source that is read from the disk.
type promptSource struct{ *scripted }

func (promptSource) Prompt() bool { return true }

// A pod of two sources must not be started from the lower one because that one was read first.
func TestTheFirstPublishWaitsForSourcesThatAreReadFromTheDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		first func(fromFile chan<- Set)
		want  []string
		after time.Duration
	}{
		"it is read":        {func(c chan<- Set) { c <- setOf("file", podIn("file", "a", "x", "v1")) }, []string{"x=v1@a"}, 0},
		"it cannot be read": {func(c chan<- Set) { c <- Set{Source: "file", Unread: true} }, []string{"x=v2@b"}, 0},
		"it hangs":          {func(chan<- Set) {}, []string{"x=v2@b"}, promptPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file, fromFile := sender("file")
				pushed, fromPushed := sender("applied")
				var p published
				start := time.Now()
				var took time.Duration
				running(t, New(nil, promptSource{file}, promptSource{pushed}), func(d model.Desired) { took = time.Since(start); p.add(d) }, func() {
					fromPushed <- setOf("applied", podIn("applied", "b", "x", "v2"))
					synctest.Wait()
					if got := p.list(); len(got) != 0 {
						t.Fatalf("published %v before the file was read", got)
					}
					tt.first(fromFile)
					time.Sleep(2 * promptPatience)
					synctest.Wait()
					if got := p.contents(); !slices.Equal(got, tt.want) || took != tt.after {
						t.Errorf("published %q after %v, want %q after %v", got, took, tt.want, tt.after)
					}
				})
			})
		})
	}
}

func TestNothingIsPublishedWhenNothingChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, from := sender("file")
		var p published
		running(t, New(nil, file), p.add, func() {
			for range 5 {
				from <- setOf("file", podIn("file", "a", "x", "v1")) // equal, though made anew each time
				synctest.Wait()
			}
			from <- Set{Source: "file"}
			synctest.Wait()
			if got := p.contents(); !slices.Equal(got, []string{"x=v1@a", ""}) {
				t.Errorf("published %q", got)
			}
		})
	})
}

func TestASlowReceiverGetsTheLatestAndBlocksNoSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, from := sender("file")
		var p published
		busy := make(chan struct{})
		publish := func(d model.Desired) {
			p.add(d)
			<-busy
		}
		running(t, New(nil, file), publish, func() {
			for _, image := range []string{"v1", "v2", "v3", "v4"} {
				from <- setOf("file", podIn("file", "a", "x", image)) // returns although publish hangs in v1
				synctest.Wait()
			}
			close(busy)
			synctest.Wait()
			if got := p.contents(); !slices.Equal(got, []string{"x=v1@a", "x=v4@a"}) {
				t.Errorf("published %q", got)
			}
		})
	})
}

func TestASourceThatFailsIsContainedReportedAndStartedAgain(t *testing.T) {
	fails := map[string]func() error{
		"an error":         func() error { return errors.New("the disk is on fire") },
		"a panic":          func() error { panic("the disk is on fire") },
		"an end by itself": func() error { return nil },
	}
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var starts []time.Time
				bad := &scripted{"http", func(ctx context.Context, out chan<- Set) error {
					starts = append(starts, time.Now())
					if len(starts) == 1 {
						Send(ctx, out, setOf("http", podIn("http", "u", "y", "v1")))
					}
					if len(starts) < 4 {
						return fail()
					}
					Send(ctx, out, setOf("http", podIn("http", "u", "y", "v2")))
					<-ctx.Done()
					return nil
				}}
				file, from := sender("file")
				var p published
				running(t, New(slog.New(slog.DiscardHandler), file, bad), p.add, func() {
					from <- setOf("file", podIn("file", "a", "x", "v1"))
					synctest.Wait()
					d := p.list()[len(p.list())-1]
					if content(d.Pods) != "x=v1@a y=v1@u" || !d.Reported["http"] {
						t.Fatalf("a failed source lost its content: %+v", d)
					}
					last := d.Inputs[len(d.Inputs)-1]
					if last.State != model.InputUnreachable || last.Input != "http" || !strings.Contains(last.Errors[0], "run source http") {
						t.Fatalf("reports %+v", d.Inputs)
					}
					time.Sleep(10 * time.Second)
					synctest.Wait()
					d = p.list()[len(p.list())-1]
					if content(d.Pods) != "x=v1@a y=v2@u" || len(d.Inputs) != 2 {
						t.Fatalf("after its return: %+v", d)
					}
				})
				for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
					if got := starts[i+1].Sub(starts[i]); got != want {
						t.Errorf("pause %d is %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

func TestTheRestartPauseIsBoundedAndStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		src := &scripted{"s", func(ctx context.Context, _ chan<- Set) error {
			starts = append(starts, time.Now())
			if len(starts) == 12 {
				Pause(ctx, time.Hour)
			}
			return errors.New("no")
		}}
		running(t, New(nil, src), func(model.Desired) {}, func() { time.Sleep(3 * time.Hour) })
		if got := starts[11].Sub(starts[10]); got != lastRestart {
			t.Errorf("pause 11 is %v", got)
		}
		if got := starts[12].Sub(starts[11]) - time.Hour; got != firstRestart {
			t.Errorf("the pause after a long run is %v", got)
		}
	})
}

func TestAWatcherOfNothingJustWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running(t, New(nil), func(model.Desired) { t.Error("published") }, func() {})
	})
}

func TestTwoSourcesOfOneNameAreRefused(t *testing.T) {
	a, _ := sender("file")
	b, _ := sender("file")
	if err := New(nil, a, b).Run(t.Context(), func(model.Desired) {}); err == nil || !strings.Contains(err.Error(), `"file"`) {
		t.Errorf("Run: %v", err)
	}
}
