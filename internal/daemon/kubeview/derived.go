package kubeview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/derived"
	"monopod/manifests"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
)

// Maker returns what makes an object, as "Deployment web", and whether clients may delete it. It is empty for objects that are written.
func (v *View) Maker(r kubeapi.Ref) (name string, deletable bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.derived.Maker(derived.ID(r))
}

// Deleted takes that a client has deleted an object that may still be shown: what is shown of its name from now on is another one. Call it
// before the object is removed.
func (v *View) Deleted(r kubeapi.Ref) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := memoKey{r.Kind, r.Namespace, r.Name}
	switch r.Kind {
	case v.kinds.namespace:
		if n, ok := v.objects.now[key].object.(*corev1.Namespace); ok {
			v.derived.End(n, v.cfg.Now())
		}
	case v.kinds.event, v.kinds.newEvent:
		v.events.Deleted(r.Namespace, r.Name, func() types.UID { return v.derived.Succeed(derived.ID(r)) })
	default:
		v.derived.Succeed(derived.ID(r))
		delete(v.objects.now, key) // it has the last uid
		v.endpoints = nil
	}
}

// claimedBy remembers that StatefulSets make claims. They keep data, so that no others can take their places.
func claimedBy(b *build, claims []*manifests.Object) {
	for _, claim := range claims {
		o := claim.Object
		i := slices.IndexFunc(b.desired.Workloads, func(doc *manifests.Object) bool {
			return doc.Kind == "StatefulSet" && doc.Origin == claim.Origin && doc.Object.GetNamespace() == o.GetNamespace()
		})
		if i >= 0 {
			b.view.derived.Made(derived.ID{Kind: b.view.kinds.claim, Namespace: o.GetNamespace(), Name: o.GetName()}, "StatefulSet "+b.desired.Workloads[i].Object.GetName(), false)
		}
	}
}

// pruneDerived forgets what is no longer needed after a build.
func pruneDerived(b *build) {
	if len(b.unseen) > 0 {
		return // it may be needed again
	}
	b.view.derived.Prune(func(key derived.ID) bool {
		return slices.ContainsFunc(b.objects[key.Kind], func(o kinds.Object) bool { return o.GetNamespace() == key.Namespace && o.GetName() == key.Name })
	}, b.namespaces)
}

// terminating returns a Namespace that has been deleted and still has pods; nil: it is none. Kept is the stored one.
func terminating(b *build, name string, kept *corev1.Namespace) *corev1.Namespace {
	v := b.view
	n := v.derived.Ending(v.kinds.namespace, name, &b.desired)
	switch {
	case n != nil && kept != nil && kept.UID != n.UID:
		v.derived.Forget(name)
		return nil
	case n == nil && kept == nil && v.seenPods && derived.Leaving(b.objects, name):
		if applied, others := derived.Documents(&b.desired, name); applied || others {
			return nil
		}
		before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}} // it was deleted before the last start
		completeNamespace(b, before)
		v.derived.End(before, b.now)
		n = v.derived.Ending(v.kinds.namespace, name, &b.desired)
	}
	if n != nil {
		v.lives.of(n.UID, b.born)
	}
	return n
}
