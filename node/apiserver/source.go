package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
	"monopod/node/apiserver/serviceenv"
)

// Times and bounds of the source.
const (
	// objectsEvery is how often ConfigMaps and Secrets are asked for again.
	objectsEvery = time.Minute
	// longestToken is how long a token is used at most, as with a kubelet, and shortestToken at least.
	longestToken, shortestToken = 24 * time.Hour, time.Minute
	// maxDocuments bounds what all pods refer to together.
	maxDocuments = 6 << 20
	// firstWait is how long Bound waits for the first list of bound pods, longestWait for a changed one.
	firstWait, longestWait = 3 * time.Second, 5 * time.Minute
)

// ErrSame means that the pods bound here have not changed.
var ErrSame = errors.New("nothing has changed")

// errBindingsUnknown means that the pods bound to this node are not known.
var errBindingsUnknown = errors.New("the API server has not listed the pods bound to this node, or the Services that apiServerServices asks for, yet")

// bindings is the last known list of pods bound to this node.
type bindings struct {
	mu   sync.Mutex
	body []byte
	tag  string
	err  error
	// changed is closed when the list changes.
	changed chan struct{}
}

func newBindings() *bindings { return &bindings{err: errBindingsUnknown, changed: make(chan struct{})} }

// set stores the list; an error means that it is unknown.
func (w *bindings) set(body []byte, tag string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tag == w.tag && client.Plain(err) == client.Plain(w.err) {
		return
	}
	w.body, w.tag, w.err = body, tag, err
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *bindings) get() (changed <-chan struct{}, body []byte, tag string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed, w.body, w.tag, w.err
}

// Bound returns the pods that are bound to this node with what they refer to, as one List, and a tag of it. It waits until
// there is something to say: a List with another tag than seen; ErrSame, when it is known again that it is that one; or
// another error, why it is not known. After a while it says it once more. One goroutine asks.
func (a *Agent) Bound(ctx context.Context, seen string) (body []byte, tag string, err error) {
	for end := time.Now().Add(longestWait); ; {
		changed, body, tag, err := a.bindings.get()
		left := time.Until(end)
		switch {
		case errors.Is(err, errBindingsUnknown) && a.told == nil: // it has just begun
			left = time.Until(end.Add(firstWait - longestWait))
		case err == nil && tag != seen:
			a.told = ErrSame
			return body, tag, nil
		case err == nil:
			err = ErrSame
		}
		if a.told != nil && client.Plain(a.told) != client.Plain(err) || left <= 0 || a.told == nil && !errors.Is(err, errBindingsUnknown) {
			a.told = err
			return nil, "", err
		}
		client.Pause(ctx, left, changed)
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
	}
}

// gatherer collects what bound pods refer to. It belongs to the goroutine of gatherBound.
type gatherer struct {
	*Agent
	client *client.Client
	// server is the address of the API server; empty: pods are not told.
	server  string
	objects map[object]*fetched
	tokens  map[account]*token
	// next is when something has to be asked for again.
	next time.Time
	// size is that of all documents.
	size int
	// checked are the pods that have been checked for whether they can run here.
	checked map[types.UID]checked
	// begun are the pods that exist on this machine.
	begun map[types.UID]*corev1.Pod
	// debugged are the ephemeral containers that can never run here, by pod and name, with the message.
	debugged map[types.UID]map[string]string
	// given are the arguments of the last call of Conditions.
	given map[types.UID][]corev1.PodCondition
	// graces are the arguments of the last call of Leaving.
	graces map[types.UID]int64
}

// fetched is a ConfigMap or a Secret as a document; nil: there is none.
type fetched struct {
	doc   runtime.Object
	size  int
	again time.Time
}

type token struct {
	doc        *corev1.Secret
	again, end time.Time
}

// gatherBound keeps the list of bound pods up to date.
func (a *Agent) gatherBound(ctx context.Context, c *client.Client) error {
	g := &gatherer{Agent: a, client: c, server: c.Config.Host, objects: map[object]*fetched{}, tokens: map[account]*token{}, checked: map[types.UID]checked{}}
	changed, cancel := a.cfg.Pods.Subscribe()
	defer cancel()
	defer a.bindings.set(nil, "", errBindingsUnknown)
	w := a.waits()
	for ctx.Err() == nil {
		err := g.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if e := client.Fatal(err); e != nil {
			return e
		}
		delay, wake := time.Until(g.next), changed
		switch {
		case err == nil:
			w.Reset()
			wake = nil
		case errors.Is(err, errBindingsUnknown):
			delay = w.Last
		default:
			delay = w.Next()
			if w.News(err) {
				a.log.Warn("objects of pods bound to this node are missing; retrying", "err", err)
			}
			wake = nil
		}
		client.Wait(ctx, delay, a.store.bound, wake, nil)
	}
	return nil
}

