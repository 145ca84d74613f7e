package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// Bounds of how mirrors are written.
const (
	// settle is how long changes are collected.
	settle = 200 * time.Millisecond
	// turn is how long requests of one plan are sent before there is another one: what is true may have changed.
	turn = time.Second
	// longestRest bounds the time without a check when nothing changes and nothing is due.
	longestRest = time.Hour
	// between is the shortest time from one request to the next.
	between = 20 * time.Millisecond
)

// followPods keeps the store up to date.
func (a *Agent) followPods(ctx context.Context, c *client.Client) error {
	f := feed{
		client: c, resource: "pods", selector: "spec.nodeName=" + a.cfg.NodeName, sink: &podSink{store: a.store},
		object: func() runtime.Object { return &corev1.Pod{} }, list: func() runtime.Object { return &corev1.PodList{} },
	}
	return f.run(ctx, a)
}

// mirrors is the state of reportPods, which alone touches it.
type mirrors struct {
	*Agent
	client *client.Client
	// cache holds the result for pods that have not changed.
	cache map[manifests.Key]mirror.Local
	tries map[manifests.Key]mirror.Try
	waits map[manifests.Key]*client.Waits
}

// reportPods makes, repairs and removes mirror pods.
func (a *Agent) reportPods(ctx context.Context, c *client.Client) error {
	m := &mirrors{Agent: a, client: c, cache: map[manifests.Key]mirror.Local{}, tries: map[manifests.Key]mirror.Try{}, waits: map[manifests.Key]*client.Waits{}}
	changed, cancel := a.cfg.Pods.Subscribe()
	defer cancel()
	for ctx.Err() == nil {
		next, err := m.once(ctx)
		if err != nil {
			return err
		}
		delay := longestRest
		if !next.IsZero() {
			delay = time.Until(next)
		}
		client.Wait(ctx, delay, changed, a.store.changed, nil)
		client.Pause(ctx, settle, nil)
	}
	return nil
}

// once sends what is to be sent now, and returns when to look again.
func (m *mirrors) once(ctx context.Context) (time.Time, error) {
	v := m.view()
	actions, next := mirror.Plan(v)
	began := time.Now()
	for i, action := range actions {
		if ctx.Err() != nil || i > 0 && time.Since(began) > turn {
			return time.Now(), nil
		}
		err := m.do(ctx, action, v)
		if ctx.Err() != nil {
			return time.Time{}, nil
		}
		if e := client.Fatal(err); e != nil {
			return time.Time{}, e
		}
		if at := m.note(action, err); err != nil && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if client.Code(err) == 0 && err != nil { // nobody answers: the others need not be tried
			return next, nil
		}
		client.Pause(ctx, between, nil)
	}
	return next, nil
}

// view is how things are.
func (m *mirrors) view() mirror.View {
	pods, complete := m.cfg.Pods.Pods()
	v := mirror.View{Now: time.Now(), Node: m.store.nodeUID(), Complete: complete, Pods: make(map[manifests.Key]mirror.Local, len(pods)), Tries: m.tries}
	known := false
	var others map[manifests.Key]*corev1.Pod
	if v.Mirrors, known = m.store.pods(); !known {
		v.Node = "" // whatever is done now may be wrong
	}
	if m.cfg.Source {
		v.Bound, v.Refused = map[types.UID]mirror.Local{}, map[types.UID]mirror.Local{}
		others, _ = m.store.boundPods()
		for uid, r := range m.store.refusals() {
			v.Refused[uid] = r.local()
		}
	}
	for _, p := range pods {
		if p.Annotations[mirror.AnnotationSource] == mirror.SourceName {
			if m.cfg.Source {
				m.store.noteBound(p.UID)
				v.Bound[p.UID] = mirror.BoundLocal(p, others[manifests.Key{Namespace: p.Namespace, Name: p.Name}], m.store.undebuggedOf(p.UID))
			}
			continue
		}
		key := manifests.Key{Namespace: p.Namespace, Name: mirror.Name(p.Name, m.cfg.NodeName)}
		local, ok := m.cache[key]
		if !ok || local.Of != p {
			was := local.Refused
			if local = mirror.LocalOf(p, m.cfg.NodeName); was != nil || local.Refused != nil { // what a server refuses may still stand
				m.complain(key, local.Refused)
			}
		}
		v.Pods[key] = local
	}
	if complete {
		v.Ended = m.ended(others, v.Bound)
	}
	for key := range m.waits {
		_, local := v.Pods[key]
		if _, there := v.Mirrors[key]; !local && !there {
			m.complain(key, nil)
			delete(m.waits, key)
			delete(m.tries, key)
		}
	}
	m.cache = v.Pods
	return v
}

