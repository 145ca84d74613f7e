package writes

import (
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/storage"
	"monopod/node/kubeapi/strategy"
)

// deleteOptions reads DeleteOptions from the body, or else from the query. Clients send them with the version of any group.
func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	body, err := codec.ReadBody(c.w, c.r, codec.MaxBody)
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) == 0 {
		query := c.r.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, options, nil); err != nil {
			return nil, apierrors.NewBadRequest("invalid options: " + err.Error())
		}
	} else if options, err = decodeOptions(body, c.r.Header.Get("Content-Type"), c.k.GroupVersion()); err != nil {
		return nil, err
	}
	if err := strategy.CheckDeleteOptions(options); err != nil {
		return nil, err
	}
	c.opts.DryRun = len(options.DryRun) > 0
	return options, nil
}

func decodeOptions(body []byte, contentType string, own schema.GroupVersion) (*metav1.DeleteOptions, error) {
	var first error
	for _, version := range []schema.GroupVersion{own, {Version: "v1"}} {
		o, _, err := codec.DecodeBytes(body, contentType, version.WithKind("DeleteOptions"), metav1.FieldValidationIgnore)
		if options, ok := o.(*metav1.DeleteOptions); ok && err == nil {
			return options, nil
		}
		if err == nil {
			err = apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func (c *call) delete() error {
	options, err := c.deleteOptions()
	if err != nil {
		return err
	}
	return c.remove(options, nil)
}

// evict is a delete: PodDisruptionBudgets are not supported.
func (c *call) evict() error {
	sent, _, err := codec.Decode(c.w, c.r, policyv1.SchemeGroupVersion.WithKind("Eviction"), c.opts.Validation)
	if err != nil {
		return err
	}
	e, ok := sent.(*policyv1.Eviction)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", sent))
	}
	if e.Name != "" && e.Name != c.req.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options := e.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	c.opts.DryRun = c.opts.DryRun || len(options.DryRun) > 0
	return c.remove(options, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

// remove deletes the object of the path. A non-nil answer replaces the usual response.
func (c *call) remove(options *metav1.DeleteOptions, answer *metav1.Status) error {
	return c.store(func() (decision, error) {
		old, err := c.current()
		if err != nil {
			return decision{}, err
		}
		if old == nil {
			return decision{}, notFound(c.req)
		}
		d, err := c.decideDelete(old, options)
		if err == nil && answer != nil {
			d.status, d.code = answer, http.StatusCreated
		}
		return d, err
	})
}

func (c *call) decideDelete(old kinds.Object, options *metav1.DeleteOptions) (decision, error) {
	out, err := strategy.Delete(c.k, old, options, c.now())
	if err != nil {
		return decision{}, err
	}
	if n, ok := out.Namespace(old); ok {
		return c.deleteNamespace(n)
	}
	if err := c.checkWritable(c.k, old.GetNamespace(), old.GetName()); err != nil {
		return decision{}, err
	}
	if err := c.admit("delete", old); err != nil {
		return decision{}, err
	}
	d := decision{code: http.StatusOK, answer: out.Answer, gone: true}
	if out.Answer == nil {
		d.status = strategy.Deleted(c.k, old.GetName(), old.GetUID())
	}
	addDeletion(c.k, &d.Change, old, out)
	if out.Keep == nil && !out.AlreadyDeleting {
		err = addDependents(c, &d.Change, []kinds.Object{old})
	}
	return d, err
}

// addDeletion adds a deletion to the change.
func addDeletion(k *kinds.Kind, change *storage.Change, old kinds.Object, out strategy.Deletion) {
	switch {
	case out.AlreadyDeleting:
	case out.Keep != nil:
		change.Put = append(change.Put, out.Keep)
	default:
		change.Remove = append(change.Remove, removal(k, old, out.GraceSeconds))
	}
}

func removal(k *kinds.Kind, o kinds.Object, grace *int64) storage.Removal {
	r := storage.Removal{Ref: storage.Ref{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName()}, UID: o.GetUID()}
	if k.Kind == "Pod" {
		r.GraceSeconds = grace
	}
	return r
}

// known are all objects, and where they are defined.
type known struct {
	// applied are those that are defined by this API or `monopod apply` alone, derived those that are made of others and may be deleted.
	applied, derived []kinds.Object
	// of has the kinds of both.
	of map[kinds.Object]*kinds.Kind
	// elsewhere says where the others are defined.
	elsewhere []string
	// owners are the uids of all objects of the machine.
	owners map[types.UID]bool
	served kinds.Served
}

// known returns the objects that are in, which is called for all objects. It fails while kinds cannot be seen of which some may be in: all of
// them, or with seenBefore only those that were never seen.
func (c *call) known(seenBefore bool, in func(kinds.Object) bool) (known, error) {
	n := known{of: map[kinds.Object]*kinds.Kind{}, owners: map[types.UID]bool{}, served: c.h.cfg.Served}
	all, unseen, err := c.h.cfg.Revisions.All(c.r.Context())
	if err != nil {
		return n, Unavailable(err)
	}
	for _, k := range kinds.All() {
		if why, hidden := unseen[k]; hidden && (!seenBefore || all[k] == nil) {
			return n, Unavailable(fmt.Errorf("%s cannot be seen, and some may have to be deleted as well: %w", k.Plural, why))
		}
		for _, o := range all[k] {
			n.owners[o.GetUID()] = true
			if !in(o) {
				continue
			}
			d := c.h.cfg.Writer.Definition(storage.Ref{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName()})
			switch {
			case d.Derived && d.Deletable:
				n.of[o], n.derived = k, append(n.derived, o)
			case d.Derived:
			case d.Place != "":
				n.elsewhere = append(n.elsewhere, fmt.Sprintf("%s %s/%s stays: it is defined in %s", k.Kind, o.GetNamespace(), o.GetName(), d.Place))
			case d.Applied:
				n.of[o], n.applied = k, append(n.applied, o)
			}
		}
	}
	return n, nil
}

// exists reports whether there is an owner. What another API server serves cannot be seen, and is there.
func (n *known) exists(r metav1.OwnerReference) bool {
	return n.owners[r.UID] || n.served.ByKind(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)) == nil
}

// addDependents adds the applied objects that belong to those that go, and the pods of derived ones. As they are removed in the same change,
// Foreground is Background.
func addDependents(c *call, change *storage.Change, owners []kinds.Object) error {
	n, err := c.known(true, func(o kinds.Object) bool { return len(o.GetOwnerReferences()) > 0 })
	if err != nil {
		return err
	}
	for _, o := range strategy.Dependents(owners, n.applied, n.exists) {
		if goes(change, o) {
			continue
		}
		if len(o.GetFinalizers()) > 0 {
			if out, err := strategy.Delete(n.of[o], o, &metav1.DeleteOptions{}, c.now()); err == nil && !out.AlreadyDeleting {
				change.Put = append(change.Put, out.Keep)
			}
			continue
		}
		change.Remove = append(change.Remove, removal(n.of[o], o, nil))
	}
	made := slices.DeleteFunc(slices.Clone(owners), func(o kinds.Object) bool {
		return !slices.ContainsFunc(n.derived, func(d kinds.Object) bool { return d.GetUID() == o.GetUID() })
	})
	for _, o := range strategy.Dependents(made, n.derived, n.exists) {
		if !goes(change, o) {
			change.Remove = append(change.Remove, removal(n.of[o], o, nil))
		}
	}
	return nil
}

// goes reports whether a change has an object already.
func goes(change *storage.Change, o kinds.Object) bool {
	return slices.ContainsFunc(change.Remove, func(r storage.Removal) bool { return r.UID == o.GetUID() }) ||
		slices.ContainsFunc(change.Put, func(p kinds.Object) bool { return p.GetUID() == o.GetUID() })
}

// deleteNamespace removes all applied objects of a namespace and the namespace in one change. Objects defined elsewhere stay, and keep the
// namespace; so do objects with finalizers, until the last is removed.
func (c *call) deleteNamespace(n *corev1.Namespace) (decision, error) {
	switch n.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return decision{}, apierrors.NewForbidden(c.k.Resource().GroupResource(), n.Name, fmt.Errorf("this namespace may not be deleted"))
	}
	d := decision{code: http.StatusOK, answer: n, gone: true}
	all, err := c.known(false, func(o kinds.Object) bool { return o.GetNamespace() == n.Name })
	if err != nil {
		return decision{}, err
	}
	for _, text := range all.elsewhere[:min(len(all.elsewhere), 10)] {
		codec.Warn(c.w, text)
	}
	for _, o := range all.applied {
		out, err := strategy.Delete(all.of[o], o, &metav1.DeleteOptions{}, c.now())
		if err != nil {
			return decision{}, err
		}
		if out.Keep == nil || !c.h.cfg.Served.Has(all.of[o]) { // clients cannot remove the finalizers of a kind that is not served
			d.Remove = append(d.Remove, removal(all.of[o], o, nil))
		} else {
			d.Put = append(d.Put, out.Keep)
		}
	}
	switch {
	case len(all.elsewhere) > 0:
		codec.Warn(c.w, fmt.Sprintf("namespace %s stays: it has objects that are defined elsewhere", n.Name))
		other, err := again(c, n.Name)
		if err != nil {
			return decision{}, err
		}
		d.Put = append(d.Put, other)
	case len(d.Put) > 0:
		d.Put = append(d.Put, n)
	default:
		d.Remove = append(d.Remove, removal(c.k, n, nil))
	}
	return d, nil
}

// again returns another namespace of the same name. Clients that wait for the end of the deleted one see that it is gone.
func again(c *call, name string) (kinds.Object, error) {
	o := namespaces().New()
	o.SetName(name)
	err := strategy.Create(namespaces(), o, strategy.NewMetadata{Now: c.now(), UID: uuid.NewUUID()})
	return o, err
}

// endNamespace removes a namespace that is being deleted with the last of its objects.
func endNamespace(c *call, change *storage.Change, namespace string) error {
	n, err := c.at(namespaces(), "", namespace)
	if err != nil || n == nil || n.GetDeletionTimestamp() == nil {
		return err
	}
	all, err := c.known(false, func(o kinds.Object) bool { return o.GetNamespace() == namespace })
	if err != nil {
		return err
	}
	rest := slices.ContainsFunc(all.applied, func(o kinds.Object) bool {
		return !slices.ContainsFunc(change.Remove, func(r storage.Removal) bool { return r.UID == o.GetUID() })
	})
	if !rest && len(all.elsewhere) == 0 {
		change.Remove = append(change.Remove, removal(namespaces(), n, nil))
	}
	return nil
}

// deleteCollection deletes the selected objects, as one change.
func (c *call) deleteCollection() error {
	list, err := request.ParseListOptions(c.r.URL.Query(), c.k)
	if err != nil {
		return err
	}
	options, err := c.deleteOptions()
	if err != nil {
		return err
	}
	var answer []kinds.Object
	var revision uint64
	warnings, err := c.h.cfg.Writer.Write(c.r.Context(), c.opts.DryRun, func() (storage.Change, error) {
		var change storage.Change
		change, answer, revision, err = c.decideCollection(&list, options)
		return change, err
	})
	if err != nil {
		return err
	}
	for _, text := range warnings {
		codec.Warn(c.w, text)
	}
	return c.format.List(c.w, c.k, answer, revision)
}

func (c *call) decideCollection(list *request.ListOptions, options *metav1.DeleteOptions) (change storage.Change, answer []kinds.Object, revision uint64, err error) {
	all, revision, err := c.h.cfg.Revisions.List(c.r.Context(), c.k)
	if err != nil {
		return change, nil, 0, Unavailable(err)
	}
	var owners []kinds.Object
	stay := 0
	for _, o := range all {
		if c.req.Namespace != "" && o.GetNamespace() != c.req.Namespace || !list.Matches(c.k, o) {
			continue
		}
		if refused := c.checkWritable(c.k, o.GetNamespace(), o.GetName()); refused != nil {
			if stay++; stay <= 10 {
				codec.Warn(c.w, refused.Error())
			}
			continue
		}
		if err := c.admit("delete", o); err != nil {
			return change, nil, 0, err
		}
		out, err := strategy.Delete(c.k, o, options, c.now())
		if err != nil {
			return change, nil, 0, err
		}
		addDeletion(c.k, &change, o, out)
		if out.Keep == nil && !out.AlreadyDeleting {
			owners = append(owners, o)
		}
		if out.Answer != nil {
			o = out.Answer
		}
		answer = append(answer, o)
	}
	if len(owners) > 0 {
		err = addDependents(c, &change, owners)
	}
	return change, answer, revision, err
}

// bind accepts a binding to the pod's own node: some clients do their own scheduling.
func (c *call) bind() error {
	sent, _, err := codec.Decode(c.w, c.r, corev1.SchemeGroupVersion.WithKind("Binding"), c.opts.Validation)
	if err != nil {
		return err
	}
	b, ok := sent.(*corev1.Binding)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a Binding, not a %T", sent))
	}
	old, err := c.current()
	if err != nil {
		return err
	}
	pod, ok := old.(*corev1.Pod)
	if !ok {
		return notFound(c.req)
	}
	if err := strategy.Bind(c.k, pod, b, c.h.cfg.Node); err != nil {
		return err
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
	return c.format.Object(c.w, http.StatusCreated, status)
}
