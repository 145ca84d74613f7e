package kubeapi

import (
	"context"
	"net/http"
	"time"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/request"
)

// Watches counts the watches of each user, also those of handlers outside of a Server. Create it with NewWatches.
type Watches struct{ watches }

// NewWatches returns a Watches.
func NewWatches() *Watches { return &Watches{watches{byUser: map[string]int{}}} }

// Limit applies the limits of watches to those of another handler: their number for each user and, over TLS, their duration and the time in
// which a client must read an event. The socket, which has no TLS, is for users of this machine, who may pause their output.
func (c *Watches) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.IsTrue(r.URL.Query(), "watch") {
			next.ServeHTTP(w, r)
			return
		}
		end, err := c.begin(access.UserOf(r.Context()).Name)
		if err != nil {
			codec.Fail(w, r, err)
			return
		}
		defer end()
		if r.TLS == nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), duration(0))
		defer cancel()
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // the deadline of the last event would apply to the next request
		}
		next.ServeHTTP(paced{w}, r.WithContext(ctx))
	})
}

// paced sets a deadline for each write.
type paced struct{ http.ResponseWriter }

func (p paced) Write(b []byte) (int, error) {
	p.limit()
	return p.ResponseWriter.Write(b)
}

// FlushError is called by http.ResponseController.
func (p paced) FlushError() error {
	p.limit()
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController set deadlines.
func (p paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// limit sets the deadline. Only connections in tests have no deadlines.
func (p paced) limit() {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(eventTimeout))
}
