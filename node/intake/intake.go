// Package intake reads the bodies of requests to paths of monopod.dev: it bounds the memory that they take, also that of many at once.
//
// It must not know what they mean. It starts no goroutines.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"monopod/internal/jsonlimit"
)

const (
	// maxApply is the most bytes of a request that changes something: far more than what runs on one machine needs. They take several times that while they are decoded.
	maxApply = 16 << 20
	// maxApplyValues is the most values of it: its files are one each.
	maxApplyValues = 50_000
	// fewBytes is what a request may have that does not wait for others.
	fewBytes = 64 << 10
	// manyBytes is what a request has that is returned to the system at once, before the next one takes as much.
	manyBytes = 1 << 20
	// bodyWithin is how long a client has to send it: others wait for their turn meanwhile.
	bodyWithin = 30 * time.Second
)

// turns lets one large request after the other into memory.
type turns chan struct{}

func newTurns() turns { return make(turns, 1) }

// take waits for a turn, which the caller must end.
func (t turns) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Intake reads bodies. Create it with New.
type Intake struct {
	// socket are the turns of large requests on the socket, remote those over TCP, whose clients may send slowly.
	socket, remote turns
}

// New returns an Intake.
func New() *Intake { return &Intake{newTurns(), newTurns()} }

// Small decodes a body of at most 64 KiB. It waits for no other request.
func (*Intake) Small(w http.ResponseWriter, r *http.Request, into any) error {
	return readJSON(w, r, into, fewBytes)
}

// Large decodes a body of at most 16 MiB. The caller must call end when it no longer needs the result: a body that is large, or of unknown
// length, makes others wait until then. A request over TCP does not make those on the socket wait.
func (i *Intake) Large(w http.ResponseWriter, r *http.Request, into any) (end func(), err error) {
	end = func() {}
	turns := i.socket
	if r.TLS != nil {
		turns = i.remote
	}
	if r.ContentLength < 0 || r.ContentLength > fewBytes {
		over, err := turns.take(r.Context())
		if err != nil {
			return end, err
		}
		end = over
		if r.ContentLength < 0 || r.ContentLength > manyBytes {
			end = func() { debug.FreeOSMemory(); over() }
		}
	}
	return end, readJSON(w, r, into, maxApply)
}

// readJSON decodes a body of at most so many bytes.
func readJSON(w http.ResponseWriter, r *http.Request, into any, most int64) error {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyWithin)) // not all that tests answer with can
	defer func() { _ = deadline.SetReadDeadline(time.Time{}) }()
	dec := json.NewDecoder(jsonlimit.NewReader(http.MaxBytesReader(w, r.Body, most), maxApplyValues))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		if most < maxApply {
			return fmt.Errorf("it has more than %d KiB", most>>10)
		}
		return fmt.Errorf("it has more than %d MiB; apply fewer files at once", most>>20)
	}
	return err
}