// once requests missing objects, and updates the list.
func (g *gatherer) once(ctx context.Context) error {
	pods, known := g.store.boundPods()
	local, complete := g.cfg.Pods.Pods()
	var all []any
	if g.cfg.Services && known {
		all, known = g.services.documents()
	}
	if !known || !complete { // what has ended must be known before it is begun again
		g.bindings.set(nil, "", errBindingsUnknown)
		return errBindingsUnknown
	}
	here := map[types.UID]bool{}
	g.begun = map[types.UID]*corev1.Pod{}
	for _, p := range local {
		here[p.UID] = true
		if p.Status.StartTime != nil {
			g.begun[p.UID] = p
		}
	}
	if graces := g.store.leaving(here); !maps.Equal(graces, g.graces) {
		g.cfg.Leaving(graces)
		g.graces = graces
	}
	if given := mirror.GateConditions(pods); !mirror.SameGates(given, g.given) {
		g.cfg.Conditions(given)
		g.given = given
	}
	g.next, g.size = time.Now().Add(objectsEvery), 0
	var later []error
	found := gathered{map[object]*fetched{}, map[account]*token{}}
	r := g.refuse(pods, local)
	for _, p := range pods {
		if p.DeletionTimestamp != nil || mirror.Finished(&p.Status) && !here[p.UID] || r.leftOut[p.UID] {
			continue
		}
		docs, err := g.pod(ctx, p, found)
		switch {
		case err == nil:
			all = append(all, docs...)
		case here[p.UID] || client.Code(err) == 0 || client.Fatal(err) != nil:
			return g.unknown(err)
		default: // the server will not say it of this one, which can wait; the others do not wait for it
			later = append(later, err)
		}
	}
	g.objects, g.tokens = found.objects, found.tokens
	body, tag, err := documents(all, r.lines)
	if err != nil {
		return err
	}
	g.bindings.set(body, tag, nil)
	g.debug(ctx, pods, local)
	return errors.Join(later...)
}

// gathered is what the pods refer to that have been looked at.
type gathered struct {
	objects map[object]*fetched
	tokens  map[account]*token
}

// pod returns a pod and what it alone refers to, of all that have been looked at. After an error nothing of it has been.
func (g *gatherer) pod(ctx context.Context, p *corev1.Pod, found gathered) ([]any, error) {
	doc, refs, accounts := boundDocument(p)
	docs := []any{doc}
	news := gathered{map[object]*fetched{}, map[account]*token{}}
	for _, o := range refs {
		if found.objects[o] != nil || news.objects[o] != nil {
			continue
		}
		f, err := g.object(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", o, err)
		}
		if news.objects[o] = f; f.doc != nil {
			docs = append(docs, f.doc)
		}
	}
	for _, at := range accounts {
		t, err := g.token(ctx, at)
		if err != nil {
			return nil, fmt.Errorf("token of serviceaccount %s/%s: %w", at.namespace, at.name, err)
		}
		if news.tokens[at] = t; t.doc != nil {
			docs = append(docs, t.doc)
		}
	}
	maps.Copy(found.objects, news.objects)
	g.introduce(p, doc, found.objects)
	maps.Copy(found.tokens, news.tokens)
	return docs, nil
}

// introduce tells a pod where the API server is.
func (g *gatherer) introduce(p, doc *corev1.Pod, objects map[object]*fetched) {
	var vars []corev1.EnvVar
	node, _ := g.store.theNode()
	if host, port, ok := serviceenv.Address(p, g.server, node); ok {
		vars = serviceenv.Variables(host, port)
	}
	withServiceVariables(doc, g.begun[p.UID], vars, objects)
}

func (g *gatherer) unknown(err error) error {
	if plainly := client.Fatal(err); plainly == nil {
		g.bindings.set(nil, "", err)
	}
	return err
}

// soon notes when to ask again.
func (g *gatherer) soon(at time.Time) {
	if at.Before(g.next) {
		g.next = at
	}
}

