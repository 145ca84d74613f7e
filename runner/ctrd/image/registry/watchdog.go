package registry

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// watchdog is a transport that calls stalled when responses are being read and no data arrived for stallTimeout. Time in which nothing
// is being read, for example while layers are unpacked, does not count.
type watchdog struct {
	next    http.RoundTripper
	stalled func()

	mu    sync.Mutex
	open  int // bodies being read
	timer *time.Timer
}

// RoundTrip implements http.RoundTripper.
func (w *watchdog) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if err != nil || resp.Body == nil || resp.Body == http.NoBody {
		return resp, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	w.restartLocked()
	resp.Body = &watchedBody{ReadCloser: resp.Body, dog: w}
	return resp, nil
}

func (w *watchdog) restartLocked() {
	if w.timer == nil {
		w.timer = time.AfterFunc(stallTimeout, w.stalled)
		return
	}
	w.timer.Reset(stallTimeout)
}

func (w *watchdog) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open > 0 {
		w.restartLocked()
	}
}

func (w *watchdog) closed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open--; w.open == 0 {
		w.timer.Stop()
	}
}

type watchedBody struct {
	io.ReadCloser
	dog  *watchdog
	once sync.Once
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.dog.progress()
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.once.Do(b.dog.closed)
	return b.ReadCloser.Close()
}

// stallTimeout is the default of image_pull_progress_timeout of containerd's CRI plugin.
const stallTimeout = 5 * time.Minute
