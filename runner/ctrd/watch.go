package ctrd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"

	"monopod/manifests"
)

// watchers hands notifications to everybody who called Watch.
type watchers struct {
	mu    sync.Mutex
	next  int
	funcs map[int]func(manifests.Key)
	// missed says that something happened while nobody watched.
	missed bool
}

func newWatchers() *watchers { return &watchers{funcs: map[int]func(manifests.Key){}} }

func (w *watchers) add(f func(manifests.Key)) (remove func(), missed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.funcs[id] = f
	missed, w.missed = w.missed, false
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.funcs, id)
	}, missed
}

func (w *watchers) notify(key manifests.Key) {
	w.mu.Lock()
	funcs := make([]func(manifests.Key), 0, len(w.funcs))
	for _, f := range w.funcs {
		funcs = append(funcs, f)
	}
	if len(funcs) == 0 {
		w.missed = true
	}
	w.mu.Unlock()
	for _, f := range funcs {
		f(key)
	}
}

// Watch implements runner.Runtime. Run must be running: it reads the events.
func (r *Runtime) Watch(ctx context.Context, notify func(manifests.Key)) error {
	remove, missed := r.watch.add(notify)
	defer remove()
	if missed {
		notify(manifests.Key{})
	}
	<-ctx.Done()
	return nil
}

// subscribe starts a subscription. It outlives the call's context: cancel ends it.
func (r *Runtime) subscribe(ctx context.Context) *subscription {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ns(ctx)))
	ns := fmt.Sprintf(`namespace==%q`, r.cfg.Namespace)
	ch, errs := r.client.EventService().Subscribe(ctx,
		ns+`,topic=="/tasks/exit"`, ns+`,topic=="/tasks/oom"`, ns+`,topic=="/containers/delete"`)
	return &subscription{events: ch, errs: errs, cancel: cancel}
}

// Limits of the back-off between attempts to reach a containerd that is gone.
const (
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
)

// followEvents reads events until ctx ends. When the stream breaks, it subscribes again, reads all records anew,
// because what happened meanwhile is not repeated, and tells everybody to look.
func (r *Runtime) followEvents(ctx context.Context) error {
	delay := minReconnect
	for {
		began := time.Now()
		err := r.readEvents(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.log.Warn("lost containerd's event stream", "err", err)
		r.cfg.Connection(err)
		if time.Since(began) > maxReconnect {
			delay = minReconnect
		}
		for {
			if !sleep(ctx, delay) {
				return nil
			}
			delay = min(2*delay, maxReconnect)
			if err = r.resubscribe(ctx); err == nil {
				break
			}
			r.log.Debug("containerd is not back", "err", err)
		}
		r.log.Info("found containerd again")
		r.cfg.Connection(nil)
		r.images.Back()
		r.watch.notify(manifests.Key{})
	}
}

func (r *Runtime) readEvents(ctx context.Context) error {
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

func (r *Runtime) resubscribe(ctx context.Context) error {
	r.events.cancel()
	if err := r.askVersion(ctx); err != nil {
		return err
	}
	s := r.subscribe(ctx)
	if err := r.load(ctx); err != nil {
		s.cancel()
		return err
	}
	*r.events = *s
	r.resumeTeardowns(ctx)
	return nil
}

// handle turns an event into a notification.
func (r *Runtime) handle(e *events.Envelope) {
	id := eventContainer(e)
	if id == "" {
		return
	}
	rec := r.index.container(id)
	if rec == nil {
		return // not ours, or made and gone
	}
	if e.Topic == "/containers/delete" {
		// Our own deletions leave the index before the record goes: somebody else did this.
		r.index.deleteContainer(id)
	}
	r.watch.notify(rec.Labels.Key)
}

// eventContainer returns the container an event is about; empty when it is about an exec'd process or unknown.
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

// sleep waits and says whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// load reads all records of ours into the index. Two active sandboxes of one pod cannot be made by us, unless a
// crash came between: the newest stays.
func (r *Runtime) load(ctx context.Context) error {
	r.index.reload()
	sbs, err := r.client.SandboxStore().List(ctx, r.ownFilter())
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	ctrs, err := r.client.ContainerService().List(ctx, r.ownFilter())
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var sandboxes []*sandboxRecord
	for _, sb := range sbs {
		rec, err := decodeSandbox(sb)
		if err != nil { // it costs this pod its sandbox, and no other pod anything
			r.log.Error("the record of a sandbox is damaged: it is replaced", "sandbox", sb.ID, "pod", rec.Labels.Key.String(), "err", err)
			rec.Labels.State = sandboxRemoving
		}
		if r.teardown.has(rec.ID) { // given up while containerd could not be told
			rec.Labels.State = sandboxRemoving
		}
		sandboxes = append(sandboxes, rec)
		r.ids.keep(rec.ID, rec.Labels.FirstID)
	}
	var containers []*containerRecord
	for _, c := range ctrs {
		rec, err := decodeContainer(c)
		if err != nil {
			r.log.Error("the record of a container is damaged: the rest of it counts", "container", c.ID, "pod", rec.Labels.Key.String(), "err", err)
		}
		containers = append(containers, rec)
	}
	slices.SortFunc(sandboxes, func(a, b *sandboxRecord) int { return a.CreatedAt.Compare(b.CreatedAt) })
	slices.SortFunc(containers, func(a, b *containerRecord) int {
		return cmp.Or(cmp.Compare(a.Labels.Generation, b.Labels.Generation), a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	r.index.replace(sandboxes, containers)
	return nil
}
