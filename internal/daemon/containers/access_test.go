package containers

import (
	"io"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/streams"
	"monopod/manifests"
)

func TestTheEndOfAStreamIsNoted(t *testing.T) {
	t.Parallel()
	ends := 0
	r := &Access{StreamEnded: func() { ends++ }}
	if _, err := r.Stream(t.Context(), manifests.Key{}, "", []string{"a"}, streams.Streams{}); err == nil || ends != 0 {
		t.Errorf("without a runtime: %v, %d ends", err, ends)
	}
	r.set(&daemontest.FakeRuntime{})
	s := streams.Streams{Stdout: io.Discard, Stderr: io.Discard}
	code, err := r.Stream(t.Context(), manifests.Key{}, "", []string{"a"}, s)
	if aerr := r.Attach(t.Context(), manifests.Key{}, "", s); err != nil || aerr != nil || code != 1 || ends != 2 {
		t.Errorf("%v, %v, %d, %d ends", err, aerr, code, ends)
	}
}
