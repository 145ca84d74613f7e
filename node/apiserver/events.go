package apiserver

import (
	"context"
	"net/http"
	"sort"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/correlate"
	"monopod/node/apiserver/mirror"
	"monopod/node/events"
)

// Bounds of what is sent of events.
const (
	// maxPending is how many wait for a server that does not answer: of more, the oldest are left out.
	maxPending = 200
	// maxSent is how many are remembered as sent, to raise their counts.
	maxSent = 1000
	// collect is how long events are collected.
	collect = 500 * time.Millisecond
	// objectBurst and objectRefill bound those about one object: so many at once, and another one each so often.
	objectBurst  = 25
	objectRefill = 5 * time.Minute
)

// bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
}

// take takes a token. There are at most burst tokens, and one more after each refill. wait is the time until the next one.
func (b *bucket) take(now time.Time, burst int, refill time.Duration) (wait time.Duration, ok bool) {
	if b.at.IsZero() {
		b.tokens = float64(burst)
	} else {
		b.tokens = min(float64(burst), b.tokens+float64(now.Sub(b.at))/float64(refill))
	}
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) * float64(refill)), false
	}
	b.tokens--
	return 0, true
}

// outbox sends events. It belongs to the goroutine of sendEvents.
type outbox struct {
	*Agent
	client *client.Client
	all    bucket
	// objects bounds the events about each; it is emptied when there are too many.
	objects map[manifests.Key]*bucket
	// similar combines those that differ in their message only.
	similar correlate.Events
	// chosen is what is sent of the event with this revision until the event is passed; nil: it is left out. A retry of the same event does
	// not count it twice.
	chosen struct {
		revision uint64
		event    *corev1.Event
	}
	// sent are the names of the events that exist on the server.
	sent map[string]bool
	// after is the last one that has been looked at.
	after uint64
	// refused is the error of the last event that was rejected; it is logged once.
	refused string
}

func newOutbox(a *Agent, c *client.Client) *outbox {
	return &outbox{Agent: a, client: c, objects: map[manifests.Key]*bucket{}, similar: correlate.Events{}, sent: map[string]bool{}}
}

// reasonOf is the reason in an answer of the API server.
func reasonOf(err error) string { return string(apierrors.ReasonForError(err)) }

// sendEvents sends what happens from now on.
func (a *Agent) sendEvents(ctx context.Context, c *client.Client) error {
	changed, cancel := a.cfg.Events.Subscribe()
	defer cancel()
	o := newOutbox(a, c)
	o.after = a.eventsSince()
	for end := time.Now().Add(client.RequestTimeout); a.cfg.Source && !a.store.knows() && time.Now().Before(end) && ctx.Err() == nil; {
		client.Pause(ctx, collect, nil) // else events of bound pods would be taken for those of mirrors
	}
	w := a.waits()
	for ctx.Err() == nil {
		err := o.send(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			w.Reset()
			select {
			case <-ctx.Done():
			case <-changed:
			}
			client.Pause(ctx, collect, nil)
		default:
			if e := client.Fatal(err); e != nil {
				return e
			}
			if w.News(err) {
				a.log.Info("cannot send events; retrying", "err", err)
			}
			client.Pause(ctx, w.Next(), nil)
		}
	}
	return nil
}

// eventsSince is from where events are sent: of one session after the other all of them, of the first those of this run.
func (a *Agent) eventsSince() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sentUpTo == nil {
		last := uint64(0)
		for _, e := range a.cfg.Events.List(events.Filter{}) {
			if e.LastTimestamp.Time.Before(a.began.Add(-time.Second)) {
				last = max(last, revision(&e))
			}
		}
		a.sentUpTo = &last
	}
	return *a.sentUpTo
}

func revision(e *corev1.Event) uint64 {
	n, _ := strconv.ParseUint(e.ResourceVersion, 10, 64) // as the recorder writes it
	return n
}

