package codec

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"sync"
)

const (
	// zipFrom is the size from which a response is compressed.
	zipFrom = 128 << 10
	// chunk is the size in which larger responses are written.
	chunk = 32 << 10
)

var (
	zips = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}}
	buffers = sync.Pool{New: func() any { return new([]byte) }} //nolint:gochecknoglobals // a pool
)

// maxPooled is the largest buffer that is kept for the next request.
const maxPooled = 256 << 10

// response collects a body, and sends its header once it knows whether the body is compressed. Call close, or drop it.
type response struct {
	w     http.ResponseWriter
	code  int
	media string
	zip   bool // the client accepts gzip

	pooled  *[]byte
	started bool
	gzip    *gzip.Writer
	err     error
}

func (f *Format) respond(w http.ResponseWriter, code int) *response {
	return &response{w: w, code: code, media: f.media, zip: f.zip, pooled: buffers.Get().(*[]byte)}
}

// Write implements io.Writer. After an error it discards data: the client is gone.
func (b *response) Write(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	*b.pooled = append(*b.pooled, p...)
	limit := chunk
	if b.zip && !b.started {
		limit = zipFrom
	}
	if len(*b.pooled) >= limit {
		b.flush(false)
	}
	return len(p), b.err
}

// flush writes the collected data. The first call decides about compression.
func (b *response) flush(last bool) {
	if !b.started {
		b.started = true
		h := b.w.Header()
		h.Set("Content-Type", b.media)
		h.Set("Cache-Control", "no-cache, private")
		switch {
		case b.zip && len(*b.pooled) >= zipFrom:
			h.Set("Content-Encoding", "gzip")
			h.Add("Vary", "Accept-Encoding")
			b.gzip = zips.Get().(*gzip.Writer)
			b.gzip.Reset(b.w)
		case last:
			h.Set("Content-Length", strconv.Itoa(len(*b.pooled)))
		}
		b.w.WriteHeader(b.code)
	}
	if b.err == nil && b.gzip != nil {
		_, b.err = b.gzip.Write(*b.pooled)
	} else if b.err == nil {
		_, b.err = b.w.Write(*b.pooled)
	}
	*b.pooled = (*b.pooled)[:0]
}

// close sends the rest.
func (b *response) close() {
	b.flush(true)
	if b.gzip != nil && b.err == nil {
		b.err = b.gzip.Close()
	}
	b.release()
}

// fail ends a response whose object cannot be encoded. It returns the error if nothing was sent; otherwise it aborts the connection, so
// that the client does not mistake a part for the whole.
func (b *response) fail(err error) error {
	gone := b.err != nil
	b.release()
	switch {
	case gone:
		return nil
	case !b.started:
		return err
	}
	panic(http.ErrAbortHandler)
}

func (b *response) release() {
	if b.gzip != nil {
		b.gzip.Reset(nil)
		zips.Put(b.gzip)
		b.gzip = nil
	}
	put(b.pooled)
	b.pooled = nil
}

// put keeps a buffer for the next request, unless it is large.
func put(buffer *[]byte) {
	if cap(*buffer) <= maxPooled {
		*buffer = (*buffer)[:0]
		buffers.Put(buffer)
	}
}
