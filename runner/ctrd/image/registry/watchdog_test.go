package registry

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// body is a response that gives one byte after each pause.
type body struct{ pauses []time.Duration }

func (b *body) Read(p []byte) (int, error) {
	if len(b.pauses) == 0 {
		return 0, io.EOF
	}
	time.Sleep(b.pauses[0])
	b.pauses = b.pauses[1:]
	return 1, nil
}

func (*body) Close() error { return nil }

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWatchdogBarksAtSilenceOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		pauses []time.Duration
		want   bool
	}{
		"slow but alive":  {[]time.Duration{4 * time.Minute, 4 * time.Minute, 4 * time.Minute}, false},
		"silent too long": {[]time.Duration{time.Minute, 6 * time.Minute}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var barked atomic.Bool
				w := &watchdog{stalled: func() { barked.Store(true) }, next: transport(func(*http.Request) (*http.Response, error) {
					return &http.Response{Body: &body{tt.pauses}}, nil
				})}
				resp, err := w.RoundTrip(nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if err := resp.Body.Close(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour) // unpacking takes its time
				if barked.Load() != tt.want {
					t.Errorf("barked: %v", barked.Load())
				}
			})
		})
	}
}
