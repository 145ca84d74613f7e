package kubeview

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/kubeview/shown"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
)

// docInputs are the inputs of a document's object. extra is any other input, and is comparable.
type docInputs struct {
	document metav1.Object
	given    *manifests.ServerMetadata
	origin   manifests.Origin
	extra    any
}

// documents adds the objects that are neither pods nor workloads.
func (b *build) documents() {
	known := b.view.cfg.State.Workloads.Known()
	progress, claims := b.view.cfg.State.Workloads.Expanded()
	if b.progress = progress; !known {
		unexpanded(b)
	}
	if b.view.cfg.Services != nil {
		b.assigned = b.view.cfg.Services()
	}
	b.bind(slices.Concat(b.desired.Objects, claims))
	b.claimOf = map[string]string{}
	for claim, volume := range b.bound {
		if other := b.claimOf[volume]; volume != "" && (other == "" || claim < other) {
			b.claimOf[volume] = claim
		}
	}
	written := map[manifests.ObjectID]bool{}
	for _, doc := range slices.Concat(b.desired.Objects, claims) {
		if id := doc.ID(); !written[id] {
			written[id] = true
			b.document(doc)
		}
	}
	claimedBy(b, claims)
}

// unexpanded marks the kinds of which nothing is known before workloads have been expanded: the progress of Jobs, and the claims of StatefulSets.
func unexpanded(b *build) {
	t := &b.view.kinds
	for _, doc := range b.desired.Workloads {
		switch doc.Kind {
		case "Job", "CronJob":
			b.unseen[t.job], b.unseen[t.cronJob] = node.ErrStarting, node.ErrStarting
		case "StatefulSet":
			b.unseen[t.claim] = node.ErrStarting
		}
	}
}

func (b *build) document(doc *manifests.Object) {
	t := &b.view.kinds
	switch o := doc.Object.(type) {
	case *corev1.ConfigMap:
		b.plain(t.configMap, doc, nil, func() kinds.Object { return shallow(o) })
	case *corev1.Secret:
		b.plain(t.secret, doc, nil, func() kinds.Object { return shallow(o) })
	case *corev1.PersistentVolume:
		claim := b.claimOf[o.Name]
		b.plain(t.volume, doc, claim, func() kinds.Object { return shown.Volume(o, claim) })
	case *corev1.PersistentVolumeClaim:
		volume, bound := b.bound[o.Namespace+"/"+o.Name]
		b.plain(t.claim, doc, [2]any{volume, bound}, func() kinds.Object { return shown.Claim(o, volume, bound) })
	case *corev1.Service:
		b.service(doc, o)
	case *nodev1.RuntimeClass:
		b.plain(t.runtimeClass, doc, nil, func() kinds.Object { return shallow(o) })
	case *schedulingv1.PriorityClass:
		b.plain(t.priorityClass, doc, nil, func() kinds.Object {
			c := shallow(o)
			if c.PreemptionPolicy == nil {
				c.PreemptionPolicy = new(corev1.PreemptLowerPriority)
			}
			return c
		})
	case *manifests.StorageClass:
		b.plain(t.storageClass, doc, nil, func() kinds.Object { return shown.Class(o) })
	}
}

// plain adds a document whose object depends only on the document and extra.
func (b *build) plain(k *kinds.Kind, doc *manifests.Object, extra any, show func() kinds.Object) kinds.Object {
	id := doc.ID()
	o := b.view.objects.get(memoKey{k, id.Namespace, id.Name}, docInputs{doc.Object, doc.Given, doc.Origin, extra}, func() kinds.Object {
		o := show()
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		b.identify(o, k.Kind, doc)
		return o
	})
	b.view.lives.of(o.GetUID(), b.born).changed(doc.Object)
	b.add(k, o)
	return o
}

// bind determines the bound claims: those reported by the runtime, or else those that name a volume and those of started pods.
func (b *build) bind(all []*manifests.Object) {
	if b.view.cfg.Claims != nil {
		b.bound = b.view.cfg.Claims()
		return
	}
	b.bound = map[string]string{}
	reserved := map[string]string{}
	for _, doc := range all {
		if v, ok := doc.Object.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil {
			reserved[v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name] = v.Name
		}
	}
	for _, p := range b.shownPods {
		if p.Status.StartTime == nil {
			continue
		}
		for i := range p.Spec.Volumes {
			if c := p.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
				key := p.Namespace + "/" + c.ClaimName
				b.bound[key] = reserved[key]
			}
		}
	}
	for _, doc := range all {
		if c, ok := doc.Object.(*corev1.PersistentVolumeClaim); ok {
			key := c.Namespace + "/" + c.Name
			if volume := cmp.Or(c.Spec.VolumeName, reserved[key]); volume != "" {
				b.bound[key] = volume
			}
		}
	}
}

// service adds a Service with its addresses.
func (b *build) service(doc *manifests.Object, o *corev1.Service) {
	assigned := o
	if s := b.assigned[manifests.Key{Namespace: o.Namespace, Name: o.Name}]; s != nil {
		assigned = s
	}
	object := b.plain(b.view.kinds.service, doc, assigned, func() kinds.Object { return shown.Service(o, assigned) })
	b.services = append(b.services, object.(*corev1.Service))
}
