package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
)

// tapRoom is the maximum amount of output that a tap buffers.
const tapRoom = 1 << 20

// ErrBehind ends a tap whose reader was too slow. The log contains the missed output.
var ErrBehind = errors.New("the output came faster than it was read; see the log for the rest")

// Tap receives the live output of a container. Neither the container nor its log wait for it: a tap that cannot keep up is ended.
type Tap struct {
	taps  *taps
	ready chan struct{}

	mu     sync.Mutex // guards all below
	pieces []piece
	size   int
	err    error
}

// piece is the output of one read: stream 0 is standard output, 1 standard error.
type piece struct {
	stream int
	data   []byte
}

// taps are the taps of one container.
type taps struct {
	mu    sync.Mutex // guards all below
	all   []*Tap
	ended bool
}

// Tap opens a tap of an attached container. The caller closes it.
func (c *Collector) Tap(id string) (*Tap, error) {
	c.mu.Lock()
	ct := c.containers[id]
	c.mu.Unlock()
	if ct == nil {
		return nil, fmt.Errorf("output of %s: %w", id, fs.ErrNotExist)
	}
	t := &Tap{taps: &ct.taps, ready: make(chan struct{}, 1)}
	ct.taps.mu.Lock()
	defer ct.taps.mu.Unlock()
	if ct.taps.ended {
		t.err = io.EOF
		return t, nil
	}
	ct.taps.all = append(ct.taps.all, t)
	return t, nil
}

// Close ends the tap.
func (t *Tap) Close() {
	t.taps.mu.Lock()
	defer t.taps.mu.Unlock()
	t.taps.all = slices.DeleteFunc(t.taps.all, func(other *Tap) bool { return other == t })
}

// Copy writes output to the writers until the container exits or ctx ends. A nil writer discards its stream.
func (t *Tap) Copy(ctx context.Context, stdout, stderr io.Writer) error {
	to := [2]io.Writer{stdout, stderr}
	for {
		pieces, err := t.take()
		for _, p := range pieces {
			if to[p.stream] != nil {
				if _, err := to[p.stream].Write(p.data); err != nil {
					return err
				}
			}
			t.taken(len(p.data))
		}
		switch {
		case len(pieces) > 0:
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take returns all buffered pieces.
func (t *Tap) take() ([]piece, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pieces := t.pieces
	t.pieces = nil
	return pieces, t.err
}

// taken frees space in the buffer.
func (t *Tap) taken(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size -= n
}

// put adds a piece or, with err, ends the tap.
func (t *Tap) put(stream int, data []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return
	case err == nil && t.size+len(data) > tapRoom:
		t.err = ErrBehind
	case err != nil:
		t.err = err
	default:
		t.addLocked(stream, data)
	}
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// addLocked copies data and merges small pieces.
func (t *Tap) addLocked(stream int, data []byte) {
	t.size += len(data)
	if n := len(t.pieces); n > 0 && t.pieces[n-1].stream == stream && len(t.pieces[n-1].data)+len(data) <= readSize {
		t.pieces[n-1].data = append(t.pieces[n-1].data, data...)
		return
	}
	t.pieces = append(t.pieces, piece{stream, slices.Clone(data)})
}

// publish passes output to all taps.
func (t *taps) publish(stream int, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tap := range t.all {
		tap.put(stream, data, nil)
	}
}

// end ends all taps.
func (t *taps) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, tap := range t.all {
		tap.put(0, nil, io.EOF)
	}
	t.all = nil
}
