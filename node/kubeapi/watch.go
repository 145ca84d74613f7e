package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/revlog"
	"monopod/node/kubeapi/storage"
	"monopod/node/kubeapi/writes"
)

const (
	// maxWatches is the maximum number of concurrent watches of a user.
	maxWatches = 64
	// watchRetry is the delay after which a client may retry, in seconds.
	watchRetry = 5
	// minWatch and maxWatch bound the duration of a watch without a timeout. No watch lasts longer than maxWatch: authorization happens at
	// the start of a request.
	minWatch, maxWatch = 30 * time.Minute, time.Hour
	// eventTimeout is the deadline for a client to read an event. A slower client is disconnected, and resumes later.
	eventTimeout = 30 * time.Second
)

// watches counts the watches of each user.
type watches struct {
	mu     sync.Mutex
	byUser map[string]int
}

// begin counts a watch, and returns a function that ends it. It fails if the user has too many.
func (c *watches) begin(user string) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byUser[user] >= maxWatches {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("user %q has %d concurrent watches, the maximum; close one", user, maxWatches), watchRetry)
	}
	c.byUser[user]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.byUser[user]--; c.byUser[user] == 0 {
			delete(c.byUser, user)
		}
	}, nil
}

// watch streams the changes of a kind.
func (s *Server) watch(w *answer, r *http.Request, req *request.Request) {
	format, err := codec.Negotiate(r, req.Kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	options, err := request.ParseListOptions(r.URL.Query(), req.Kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	user := access.UserOf(r.Context())
	end, err := s.watches.begin(user.Name)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer end()
	v := view{s, user, req.Kind, req.Namespace, &options}
	ctx, cancel := context.WithTimeout(r.Context(), duration(options.Timeout))
	defer cancel()
	initial, changes, err := v.begin(ctx)
	if err != nil && !errors.Is(err, revlog.ErrExpired) {
		s.fail(w, r, err)
		return
	}
	if r.ProtoMajor == 1 {
		// Otherwise the deadline for the end of this response would apply to the next request of the connection.
		w.Header().Set("Connection", "close")
	}
	out := &events{view: v, answer: w, stream: format.Watch(w)}
	defer out.limit()
	if err != nil {
		_ = out.expired()
		return
	}
	defer changes.Close()
	if err := out.run(ctx, initial, changes); err != nil {
		s.cfg.Log.Debug("A watch ended early", "user", user.Name, "kind", req.Kind.Kind, "err", err)
	}
}

// duration returns the maximum duration of a watch.
func duration(asked time.Duration) time.Duration {
	if asked == 0 {
		return minWatch + rand.N(maxWatch-minWatch)
	}
	return min(asked, maxWatch)
}

// begin returns the initial objects of a watch, if requested, and the changes after them.
func (v *view) begin(ctx context.Context) (initial []kinds.Object, changes *revlog.Watch, err error) {
	o := v.options
	from, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, nil, err
	}
	asked, refused := o.SendInitialEvents != nil && *o.SendInitialEvents, o.SendInitialEvents != nil && !*o.SendInitialEvents
	if asked || from == 0 {
		objects, revision, err := v.server.logOf(v.kind).List(ctx, v.kind)
		if err != nil {
			return nil, nil, writes.Unavailable(err)
		}
		if from > revision {
			return nil, nil, tooLarge(from, revision)
		}
		from = revision
		if !refused {
			initial = v.filter(objects)
		}
	}
	changes, err = v.server.logOf(v.kind).Watch(ctx, v.kind, from)
	switch {
	case errors.Is(err, revlog.ErrTooLarge):
		return nil, nil, tooLarge(from, v.server.logOf(v.kind).Revision())
	case errors.Is(err, revlog.ErrExpired):
		return nil, nil, err
	}
	return initial, changes, writes.Unavailable(err)
}

// events writes the events of a watch.
type events struct {
	view
	answer *answer
	stream *codec.Stream
}

// run writes until the context ends, the client is gone or too slow, or the log has dropped changes that the watch has not read.
func (e *events) run(ctx context.Context, initial []kinds.Object, changes *revlog.Watch) error {
	if err := e.begun(initial, changes.Revision()); err != nil {
		return err
	}
	for {
		news, err := changes.Next(ctx)
		switch {
		case errors.Is(err, revlog.ErrExpired):
			return e.expired()
		case errors.Is(err, context.DeadlineExceeded):
			if !e.options.AllowBookmarks {
				return nil
			}
			return e.bookmark(changes.Revision(), nil)
		case err != nil:
			return err
		}
		if err := e.changed(news); err != nil {
			return err
		}
	}
}

// begun writes the header, the initial objects, and the bookmark after them.
func (e *events) begun(initial []kinds.Object, revision uint64) error {
	e.answer.hold = true
	for _, o := range initial {
		if err := e.send(watch.Added, o); err != nil {
			return err
		}
	}
	if asked := e.options.SendInitialEvents; asked != nil && *asked && e.options.AllowBookmarks {
		if err := e.bookmark(revision, map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return err
		}
	}
	return e.release()
}

// changed writes changes as events for this client.
func (e *events) changed(news []revlog.Event) error {
	e.answer.hold = true
	for _, one := range news {
		kind, object := e.event(one)
		if object == nil {
			continue
		}
		if err := e.send(kind, object); err != nil {
			return err
		}
	}
	return e.release()
}

// event returns the event that a change causes for the selected objects; the object is nil if none.
func (e *events) event(one revlog.Event) (watch.EventType, kinds.Object) {
	was, is := one.Old != nil && e.showed(one.Old), one.New != nil && e.shows(one.New)
	switch {
	case is && was:
		return watch.Modified, one.New
	case is:
		return watch.Added, one.New
	case was:
		return watch.Deleted, e.withoutSecrets(revlog.At(one.Old, one.Revision))
	}
	return "", nil
}

// showed reports whether an object that is gone, or has changed, was shown. Where a Secret was defined is no longer known, but State marks those
// that clients have not made.
func (e *events) showed(o kinds.Object) bool {
	return e.selects(o) && (o.GetAnnotations()[storage.AnnotationOrigin] == "" || !access.Hides(e.user, e.server.cfg.Policy, o, false))
}

// withoutSecrets removes the content of a deleted object that may have been hidden from this user: where it was defined is no longer known.
// The object is a copy.
func (e *events) withoutSecrets(o kinds.Object) kinds.Object {
	secret, ok := o.(*corev1.Secret)
	if ok && access.Hides(e.user, e.server.cfg.Policy, o, false) {
		secret.Data, secret.StringData, secret.Annotations, secret.ManagedFields = nil, nil, nil, nil
	}
	return o
}

func (e *events) bookmark(revision uint64, annotations map[string]string) error {
	o := revlog.At(e.kind.New(), revision)
	o.SetAnnotations(annotations)
	return e.send(watch.Bookmark, o)
}

// expired sends the error that changes are missing: clients relist.
func (e *events) expired() error {
	status := apierrors.NewResourceExpired(revlog.ErrExpired.Error()).Status()
	return e.send(watch.Error, &status)
}

func (e *events) send(kind watch.EventType, o runtime.Object) error {
	return e.stream.Send(kind, o) // Send has a deadline
}

// release flushes delayed events.
func (e *events) release() error {
	e.limit()
	e.answer.hold = false
	return e.answer.FlushError()
}

// limit sets the deadline of writes. Only connections in tests have no deadlines.
func (e *events) limit() {
	_ = http.NewResponseController(e.answer).SetWriteDeadline(time.Now().Add(eventTimeout))
}