// ended returns the pods that the server wants deleted and that no longer exist here. Their last status must be read after they are known
// to be gone.
func (m *mirrors) ended(others map[manifests.Key]*corev1.Pod, here map[types.UID]mirror.Local) map[types.UID]mirror.Local {
	out, last := map[types.UID]mirror.Local{}, m.store.lastOf(others)
	for _, p := range others {
		if _, ok := here[p.UID]; !ok && p.DeletionTimestamp != nil {
			out[p.UID] = mirror.LastLocal(p, last[p.UID])
		}
	}
	return out
}

// do carries an action out.
func (m *mirrors) do(ctx context.Context, a mirror.Action, v mirror.View) error {
	got := &corev1.Pod{}
	to := client.Request{API: client.CoreAPI, Namespace: a.Key.Namespace, Resource: "pods", Name: a.Key.Name}
	local, bound := v.Bound[a.UID]
	if !bound {
		local, bound = v.Ended[a.UID]
	}
	if !bound {
		local, bound = v.Refused[a.UID]
	}
	if !bound {
		local = v.Pods[a.Key]
	}
	switch a.Kind {
	case mirror.CreateMirror:
		shown, err := mirror.For(local.Pod, m.cfg.NodeName)
		if err != nil {
			return err
		}
		to.Name, to.Into = "", got
		if err := m.client.Do(ctx, to.With(http.MethodPost, mirror.Owned(shown, m.cfg.NodeName, v.Node))); err != nil {
			if client.IsConflict(err) {
				m.read(ctx, a.Key)
			}
			return fmt.Errorf("create mirror pod: %w", err)
		}
		m.store.seePod(got, false)
	case mirror.DeleteMirror:
		now := int64(0)
		options := &metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &a.UID}}
		if err := m.client.Do(ctx, to.With(http.MethodDelete, options)); err != nil && !client.IsNotFound(err) {
			return fmt.Errorf("delete mirror pod: %w", err)
		}
		if t := m.tries[a.Key]; v.Mirrors[a.Key].Edited {
			t.Remade = time.Now()
			m.tries[a.Key] = t
		}
		m.store.forget(a.Key, a.UID)
	case mirror.PatchStatus:
		there := v.Mirrors[a.Key]
		patch := []map[string]any{{"op": "test", "path": "/metadata/uid", "value": a.UID}, {"op": "add", "path": "/status", "value": mirror.StatusFor(local, there)}}
		to.Sub, to.Patch, to.Into = "status", types.JSONPatchType, got
		if err := m.client.Do(ctx, to.With(http.MethodPatch, patch)); err != nil {
			if client.IsInvalid(err) {
				t := m.tries[a.Key]
				t.Refused = local.Sent()
				m.tries[a.Key] = t
			}
			return fmt.Errorf("status of mirror pod: %w", err)
		}
		accepted := mirror.Of(got)
		m.tries[a.Key] = mirror.Try{Sent: local.Sent(), Got: accepted.Got(), Remade: m.tries[a.Key].Remade}
		m.store.seePod(got, false)
	}
	return nil
}

// read stores a pod of this node that exists although the list and the watch have not reported it. Without it, it would be created again
// and again: its watch reports nothing until it changes.
func (m *mirrors) read(ctx context.Context, key manifests.Key) {
	got := &corev1.Pod{}
	from := client.Request{API: client.CoreAPI, Namespace: key.Namespace, Resource: "pods", Name: key.Name, Into: got}
	if err := m.client.Do(ctx, from.With(http.MethodGet, nil)); err == nil && got.Spec.NodeName == m.cfg.NodeName {
		m.store.seePod(got, false)
	}
}

// note records the outcome of a request, and returns when to retry. A mirror that has gone, or whose status the server rejects as a
// successor of the present one, is recreated.
func (m *mirrors) note(a mirror.Action, err error) time.Time {
	w := m.waits[a.Key]
	if w == nil {
		w = m.Agent.waits()
		m.waits[a.Key] = w
	}
	t := m.tries[a.Key]
	if err == nil {
		if a.Kind != mirror.DeleteMirror {
			if w.Said != "" {
				m.complain(a.Key, nil)
			}
			w.Reset()
		}
		t.At = time.Time{}
		m.tries[a.Key] = t
		return time.Time{}
	}
	if w.News(err) {
		m.complain(a.Key, err)
	}
	t.At = time.Now().Add(w.Next())
	m.tries[a.Key] = t
	switch {
	case a.Kind != mirror.PatchStatus:
	case client.IsNotFound(err):
		m.store.forget(a.Key, a.UID)
	case client.IsInvalid(err):
		m.store.spoil(a.Key, a.UID)
	}
	return t.At
}

// complain reports why a pod is not shown correctly; nil: it is.
func (m *mirrors) complain(key manifests.Key, err error) {
	local := key
	if name, ok := mirror.LocalName(key.Name, m.cfg.NodeName); ok && !m.store.hasOther(key) {
		local.Name = name
	}
	m.cfg.Tell(local, err)
	if err != nil {
		m.log.Warn("the API server does not show the current status of a pod", "pod", local.String(), "err", err)
	}
}
