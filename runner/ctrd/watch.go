package ctrd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"

	"monopod/internal/pause"
	"monopod/manifests"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/sandbox"
	"monopod/runner/ctrd/taskwatch"
	"monopod/runner/ctrd/upkeep"
)

// Watch implements runner.Runtime. It needs Run, which reads the events.
func (r *Runtime) Watch(ctx context.Context, notify func(manifests.Key)) error {
	return r.watch.Follow(ctx, notify)
}

// follower follows containerd's events, and reconnects when containerd was gone.
type follower struct {
	client    *client.Client
	records   *record.Store
	index     *record.Index
	images    *imagestore.Store
	sandboxes *sandbox.Manager
	removal   *upkeep.Remover
	watch     *taskwatch.Watchers
	namespace string
	// askVersion reports whether containerd answers.
	askVersion func(context.Context) error
	// connection is called with an error when containerd stops answering, and with nil when it answers again.
	connection func(error)
	ns         func(context.Context) context.Context
	log        *slog.Logger

	events *subscription
}

// subscribe starts a subscription. It lives until cancel is called, also after ctx has ended.
func (r *follower) subscribe(ctx context.Context) *subscription {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ns(ctx)))
	ns := fmt.Sprintf(`namespace==%q`, r.namespace)
	ch, errs := r.client.EventService().Subscribe(ctx,
		ns+`,topic=="/tasks/exit"`, ns+`,topic=="/tasks/oom"`, ns+`,topic=="/containers/delete"`)
	return &subscription{events: ch, errs: errs, cancel: cancel}
}

// Limits of the back-off between attempts to reach a missing containerd.
const (
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
)

// followEvents reads events until ctx ends. When the stream breaks, it subscribes again and reloads all records, because events
// that were missed are not repeated, and notifies all watchers.
func (r *follower) followEvents(ctx context.Context) error {
	delay := minReconnect
	for {
		began := time.Now()
		err := r.readEvents(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.log.Warn("lost containerd's event stream", "err", err)
		r.connection(err)
		if time.Since(began) > maxReconnect {
			delay = minReconnect
		}
		for {
			if !pause.For(ctx, delay) {
				return nil
			}
			delay = min(2*delay, maxReconnect)
			if err = r.resubscribe(ctx); err == nil {
				break
			}
			r.log.Debug("containerd still does not answer", "err", err)
		}
		r.log.Info("reconnected to containerd")
		r.connection(nil)
		r.images.Preload.Retry()
		r.watch.Notify(manifests.Key{})
	}
}

func (r *follower) readEvents(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.events.events:
			r.handle(e)
		case err := <-r.events.errs:
			return err
		}
	}
}

func (r *follower) resubscribe(ctx context.Context) error {
	r.events.cancel()
	if err := r.askVersion(ctx); err != nil {
		return err
	}
	s := r.subscribe(ctx)
	if err := r.records.Load(ctx, r.removal.Teardown.Has); err != nil {
		s.cancel()
		return err
	}
	*r.events = *s
	r.sandboxes.ResumeTeardowns(ctx)
	return nil
}

// handle turns an event into a notification.
func (r *follower) handle(e *events.Envelope) {
	id := eventContainer(e)
	if id == "" {
		return
	}
	rec := r.index.Container(id)
	if rec == nil {
		return // not ours, or deleted already
	}
	if e.Topic == "/containers/delete" {
		// Our own deletions leave the index before the record goes: another client deleted it.
		r.index.DeleteContainer(id)
	}
	r.watch.Notify(rec.Meta.Key)
}

// eventContainer returns the container of an event; empty for exec'd processes and unknown events.
func eventContainer(e *events.Envelope) string {
	if e == nil || e.Event == nil {
		return ""
	}
	v, err := typeurl.UnmarshalAny(e.Event)
	if err != nil {
		return ""
	}
	switch v := v.(type) {
	case *eventtypes.TaskExit:
		if v.ID == v.ContainerID {
			return v.ContainerID
		}
	case *eventtypes.TaskOOM:
		return v.ContainerID
	case *eventtypes.ContainerDelete:
		return v.ID
	}
	return ""
}

// subscription is a live stream of containerd's events.
type subscription struct {
	events <-chan *events.Envelope
	errs   <-chan error
	cancel context.CancelFunc
}
