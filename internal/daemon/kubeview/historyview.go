package kubeview

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod/internal/daemon/kubeview/derived"
	"monopod/internal/daemon/kubeview/shown"
	"monopod/internal/daemon/kubeview/workloads"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/workload/revisions"
)

// controllerRevisionLabel is the label with the hash of the ControllerRevisions of StatefulSets.
const controllerRevisionLabel = "controller.kubernetes.io/hash"

// history returns the revisions of a workload, including its present template, which may not be stored yet; nil if there are none, or they are
// not known yet.
func (b *build) history(doc *manifests.Object, hash string) *revisions.History {
	if !b.view.cfg.State.Workloads.Known() {
		for _, k := range []*kinds.Kind{b.view.kinds.replicaSet, b.view.kinds.controllerRevision} {
			b.unseen[k] = node.ErrStarting
		}
		return nil
	}
	return revisions.Follow(b.progress.Histories[doc.Kind+" "+doc.Object.GetNamespace()+"/"+doc.Object.GetName()], revisions.Of(doc), hash)
}

// deployment adds a Deployment, its ReplicaSet, and those of its other revisions and pods.
func (b *build) deployment(doc *manifests.Object, o *appsv1.Deployment, hash string, found []string) {
	h := b.history(doc, hash)
	hashes := slices.Clone(found)
	if h != nil {
		for _, r := range h.Revisions {
			hashes = append(hashes, r.Hash)
		}
	}
	if !o.Spec.Paused || !b.view.cfg.State.Workloads.Known() { // a new template has no ReplicaSet while the Deployment is paused
		hashes = append(hashes, hash)
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	pods := map[string][]*corev1.Pod{}
	var all []*corev1.Pod
	for _, r := range hashes {
		pods[r] = podsOf(b, "ReplicaSet", &metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name + "-" + r})
		all = append(all, pods[r]...)
	}
	number := int64(0)
	if last := h.Latest(); last != nil {
		number = last.Number
	}
	d := show(b, b.view.kinds.deployment, doc, number, func(d *appsv1.Deployment) {
		workloads.DefaultDeployment(d)
		if number > 0 {
			d.Annotations = shown.WithLabel(d.Annotations, revisions.AnnotationNumber, strconv.FormatInt(number, 10))
		}
	}, statusOf[*appsv1.Deployment, appsv1.DeploymentStatus]{
		func(d *appsv1.Deployment) *appsv1.DeploymentStatus { return &d.Status },
		func(d *appsv1.Deployment, before *appsv1.DeploymentStatus) appsv1.DeploymentStatus {
			s := workloads.Deployment(&b.moment, d, workloads.Count(&b.moment, all, hash, d.Spec.MinReadySeconds), o.Name+"-"+hash, before)
			if why := b.view.cfg.State.Workloads.Clash(doc.Origin); why != "" {
				s.Conditions = append(s.Conditions, workloads.ReplicaFailure(&b.moment, why, before))
			}
			return s
		},
	})
	for _, r := range hashes {
		set := replicaSet{doc: doc, hash: r, revision: h.Find(r), pods: pods[r], replicas: int32(len(pods[r]))}
		if r == hash {
			set.latest = doc.Object
			if !d.Spec.Paused {
				set.replicas = ptr.Deref(d.Spec.Replicas, 1)
			}
		}
		b.replicaSet(d, &set)
	}
}

// replicaSet is a ReplicaSet of a Deployment.
type replicaSet struct {
	doc  *manifests.Object
	hash string
	// revision is nil if it is not known.
	revision *revisions.Revision
	// latest is the Deployment if it has the same template.
	latest   metav1.Object
	replicas int32
	pods     []*corev1.Pod
}

// setInputs are what a ReplicaSet is made of.
type setInputs struct {
	revision *revisions.Revision
	latest   metav1.Object
	origin   manifests.Origin
	uid      types.UID
	replicas int32
}

