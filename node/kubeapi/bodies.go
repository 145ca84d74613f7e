package kubeapi

import (
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
)

const (
	// maxBodies and maxUserBodies bound the bodies of all requests and of those of one user, in bytes.
	maxBodies     = 16 * codec.MaxBody
	maxUserBodies = 4 * codec.MaxBody
	// freeBodies is what each user may send however much others do.
	freeBodies = 64 << 10
	// bodyTime is the timeout of a body, as in kube-apiserver.
	bodyTime = 34 * time.Second
)

// bodies counts the bytes of request bodies in memory. Received bytes count, not announced ones: a client that sends slowly takes nothing
// from others.
type bodies struct {
	mu     sync.Mutex
	all    int
	byUser map[string]int
}

// take counts bytes of a user, and reports whether they are within the limits.
func (b *bodies) take(user string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byUser[user] + n
	if of > maxUserBodies || of > freeBodies && b.all+n > maxBodies {
		return false
	}
	if b.byUser == nil {
		b.byUser = map[string]int{}
	}
	b.all, b.byUser[user] = b.all+n, of
	return true
}

func (b *bodies) release(user string, n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.byUser[user] -= n; b.byUser[user] == 0 {
		delete(b.byUser, user)
	}
}

// counted is a body whose bytes are counted.
type counted struct {
	io.ReadCloser
	of   *bodies
	user string
	n    int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if n == 0 {
		return n, err
	}
	if !c.of.take(c.user, n) {
		return 0, apierrors.NewTooManyRequests("too many large concurrent requests; retry", 1)
	}
	c.n += n
	return n, err
}

// buffered reads the body of a request before a handler takes anything that other requests wait for.
func (s *Server) buffered(w http.ResponseWriter, r *http.Request, next func(*http.Request)) {
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Now().Add(bodyTime)) == nil {
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	body := &counted{ReadCloser: r.Body, of: &s.bodies, user: access.UserOf(r.Context()).Name}
	defer func() { s.bodies.release(body.user, body.n) }()
	r = r.WithContext(r.Context()) // r.Body of the caller stays
	r.Body = body
	if err := codec.Buffer(w, r, codec.MaxBody); err != nil {
		s.fail(w, r, err)
		return
	}
	next(r)
}
