package registry

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// Watchdog is a transport that calls stalled when some response is being read and nothing came for
// stallTimeout. Time in which nothing is being read, e.g. because layers are unpacked, does not count.
type Watchdog struct {
	Next    http.RoundTripper
	Stalled func()

	mu    sync.Mutex
	open  int // bodies being read
	timer *time.Timer
}

// RoundTrip implements http.RoundTripper.
func (w *Watchdog) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.Next.RoundTrip(r)
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

func (w *Watchdog) restartLocked() {
	if w.timer == nil {
		w.timer = time.AfterFunc(stallTimeout, w.Stalled)
		return
	}
	w.timer.Reset(stallTimeout)
}

func (w *Watchdog) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open > 0 {
		w.restartLocked()
	}
}

func (w *Watchdog) closed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open--; w.open == 0 {
		w.timer.Stop()
	}
}

type watchedBody struct {
	io.ReadCloser
	dog  *Watchdog
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

// stallTimeout ends a pull when the registry has sent nothing for so long, as CRI's image_pull_progress_timeout.
const stallTimeout = 5 * time.Minute