// replicaSet adds a ReplicaSet of a Deployment.
func (b *build) replicaSet(d *appsv1.Deployment, r *replicaSet) {
	k := b.view.kinds.replicaSet
	key := memoKey{k, d.Namespace, d.Name + "-" + r.hash}
	b.view.derived.Made(derived.ID{Kind: k, Namespace: key.namespace, Name: key.name}, "Deployment "+d.Name, true)
	settle(b, key, setInputs{r.revision, r.latest, r.doc.Origin, d.UID, r.replicas}, func() *appsv1.ReplicaSet {
		label, template := appsv1.DefaultDeploymentUniqueLabelKey, r.template(d)
		s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: key.name, Labels: shown.WithLabel(template.Labels, label, r.hash), Annotations: r.annotations(d),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, b.view.kinds.deployment.GroupVersionKind)},
		}}
		replicas := r.replicas
		s.Spec = appsv1.ReplicaSetSpec{Replicas: &replicas, MinReadySeconds: d.Spec.MinReadySeconds, Template: *template}
		s.Spec.Template.Labels = shown.WithLabel(template.Labels, label, r.hash)
		s.Spec.Selector = &metav1.LabelSelector{}
		if d.Spec.Selector != nil {
			*s.Spec.Selector = *d.Spec.Selector
		}
		s.Spec.Selector.MatchLabels = shown.WithLabel(s.Spec.Selector.MatchLabels, label, r.hash)
		b.made(s, k)
		life := b.view.lives.of(s.UID, b.born)
		life.changed(s)
		s.Generation = life.generation
		return s
	}, statusOf[*appsv1.ReplicaSet, appsv1.ReplicaSetStatus]{
		func(s *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &s.Status },
		func(s *appsv1.ReplicaSet, _ *appsv1.ReplicaSetStatus) appsv1.ReplicaSetStatus {
			return workloads.ReplicaSet(s, workloads.Count(&b.moment, r.pods, r.hash, d.Spec.MinReadySeconds))
		},
	})
}

// template returns the pod template of a ReplicaSet. If that is not known, it is what one of its pods shows of it.
func (r *replicaSet) template(d *appsv1.Deployment) *corev1.PodTemplateSpec {
	if r.latest != nil {
		return &d.Spec.Template
	}
	if r.revision != nil {
		if t, err := r.revision.PodTemplate(); err == nil {
			workloads.DefaultTemplate(t)
			return t
		}
	}
	t := &corev1.PodTemplateSpec{}
	if len(r.pods) > 0 {
		t.Labels, t.Spec = r.pods[0].Labels, r.pods[0].Spec
		t.Spec.NodeName = ""
	}
	return t
}

// annotations returns those of the Deployment when the revision was the latest, and its number.
func (r *replicaSet) annotations(d *appsv1.Deployment) map[string]string {
	if r.revision == nil {
		a := maps.Clone(d.Annotations)
		maps.DeleteFunc(a, func(key, _ string) bool { return !revisions.Copied(key) })
		return a
	}
	a := shown.WithLabel(originated(r.revision.Annotations, r.doc.Origin), revisions.AnnotationNumber, strconv.FormatInt(r.revision.Number, 10))
	if len(r.revision.Former) > 0 {
		var former []string
		for _, n := range r.revision.Former {
			former = append(former, strconv.FormatInt(n, 10))
		}
		a[revisions.AnnotationFormer] = strings.Join(former, ",")
	}
	return a
}

// revisionInputs are what a ControllerRevision is made of.
type revisionInputs struct {
	revision *revisions.Revision
	origin   manifests.Origin
	uid      types.UID
}

// controllerRevisions adds the revisions of a StatefulSet or DaemonSet.
func (b *build) controllerRevisions(owner kinds.Object, doc *manifests.Object, h *revisions.History, label string) {
	if h == nil {
		return
	}
	k := b.view.kinds.controllerRevision
	for _, r := range h.Revisions {
		key := memoKey{k, owner.GetNamespace(), owner.GetName() + "-" + r.Hash}
		o := b.view.objects.get(key, revisionInputs{r, doc.Origin, owner.GetUID()}, func() kinds.Object {
			data, t, err := workloads.RevisionData(r)
			if err != nil { // no pod is made from such a template either
				data, t = []byte("{}"), &corev1.PodTemplateSpec{}
			}
			c := &appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: key.namespace, Name: key.name, Labels: shown.WithLabel(t.Labels, label, r.Hash),
					Annotations:     originated(r.Annotations, doc.Origin),
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GetObjectKind().GroupVersionKind())},
				},
				Revision: r.Number,
			}
			c.Data.Raw = data
			return b.made(c, k)
		})
		b.view.lives.of(o.GetUID(), b.born)
		b.add(k, o)
	}
}
