package kubeview

import (
	"cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/kubeview/derived"
	"monopod/internal/daemon/kubeview/endpoints"
	"monopod/internal/daemon/kubeview/machine"
	"monopod/internal/daemon/kubeview/shown"
	"monopod/internal/model"
	"monopod/node/kubeapi/kinds"
)

const (
	// rootCA is the ConfigMap with the CA certificates of the API.
	rootCA = "kube-root-ca.crt"
	// defaultAccount is the ServiceAccount of pods that name none.
	defaultAccount = "default"
)

// machine adds the Node and its Lease.
func (b *build) machine() {
	v := b.view
	facts := v.cfg.Facts()
	n := machine.Node(v.cfg.Node, v.cfg.Labels, v.cfg.Taints, &facts)
	b.made(n, v.kinds.node)
	before, _ := v.objects.before(v.kinds.node, "", n.Name).(*corev1.Node)
	machine.Stamp(n, before, metav1.NewTime(b.now))
	b.add(v.kinds.node, v.objects.settle(v.kinds.node, n))
	addNodeLease(b, n)
}

// addNodeLease adds the Lease of the Node, unless a client created one.
func addNodeLease(b *build, n *corev1.Node) {
	v := b.view
	if b.has(v.kinds.lease, corev1.NamespaceNodeLease, n.Name) {
		return
	}
	l, _ := v.objects.before(v.kinds.lease, corev1.NamespaceNodeLease, n.Name).(*coordinationv1.Lease)
	if machine.Due(l, b.now) {
		l = machine.Lease(n, v.cfg.LeaseDuration, b.now)
		b.made(l, v.kinds.lease)
	}
	v.lives.of(l.UID, b.born)
	v.objects.now[memoKey{v.kinds.lease, l.Namespace, l.Name}] = memoEntry{nil, l}
	b.add(v.kinds.lease, l)
}

// serviceEndpoints adds the Endpoints and EndpointSlices of Services.
func (b *build) serviceEndpoints() {
	v := b.view
	if e, ok := v.cfg.State.Endpoints(); ok || v.origins == nil {
		v.origins = cmp.Or(e.Origins, &model.Origins{Spaces: v.cfg.State.Spaces}) // pods of unknown sources are selected by none
	}
	v.endpoints = endpoints.Of(b.services, b.shownPods, v.origins, v.endpoints)
	for _, s := range b.services {
		e := v.endpoints[s]
		if e == nil {
			continue
		}
		e.Endpoints = settled(b, v.kinds.endpoints, e.Endpoints)
		for i, one := range e.Slices {
			e.Slices[i] = settled(b, v.kinds.slice, one)
		}
	}
}

// settled adds a generated object, or the previous one if it is equal, and returns it.
func settled[T kinds.Object](b *build, k *kinds.Kind, o T) T {
	o = b.view.objects.settle(k, b.made(o, k)).(T)
	b.add(k, o)
	return o
}

// addOwnService adds the Service kubernetes, by which pods reach the API.
func addOwnService(b *build) {
	v := b.view
	if v.cfg.APIAddress == nil || b.has(v.kinds.service, metav1.NamespaceDefault, machine.APIService) {
		return
	}
	api := machine.NewAPI(v.cfg.APIAddress())
	if api == nil {
		return
	}
	v.derived.Made(derived.ID{Kind: v.kinds.service, Namespace: api.Service.Namespace, Name: api.Service.Name}, derived.Own, true)
	settled(b, v.kinds.service, api.Service)
	settled(b, v.kinds.endpoints, api.Endpoints)
	settled(b, v.kinds.slice, api.Slice)
}

// inNamespaces adds the Namespaces, and the objects that Kubernetes creates in each of them.
func (b *build) inNamespaces() {
	v := b.view
	kept := map[string]*corev1.Namespace{}
	if v.cfg.Kept != nil {
		for _, o := range v.cfg.Kept.Objects(v.kinds.namespace) {
			if n, ok := o.(*corev1.Namespace); ok {
				kept[n.Name] = n
				b.namespaces[n.Name] = true
			}
		}
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		b.namespaces[name] = true
	}
	ca := ""
	if v.cfg.CA != nil {
		ca = v.cfg.CA()
	}
	for name := range b.namespaces {
		addNamespace(b, name, kept[name])
		meta := metav1.ObjectMeta{Namespace: name, Name: defaultAccount}
		if !b.has(v.kinds.account, name, meta.Name) {
			settled(b, v.kinds.account, &corev1.ServiceAccount{ObjectMeta: meta})
		}
		if meta.Name = rootCA; !b.has(v.kinds.configMap, name, rootCA) {
			v.derived.Made(derived.ID{Kind: v.kinds.configMap, Namespace: name, Name: rootCA}, derived.Own, true)
			meta.Annotations = map[string]string{"kubernetes.io/description": "Contains the CA certificates that verify the API of this machine."}
			settled(b, v.kinds.configMap, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": ca}})
		}
	}
}

// addNamespace adds a Namespace, with the metadata of kept if it is not nil.
func addNamespace(b *build, name string, kept *corev1.Namespace) {
	n := terminating(b, name, kept)
	if n == nil {
		n = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if kept != nil {
			n = shallow(kept)
		}
		completeNamespace(b, n)
	}
	b.add(b.view.kinds.namespace, b.view.objects.settle(b.view.kinds.namespace, n))
}

// completeNamespace adds what all Namespaces have.
func completeNamespace(b *build, n *corev1.Namespace) {
	v := b.view
	n.SetGroupVersionKind(v.kinds.namespace.GroupVersionKind)
	n.Labels = shown.WithLabel(n.Labels, corev1.LabelMetadataName, n.Name)
	if n.UID == "" {
		n.UID = v.derived.UID(derived.ID{Kind: v.kinds.namespace, Name: n.Name})
	}
	if l := v.lives.of(n.UID, b.born); n.CreationTimestamp.IsZero() {
		n.CreationTimestamp = l.created
	}
	n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	n.Status.Phase = corev1.NamespaceActive
	if n.DeletionTimestamp != nil {
		n.Status.Phase = corev1.NamespaceTerminating
	}
}