// object asks for a ConfigMap or a Secret, unless it has been asked for a moment ago. One that there is not, or not for us, is
// none: its pods wait.
func (g *gatherer) object(ctx context.Context, o object) (*fetched, error) {
	f := g.objects[o]
	if f == nil || !time.Now().Before(f.again) {
		next, err := g.fetch(ctx, o)
		switch {
		case err == nil:
			f = next
		case client.IsNotFound(err), client.Code(err) == http.StatusForbidden && (f == nil || f.doc == nil): // that it is bound here may not be known everywhere yet
			f = &fetched{again: time.Now().Add(min(5*time.Second, 10*g.cfg.lastWait))}
		case f != nil && client.Code(err) != 0 && client.Fatal(err) == nil: // what it was counts for a while
			f.again = time.Now().Add(min(10*time.Second, 10*g.cfg.lastWait))
		default:
			return nil, err
		}
		g.objects[o] = f
	}
	g.soon(f.again)
	if g.size += f.size; g.size > maxDocuments {
		return nil, fmt.Errorf("together they exceed %d bytes", maxDocuments)
	}
	return f, nil
}

func (g *gatherer) fetch(ctx context.Context, o object) (*fetched, error) {
	r := client.Request{Method: http.MethodGet, API: client.CoreAPI, Namespace: o.namespace, Resource: o.resource, Name: o.name}
	f := &fetched{again: time.Now().Add(objectsEvery)}
	if o.resource == "configmaps" {
		c := &corev1.ConfigMap{}
		r.Into = c
		if err := g.client.Do(ctx, r); err != nil {
			return nil, err
		}
		c.TypeMeta, c.ObjectMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, plainMeta(&c.ObjectMeta)
		c.Immutable = nil // it may be deleted and made anew
		f.doc, f.size = c, c.Size()
		return f, nil
	}
	s := &corev1.Secret{}
	r.Into = s
	if err := g.client.Do(ctx, r); err != nil {
		return nil, err
	}
	if s.Type == corev1.SecretTypeServiceAccountToken { // it needs annotations that mean nothing here
		s.Type = corev1.SecretTypeOpaque
	}
	s.TypeMeta, s.ObjectMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, plainMeta(&s.ObjectMeta)
	s.Immutable = nil
	f.doc, f.size = s, s.Size()
	return f, nil
}

// token asks for a token, unless there is one that has most of its life before it.
func (g *gatherer) token(ctx context.Context, at account) (*token, error) {
	now, t := time.Now(), g.tokens[at]
	if t == nil || !now.Before(t.again) {
		next, err := g.ask(ctx, at)
		switch {
		case err == nil:
			t = next
		case client.IsNotFound(err), client.Code(err) == http.StatusForbidden:
			if t == nil || !now.Before(t.end) {
				t = &token{}
			}
			t.again = now.Add(min(5*time.Second, 10*g.cfg.lastWait))
		case t != nil && now.Before(t.end): // it counts for a while
			t.again = now.Add(min(10*time.Second, 10*g.cfg.lastWait))
		default:
			return nil, err
		}
		g.tokens[at] = t
	}
	g.soon(t.again)
	return t, nil
}

func (g *gatherer) ask(ctx context.Context, at account) (*token, error) {
	r := authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &at.seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: at.pod, UID: at.uid},
	}}
	if at.audience != "" {
		r.Spec.Audiences = []string{at.audience}
	}
	now := time.Now()
	err := g.client.Do(ctx, client.Request{Method: http.MethodPost, API: client.CoreAPI, Namespace: at.namespace, Resource: "serviceaccounts", Name: at.name, Sub: "token", Body: &r, Into: &r})
	if err != nil {
		return nil, err
	}
	if r.Status.Token == "" {
		return nil, errors.New("the answer has none")
	}
	doc := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.secret},
		Data: map[string][]byte{tokenKey: []byte(r.Status.Token)},
	}
	end := r.Status.ExpirationTimestamp.Time
	return &token{doc: doc, again: tokenAgain(now, end), end: end}, nil
}

// tokenAgain is when to ask for the next one: after four fifths of its life, or a day. By a clock that is wrong its life may be
// over: that is no reason to ask all the time.
func tokenAgain(now, end time.Time) time.Time {
	return now.Add(max(min(end.Sub(now)/5*4, longestToken), shortestToken))
}
