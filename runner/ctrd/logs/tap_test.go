package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
)

func TestATapHasWhatComesUntilTheEnd(t *testing.T) {
	var ts taps
	tap := &Tap{taps: &ts, ready: make(chan struct{}, 1)}
	ts.all = append(ts.all, tap)
	ts.publish(0, []byte("out "))
	ts.publish(0, []byte("more"))
	ts.publish(1, []byte("error"))
	ts.end()
	var out, errs bytes.Buffer
	if err := tap.Copy(t.Context(), &out, &errs); err != nil || out.String() != "out more" || errs.String() != "error" {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
	if n := len(tap.pieces); n != 0 || tap.size != 0 {
		t.Errorf("%d pieces with %d bytes are left", n, tap.size)
	}
}

func TestATapThatIsNotReadEnds(t *testing.T) {
	var ts taps
	tap, other := &Tap{taps: &ts, ready: make(chan struct{}, 1)}, &Tap{taps: &ts, ready: make(chan struct{}, 1)}
	ts.all = append(ts.all, tap, other)
	line := bytes.Repeat([]byte("x"), 1000)
	for range 2 * tapRoom / len(line) {
		ts.publish(0, line)
	}
	if tap.size > tapRoom || len(tap.pieces) > tapRoom/readSize+1 {
		t.Errorf("it holds %d bytes in %d pieces", tap.size, len(tap.pieces))
	}
	var out bytes.Buffer
	err := tap.Copy(t.Context(), &out, nil)
	if !errors.Is(err, ErrBehind) || out.Len() == 0 || out.Len() > tapRoom {
		t.Errorf("%v after %d bytes", err, out.Len())
	}
	tap.Close()
	if len(ts.all) != 1 || ts.all[0] != other {
		t.Error("a tap that is closed is still there, or another one is not")
	}
}

func TestATapEndsWithItsReader(t *testing.T) {
	var ts taps
	tap := &Tap{taps: &ts, ready: make(chan struct{}, 1)}
	ts.all = append(ts.all, tap)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tap.Copy(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	ts.publish(1, []byte("x"))
	r, w := io.Pipe()
	_ = r.Close()
	if err := tap.Copy(t.Context(), nil, w); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("nobody takes it: %v", err)
	}
}
