package imagegc

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"monopod/internal/pause"
)

// Waits between attempts to pin images.
const (
	firstRepin = time.Second
	lastRepin  = 5 * time.Minute
)

// Pins keeps the images of kept revisions in the open runtime. Nothing else pins or unpins images.
type Pins struct {
	log     *slog.Logger
	changed chan struct{}

	mu      sync.Mutex
	digests []string
	// known is true after the first Want: before it, nothing may be unpinned.
	known bool
}

// pinner pins images; see containers.Runtime.
type pinner interface {
	SyncPins(ctx context.Context, digests []string) (gone []string, err error)
}

// NewPins returns Pins that pin nothing until Want is called.
func NewPins(log *slog.Logger) *Pins { return &Pins{log: log, changed: make(chan struct{}, 1)} }

// Want replaces the digests of all images to keep. It does not block.
func (p *Pins) Want(digests []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.digests, p.known = digests, true
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// take returns the digests of all images to keep, and clears the signal of a change.
func (p *Pins) take() (digests []string, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.changed:
	default:
	}
	return p.digests, p.known
}

// wanted returns the digests of all images to keep, once they are known.
func (p *Pins) wanted() (digests []string, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.digests, p.known
}

// Follow pins the wanted images in a runtime, now and after each change, until ctx ends.
func (p *Pins) Follow(ctx context.Context, rt pinner) {
	timer := time.NewTimer(pause.FarAway)
	defer timer.Stop()
	told := pinLog{log: p.log}
	wait := firstRepin
	for {
		timer.Stop()
		if digests, known := p.take(); known {
			gone, err := rt.SyncPins(ctx, digests)
			if ctx.Err() != nil {
				return
			}
			told.tell(gone, err)
			if err == nil {
				wait = firstRepin
			} else {
				timer.Reset(wait)
				wait = min(2*wait, lastRepin)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-timer.C:
		}
	}
}

// pinLog logs each trouble once.
type pinLog struct {
	log  *slog.Logger
	err  string
	gone []string
}

func (t *pinLog) tell(gone []string, err error) {
	if err != nil {
		if err.Error() != t.err {
			t.log.Warn("cannot pin images of kept revisions, which may be lost when their tags move; retrying", "err", err)
		}
		t.err = err.Error()
		return
	}
	if len(gone) > 0 && !slices.Equal(gone, t.gone) {
		t.log.Warn("images of kept revisions are missing; rolling back to them requires a registry", "images", gone)
	}
	t.err, t.gone = "", gone
}
