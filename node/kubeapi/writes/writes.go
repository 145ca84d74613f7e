// Package writes serves the Kubernetes API requests that change objects: create, update, patch, apply, delete, scale, eviction and binding.
//
// It combines the packages strategy, patch and managed with storage. It must not know where objects are stored, nor authorize requests: its
// caller does.
//
// Goroutines: none. Requests run in those of net/http.
package writes

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/revlog"
	"monopod/node/kubeapi/storage"
	"monopod/node/kubeapi/strategy"
)

// writeTime is the timeout of a write, as in kube-apiserver.
const writeTime = 34 * time.Second

// Config of a Handler.
type Config struct {
	State storage.State
	// Writer stores objects; if nil, all writes get 405.
	Writer storage.Writer
	// Policy decides what users may put into objects; nil allows everything.
	Policy access.Policy
	// Revisions has the current objects.
	Revisions *revlog.Log
	// Hidden reports whether an object must not be shown to a user.
	Hidden func(access.User, *kinds.Kind, kinds.Object) bool
	// Served selects the kinds that the API serves.
	Served kinds.Served
	// ImmutablePods refuses the updates of pods that Kubernetes forbids.
	ImmutablePods bool
	// Node is the name of the node on which all pods run.
	Node string
	// Now is the clock for creation and deletion timestamps; nil means time.Now.
	Now func() time.Time
}

// Handler serves writes. Create it with New.
type Handler struct {
	cfg Config
	// turns bounds the writes in progress.
	turns *turns
}

// New returns a handler.
func New(cfg Config) *Handler { return &Handler{cfg: cfg, turns: newTurns()} }

// call is one write request.
type call struct {
	h       *Handler
	w       http.ResponseWriter
	r       *http.Request
	req     *request.Request
	k       *kinds.Kind
	opts    request.WriteOptions
	format  *codec.Format
	user    access.User
	manager string
}

// Serve serves all requests that change something, and reads of scale. The caller has read the body: a client that sends its body slowly
// must not block others.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if err := h.writable(req); err != nil {
		codec.Fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), writeTime)
	defer cancel()
	user := access.UserOf(ctx)
	end, err := h.turns.take(ctx, user.Name)
	if err != nil {
		codec.Fail(w, r, apierrors.NewTooManyRequests("too many concurrent writes; retry", 1))
		return
	}
	defer end()
	c := &call{h: h, w: w, r: r.WithContext(ctx), req: req, k: req.Kind, user: user}
	if err := c.serve(); err != nil {
		codec.Fail(w, r, err)
	}
}

// writable checks that the write is supported at all.
func (h *Handler) writable(req *request.Request) error {
	resource := req.Kind.Resource().GroupResource()
	verbs := req.Kind.Verbs
	if req.Subresource != "" {
		resource.Resource += "/" + req.Subresource
		verbs = nil
		if sub := req.Kind.Subresource(req.Subresource); sub != nil {
			verbs = sub.Verbs
		}
	}
	reads := req.Verb == "get" && req.Subresource == "scale"
	if !slices.Contains(verbs, req.Verb) || h.cfg.Writer == nil && !reads {
		return apierrors.NewMethodNotSupported(resource, req.Verb)
	}
	return nil
}

func (c *call) serve() error {
	var err error
	if c.format, err = codec.Negotiate(c.r, c.k); err != nil {
		return err
	}
	if c.req.Verb != "delete" && c.req.Verb != "deletecollection" && c.req.Verb != "get" {
		if c.opts, err = request.ParseWriteOptions(c.r.URL.Query()); err != nil {
			return err
		}
	}
	c.manager = strategy.Manager(c.opts.FieldManager, c.r.UserAgent())
	switch c.req.Subresource {
	case "scale":
		return c.scale()
	case "eviction":
		return c.evict()
	case "binding":
		return c.bind()
	}
	switch c.req.Verb {
	case "create":
		return c.create()
	case "update":
		return c.update()
	case "patch":
		return c.patch()
	case "delete":
		return c.delete()
	case "deletecollection":
		return c.deleteCollection()
	}
	return apierrors.NewMethodNotSupported(c.k.Resource().GroupResource(), c.req.Verb)
}

func (c *call) now() time.Time {
	if c.h.cfg.Now != nil {
		return c.h.cfg.Now()
	}
	return time.Now()
}

func notFound(req *request.Request) error {
	return apierrors.NewNotFound(req.Kind.Resource().GroupResource(), req.Name)
}

// current returns the object of the path, nil if it does not exist. Objects hidden from the user must not be readable through writes
// either.
func (c *call) current() (kinds.Object, error) {
	o, err := c.at(c.k, c.req.Namespace, c.req.Name)
	if err == nil && o != nil && c.h.cfg.Hidden(c.user, c.k, o) {
		return nil, access.HiddenError(c.user, o)
	}
	return o, err
}

func (c *call) at(k *kinds.Kind, namespace, name string) (kinds.Object, error) {
	o, _, err := c.h.cfg.Revisions.Get(c.r.Context(), k, namespace, name)
	if err != nil {
		return nil, Unavailable(err)
	}
	return o, nil
}

