package kubeapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/writes"
)

// get serves one object.
func (s *Server) get(w http.ResponseWriter, r *http.Request, req *request.Request) {
	format, err := codec.Negotiate(r, req.Kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	object, err := s.find(r, req)
	if err == nil {
		err = format.Object(w, http.StatusOK, object)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// find returns the object that a request names, if its user may see it.
func (s *Server) find(r *http.Request, req *request.Request) (kinds.Object, error) {
	object, revision, err := s.lookup(r.Context(), req.Kind, req.Namespace, req.Name)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(r.URL.Query().Get("resourceVersion"), "", revision); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, apierrors.NewNotFound(req.Kind.Resource().GroupResource(), req.Name)
	}
	if user := access.UserOf(r.Context()); s.hidden(user, req.Kind, object) {
		return nil, access.HiddenError(user, object)
	}
	return object, nil
}

func (s *Server) lookup(ctx context.Context, k *kinds.Kind, namespace, name string) (kinds.Object, uint64, error) {
	if k.Allows("watch") {
		object, revision, err := s.logOf(k).Get(ctx, k, namespace, name)
		return object, revision, writes.Unavailable(err)
	}
	objects, revision, err := s.all(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	i := slices.IndexFunc(objects, func(o kinds.Object) bool { return o.GetNamespace() == namespace && o.GetName() == name })
	if i < 0 {
		return nil, revision, nil
	}
	return objects[i], revision, nil
}

// all returns the objects of a kind, which are shared, and their revision.
func (s *Server) all(ctx context.Context, k *kinds.Kind) ([]kinds.Object, uint64, error) {
	if k.Allows("watch") {
		objects, revision, err := s.logOf(k).List(ctx, k)
		return objects, revision, writes.Unavailable(err)
	}
	objects, _, err := s.cfg.State.Computed(ctx, k)
	return objects, s.log.Revision(), writes.Unavailable(err)
}

// noPage returns the error for a continue token: that of kube-apiserver if it is malformed, else that the page has expired.
func noPage(token string) error {
	text, err := base64.RawURLEncoding.DecodeString(token)
	var at struct {
		Version string `json:"v"`
		Start   string `json:"start"`
	}
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err == nil && (at.Version != "meta.k8s.io/v1" || at.Start == "") {
		err = errors.New("it is no token of meta.k8s.io/v1")
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	return apierrors.NewResourceExpired("this API returns lists in one piece, and has no page of this token; list again without it")
}

// list serves all objects that the selectors select, without pagination: clients must accept a complete list.
func (s *Server) list(w http.ResponseWriter, r *http.Request, req *request.Request) {
	format, err := codec.Negotiate(r, req.Kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	options, err := request.ParseListOptions(r.URL.Query(), req.Kind)
	if err == nil && options.Continue != "" {
		err = noPage(options.Continue)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx := r.Context()
	if options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, options.Timeout)
		defer cancel()
	}
	objects, revision, err := s.all(ctx, req.Kind)
	if err == nil {
		err = checkVersion(options.ResourceVersion, options.ResourceVersionMatch, revision)
	}
	if err == nil {
		v := view{s, access.UserOf(r.Context()), req.Kind, req.Namespace, &options}
		err = format.List(w, req.Kind, v.filter(objects), revision)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// view is the part of a kind that a user can see in a list or watch.
type view struct {
	server    *Server
	user      access.User
	kind      *kinds.Kind
	namespace string
	options   *request.ListOptions
}

// selects reports whether the namespace and selectors of the request select an object.
func (v *view) selects(o kinds.Object) bool {
	return (v.namespace == "" || o.GetNamespace() == v.namespace) && v.options.Matches(v.kind, o)
}

func (v *view) shows(o kinds.Object) bool { return v.selects(o) && !v.server.hidden(v.user, v.kind, o) }

// filter returns the visible objects. Objects are not modified; the result may be the same slice.
func (v *view) filter(objects []kinds.Object) []kinds.Object {
	if v.namespace == "" && v.options.Labels.Empty() && v.options.Fields.Empty() && !guarded(v.kind) {
		return objects
	}
	var shown []kinds.Object
	for _, o := range objects {
		if v.shows(o) {
			shown = append(shown, o)
		}
	}
	return shown
}

// guarded reports whether single objects of a kind may be hidden from users who may read the kind.
func guarded(k *kinds.Kind) bool { return k.Group == "" && k.Kind == "Secret" }

// hidden reports whether an object must not be shown to a user.
func (s *Server) hidden(u access.User, k *kinds.Kind, o kinds.Object) bool {
	return guarded(k) && hides(s.cfg.Policy, s.cfg.Writer, u, k, o)
}

// hides reports whether a Secret must not be shown to a user. One that is also defined elsewhere has the content of that definition, so it
// does not count as applied.
func hides(p access.Policy, w Writer, u access.User, k *kinds.Kind, o kinds.Object) bool {
	if !access.Hides(u, p, o, false) {
		return false
	}
	if w == nil {
		return true
	}
	d := w.Definition(Ref{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName()})
	return !d.Applied || d.Place != "" || access.Hides(u, p, o, true)
}

// Visible reports whether a user may see an object of another API, which has no more content than this API. It is for handlers outside of a
// Server that list objects of all kinds: permission to use such a handler includes neither Secrets nor their names.
func Visible(p access.Policy, w Writer, u access.User, o metav1.Object) bool {
	secret, ok := o.(*corev1.Secret)
	if !ok {
		return true
	}
	k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	allowed, _ := p.Allows(access.Attributes{User: u, Verb: "get", Resource: k.Plural, Namespace: secret.Namespace, Name: secret.Name})
	return allowed && !hides(p, w, u, k, secret)
}

// checkVersion checks the resource version that a client requires as a minimum, or, with the match Exact, exactly. Lists always show the
// current state.
func checkVersion(text, match string, revision uint64) error {
	wanted, err := parseVersion(text)
	switch {
	case err != nil:
		return err
	case wanted > revision:
		return tooLarge(wanted, revision)
	case match == string(metav1.ResourceVersionMatchExact) && wanted != revision:
		return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is too old; the current one is %d", wanted, revision))
	}
	return nil
}

// parseVersion returns 0 for any version.
func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strings.HasPrefix(text, "+") {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resourceVersion %.40q: use one returned by a list", text))
	}
	return version, nil
}

// tooLarge returns the error that clients recognize by its cause: they relist without a version. It has no retry time, because the state is
// current.
func tooLarge(wanted, revision uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, revision), 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