// send sends what is new. After an error the event in question will be tried again.
func (o *outbox) send(ctx context.Context) error {
	fresh := o.cfg.Events.List(events.Filter{After: o.after})
	sort.Slice(fresh, func(i, j int) bool { return revision(&fresh[i]) < revision(&fresh[j]) })
	if len(fresh) > maxPending {
		o.log.Info("events are dropped: there are too many", "count", len(fresh)-maxPending)
		fresh = fresh[len(fresh)-maxPending:]
	}
	for i := range fresh {
		e := &fresh[i]
		if shown := o.choose(e); shown != nil {
			if wait, ok := o.all.take(time.Now(), max(o.cfg.EventBurst, 1), o.refill()); !ok {
				client.Pause(ctx, wait, nil)
				o.all.take(time.Now(), max(o.cfg.EventBurst, 1), o.refill())
			}
			err := o.post(ctx, shown)
			if err != nil && !settled(err) {
				return err
			}
			if why := reasonOf(err); err != nil && why != o.refused {
				o.refused = why
				o.log.Warn("an event was refused and is dropped, as are others for the same reason", "event", e.Reason, "err", err)
			}
		}
		o.passed(revision(e))
	}
	return nil
}

// refill is how long it takes until another event may be sent.
func (o *outbox) refill() time.Duration {
	if o.cfg.EventQPS <= 0 {
		return 1
	}
	return time.Second / time.Duration(o.cfg.EventQPS)
}

func (o *outbox) passed(revision uint64) {
	o.after = revision
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sentUpTo = &revision
}

// settled reports whether a retry would get the same answer. The event is given up then.
func settled(err error) bool {
	c := client.Code(err)
	return c >= 400 && c < 500 && c != http.StatusTooManyRequests && c != http.StatusUnauthorized && c != http.StatusRequestTimeout
}

// choose is what is sent of an event: it, one for all that are like it, or nil.
func (o *outbox) choose(e *corev1.Event) *corev1.Event {
	if r := revision(e); o.chosen.revision != r || r == 0 {
		o.chosen.revision, o.chosen.event = r, nil
		if now := time.Now(); o.admitted(e, now) {
			o.chosen.event = o.shown(o.similar.Combine(now, e))
		}
	}
	return o.chosen.event
}

// admitted reports whether an event is shown to others, and is within the limit of its object.
func (o *outbox) admitted(e *corev1.Event, now time.Time) bool {
	if k := e.InvolvedObject.Kind; k != "Pod" && k != "Node" {
		return false
	}
	if len(o.objects) > maxSent {
		o.objects = map[manifests.Key]*bucket{}
	}
	key := manifests.Key{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	if o.objects[key] == nil {
		o.objects[key] = &bucket{}
	}
	_, ok := o.objects[key].take(now, objectBurst, objectRefill)
	return ok
}

// shown is an event as it is shown there: about the mirror of its pod.
func (o *outbox) shown(e *corev1.Event) *corev1.Event {
	s := e.DeepCopy()
	s.ResourceVersion = ""
	about := &s.InvolvedObject
	switch {
	case about.Kind == "Pod" && o.store.isBound(about.UID): // it is there itself
	case about.Kind == "Pod":
		about.Name = mirror.Name(about.Name, o.cfg.NodeName)
		s.Name = mirror.Name(e.InvolvedObject.Name, o.cfg.NodeName) + e.Name[min(len(e.Name), len(e.InvolvedObject.Name)):]
	case about.Kind == "Node":
		about.UID = types.UID(o.cfg.NodeName) // as a kubelet has it
	}
	return s
}

// post makes the event, or raises its count.
func (o *outbox) post(ctx context.Context, s *corev1.Event) error {
	if len(s.Name) > mirror.MaxName {
		return nil
	}
	to := client.Request{API: client.CoreAPI, Namespace: s.Namespace, Resource: "events"}
	id := s.Namespace + "/" + s.Name
	raise := to.With(http.MethodPatch, map[string]any{"count": s.Count, "lastTimestamp": s.LastTimestamp, "message": s.Message})
	raise.Name, raise.Patch = s.Name, types.MergePatchType
	if o.sent[id] {
		if err := o.client.Do(ctx, raise); !client.IsNotFound(err) {
			return err
		}
	}
	err := o.client.Do(ctx, to.With(http.MethodPost, s))
	if client.IsConflict(err) { // of an earlier run
		err = o.client.Do(ctx, raise)
	}
	if err == nil {
		if len(o.sent) >= maxSent {
			o.sent = map[string]bool{}
		}
		o.sent[id] = true
	}
	return err
}