// checkWritable returns 403 for objects that are defined where this API cannot write. Some that are derived may be deleted.
func (c *call) checkWritable(k *kinds.Kind, namespace, name string) error {
	d := c.h.cfg.Writer.Definition(storage.Ref{Kind: k, Namespace: namespace, Name: name})
	deletes := c.req.Verb == "delete" || c.req.Verb == "deletecollection" || c.req.Subresource == "eviction"
	gates := k.Kind == "Pod" && c.req.Subresource == "status" // conditions of readiness gates are no part of the definition
	if d.Place == "" || deletes && d.Deletable || gates {
		return nil
	}
	return strategy.Elsewhere(k, name, d.Place)
}

// decision is the outcome of a write.
type decision struct {
	storage.Change
	// answer is the object to return; if nil, status is returned.
	answer kinds.Object
	// status is returned instead of an object.
	status runtime.Object
	code   int
	// gone reports that answer is deleted: it may still be terminating, or can no longer be read.
	gone bool
}

// maxTries is how often a write that lost a race is retried: only if the client sent no resourceVersion, so that it has no conflict.
const maxTries = 5

// store decides and stores a change, and answers. decide may be called several times.
func (c *call) store(decide func() (decision, error)) error {
	d, err := write(c, decide)
	if err != nil {
		return err
	}
	return c.answer(d)
}

// write decides and stores a change. decide may be called several times.
func write(c *call, decide func() (decision, error)) (decision, error) {
	var d decision
	for try := 1; ; try++ {
		var refused error
		warnings, err := c.h.cfg.Writer.Write(c.r.Context(), c.opts.DryRun, func() (storage.Change, error) {
			d, refused = decide()
			return d.Change, refused
		})
		if err != nil && refused == nil && apierrors.IsConflict(err) && try < maxTries {
			continue
		}
		for _, text := range warnings {
			codec.Warn(c.w, text)
		}
		if text := c.k.Warning(); err == nil && text != "" && len(d.Put) > 0 && c.req.Verb != "delete" {
			codec.Warn(c.w, text)
		}
		return d, err
	}
}

// answer writes the stored object as reads now show it. A deleted object is returned as it was when it was deleted: what reads show depends
// on how far its end is.
func (c *call) answer(d decision) error {
	if d.status != nil {
		return c.format.Object(c.w, d.code, d.status)
	}
	o := d.answer
	if !c.opts.DryRun {
		now, revision, err := c.h.cfg.Revisions.Get(c.r.Context(), c.k, o.GetNamespace(), o.GetName())
		switch {
		case err == nil && now != nil && now.GetUID() == o.GetUID() && !d.gone:
			o = now
		case err == nil && (len(d.Put)+len(d.Remove) > 0 || d.Ephemeral != nil):
			o = o.DeepCopyObject().(kinds.Object)
			o.SetResourceVersion(strconv.FormatUint(revision, 10))
		}
	}
	o = o.DeepCopyObject().(kinds.Object)
	o.GetObjectKind().SetGroupVersionKind(c.k.GroupVersionKind)
	return c.format.Object(c.w, d.code, o)
}

// mayCreate returns a 403 error for users who may patch but not create, if the patch would create an object.
func mayCreate(c *call) error {
	if c.h.cfg.Policy == nil {
		return nil
	}
	a := access.Attributes{User: c.user, Verb: "create", Group: c.k.Group, Resource: c.k.Plural, Namespace: c.req.Namespace, Name: c.req.Name}
	allowed, reason := c.h.cfg.Policy.Allows(a)
	if allowed {
		return nil
	}
	return access.Denied(a, reason)
}

// admit checks whether the user may write this object.
func (c *call) admit(verb string, o kinds.Object) error {
	if c.h.cfg.Policy == nil {
		return nil
	}
	return access.Admit(c.user, c.h.cfg.Policy, verb, o)
}

// admitCommands checks whether the user may run commands in a pod.
func admitCommands(c *call, o kinds.Object) error {
	if c.h.cfg.Policy == nil {
		return nil
	}
	return access.AdmitCommands(c.user, c.h.cfg.Policy, "add containers to", o)
}

// namespaces is the kind Namespace.
func namespaces() *kinds.Kind { return kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Namespace")) }

// checkNamespace checks that an object can be created in its namespace.
func checkNamespace(c *call, name string) error {
	if !c.k.Namespaced {
		return nil
	}
	o, err := c.at(namespaces(), "", c.req.Namespace)
	if err != nil {
		return err
	}
	n, ok := o.(*corev1.Namespace)
	switch {
	case !ok:
		return strategy.NamespaceMissing(c.req.Namespace)
	case n.DeletionTimestamp != nil || n.Status.Phase == corev1.NamespaceTerminating:
		return strategy.NamespaceEnds(c.k, name, c.req.Namespace)
	}
	return nil
}

// Unavailable returns 503 for kinds that cannot be read. Other errors of the API, context errors and nil are returned unchanged.
func Unavailable(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	later := apierrors.NewServiceUnavailable(err.Error())
	later.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1} // kubectl and client-go try again by themselves
	return later
}
