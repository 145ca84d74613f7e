package kubeview

import (
	"errors"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/daemon/kubeview/shown"
	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/workload"
)

var errNotLookedAt = errors.New(state.NotLookedAt)

// podInputs are the inputs of a pod's object.
type podInputs struct {
	pod                  *corev1.Pod
	origin               manifests.Origin
	given                *manifests.ServerMetadata
	owner                ownerKey
	ownerUID             types.UID
	generation, observed int64
	// document is the manifest of an applied pod; the running pod may still have an older one.
	document *corev1.Pod
	// gates is the first of the conditions written by clients; nil if there are none.
	gates *corev1.PodCondition
	// class is the PriorityClass of the pod; nil if none.
	class *schedulingv1.PriorityClass
}

// ownerKey names the controller of a pod, as shown in the API.
type ownerKey struct{ kind, name string }

// snapshotPods returns the pods, and the pods being removed. err is the reason why the result may be incomplete.
func (v *View) snapshotPods() (views, leaving []node.PodView, err error) {
	views, err = v.cfg.State.Pods()
	if err != nil {
		return views, nil, err
	}
	leaving = v.cfg.State.Removals.Views(views)
	known := make([]node.PodView, 0, len(views))
	for i := range views {
		if views[i].Why == state.NotLookedAt {
			err = errNotLookedAt
			continue
		}
		known = append(known, views[i])
	}
	return known, leaving, err
}

// pods adds the pods. While they cannot be seen, the last ones stay, and what follows from them; before they have been seen for the first time,
// what follows from them cannot be seen either.
func (b *build) pods() {
	v := b.view
	views, leaving, err := v.snapshot()
	if err != nil {
		b.unseen[v.kinds.pod] = err
		if v.seenPods {
			views, leaving = lastPods(b, views), nil
		} else {
			for _, k := range v.kinds.ofPods() {
				b.unseen[k] = err
			}
		}
	}
	desired := make(map[manifests.Key]*manifests.Pod, len(b.desired.Pods))
	for _, p := range b.desired.Pods {
		desired[p.Key()] = p
	}
	b.priorities = shown.PrioritiesOf(b.desired.Objects)
	if err == nil {
		v.pods.begin()
		v.seenPods = true
	}
	for i := range views {
		b.pod(&views[i], desired[manifests.Key{Namespace: views[i].Pod.Namespace, Name: views[i].Pod.Name}])
	}
	for i := range leaving {
		b.leavingPod(&leaving[i])
	}
	if err == nil {
		v.lastPods = b.shownPods
	}
}

// lastPods adds the pods that were seen last, and returns those that came since.
func lastPods(b *build, views []node.PodView) (since []node.PodView) {
	v, known := b.view, map[manifests.Key]bool{}
	for _, p := range v.lastPods {
		known[manifests.Key{Namespace: p.Namespace, Name: p.Name}] = true
		b.add(v.kinds.pod, p)
		v.lives.of(p.UID, b.born)
	}
	b.shownPods = slices.Clone(v.lastPods)
	return slices.DeleteFunc(slices.Clone(views), func(p node.PodView) bool {
		return known[manifests.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name}]
	})
}

// showPod adds a pod, with the metadata that clients wrote after it was deleted.
func (b *build) showPod(p *corev1.Pod) {
	if kept := b.view.cfg.Kept; kept != nil && p.DeletionTimestamp != nil {
		if last := kept.Last(p.UID); last != nil {
			p = shallow(p)
			p.Labels, p.Annotations, p.ManagedFields = last.Labels, last.Annotations, last.ManagedFields
		}
	}
	b.shownPods = append(b.shownPods, p)
	b.add(b.view.kinds.pod, p)
}

// pod adds a pod. desired is its manifest; nil if it is gone.
func (b *build) pod(p *node.PodView, desired *manifests.Pod) {
	v := b.view
	var given *manifests.ServerMetadata
	var document *corev1.Pod
	if desired != nil && (desired.Given != nil || desired.Origin.Source == config.SourceApplied) {
		given = desired.Given
		if uid := desired.Object.UID; (p.Pod.DeletionTimestamp == nil || desired.Deleted()) && (uid == "" || uid == p.Pod.UID) {
			document = desired.Object
		}
	}
	key := memoKey{v.kinds.pod, p.Pod.Namespace, p.Pod.Name}
	// Its manifest is gone, or is that of the next pod of this name.
	if desired == nil || p.Pod.DeletionTimestamp != nil && (given == nil || given.UID != p.Pod.UID) {
		given = v.givenBefore(key, p.Pod.UID)
	}
	in := podInputs{pod: p.Pod, origin: p.Origin, given: given, document: document, class: b.priorities.Of(&p.Pod.Spec)}
	in.generation, in.observed = generationsOf(b, p, given)
	if ref := metav1.GetControllerOf(p.Pod); ref != nil {
		in.owner = shownOwner(p.Pod, ref)
		in.ownerUID = b.uidOfOwner(in.owner, p.Pod.Namespace)
		if doc := b.owners[ownerID{p.Pod.Namespace, ownerKey{ref.Kind, ref.Name}}]; doc != nil && doc.Given != nil && doc.Given.UID != "" && ref.UID != workload.UID(doc.Kind, doc.Object) {
			in.ownerUID = ref.UID // it belongs to a deleted workload of the same name
		}
	}
	if gates := v.cfg.State.Bound.OwnConditions(p.Pod.UID); len(gates) > 0 {
		in.gates = &gates[0]
	}
	o := v.pods.get(key, in, func() kinds.Object { return b.makePod(&in) }).(*corev1.Pod)
	v.lives.of(o.UID, b.born)
	b.showPod(o)
}

// givenBefore returns the server-set metadata of a pod when it was last shown.
func (v *View) givenBefore(key memoKey, uid types.UID) *manifests.ServerMetadata {
	e := v.pods.last[key]
	if in, ok := e.inputs.(podInputs); ok && e.object.GetUID() == uid {
		return in.given
	}
	return nil
}

// generationsOf returns the generation and the observed generation of a pod. Each ephemeral container counts, because manifests do not have
// them.
func generationsOf(b *build, p *node.PodView, given *manifests.ServerMetadata) (generation, observed int64) {
	generation = 1
	r, ok := b.view.cfg.State.Rollouts.View(manifests.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name})
	if ok {
		generation = int64(max(r.Wanted, 1))
	}
	if given != nil && given.Generation > 0 {
		generation = given.Generation
	}
	generation += int64(len(p.Pod.Spec.EphemeralContainers))
	if p.Pod.DeletionTimestamp != nil && (given == nil || given.DeletionTimestamp == nil) {
		return generation + 1, generation // its deletion also counts as a change
	}
	switch {
	case p.Manifest == "":
		return generation, 0
	case ok && (r.Active != r.Wanted || r.Written != "" && r.Written != p.Manifest):
		return generation, generation - 1
	}
	return generation, generation
}

// shownOwner returns the controller of a pod as shown in the API: a Deployment owns pods through a ReplicaSet, a CronJob through a Job.
func shownOwner(p *corev1.Pod, ref *metav1.OwnerReference) ownerKey {
	switch ref.Kind {
	case "Deployment":
		return ownerKey{"ReplicaSet", ref.Name + "-" + p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]}
	case "CronJob":
		return ownerKey{"Job", p.Labels[batchv1.JobNameLabel]}
	}
	return ownerKey{ref.Kind, ref.Name}
}

// makePod returns the object of a pod.
func (b *build) makePod(in *podInputs) *corev1.Pod {
	o := shallow(in.pod)
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	if d := in.document; d != nil {
		debug := o.Spec.EphemeralContainers // manifests never have them
		o.Spec, o.Labels, o.Annotations = d.Spec, d.Labels, d.Annotations
		o.Spec.EphemeralContainers = debug
	}
	uid, removed, grace := o.UID, o.DeletionTimestamp, o.DeletionGracePeriodSeconds
	in.given.SetOn(o)
	if removed != nil {
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = removed, grace
	}
	if o.UID == "" {
		o.UID = uid
	}
	if o.UID == "" {
		o.UID = b.view.uidOf("Pod", o.Namespace, o.Name)
	}
	o.ResourceVersion, o.Generation = "", in.generation
	o.Spec.NodeName = b.view.cfg.Node
	l := b.view.lives.of(o.UID, b.born)
	switch {
	case in.given != nil && !in.given.CreationTimestamp.IsZero():
	case !o.CreationTimestamp.IsZero():
		l.created = o.CreationTimestamp
	default:
		o.CreationTimestamp = l.created
	}
	if in.owner != (ownerKey{}) {
		yes := true
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: shown.GroupVersionOf(in.owner.kind), Kind: in.owner.kind, Name: in.owner.name, UID: in.ownerUID, Controller: &yes, BlockOwnerDeletion: &yes,
		}}
	}
	shown.Admit(&o.Spec, in.class, in.owner != (ownerKey{}))
	o.Annotations = podAnnotations(o, in)
	o.Status.ObservedGeneration = in.observed
	if o.Status.QOSClass == "" {
		o.Status.QOSClass = manifests.QOSClass(o)
	}
	o.Status.Conditions = slices.Concat(o.Status.Conditions, b.view.cfg.State.Bound.OwnConditions(o.UID))
	for i := range o.Status.Conditions {
		o.Status.Conditions[i].ObservedGeneration = in.observed
	}
	return o
}

// podAnnotations returns the annotations of a pod: those of a mirror pod if neither the API nor a workload can change it.
func podAnnotations(o *corev1.Pod, in *podInputs) map[string]string {
	a := maps.Clone(o.Annotations)
	if in.origin.Source == config.SourceApplied {
		delete(a, AnnotationSource)
		delete(a, annotationHash)
		delete(a, annotationSeen)
		return a
	}
	a = originated(a, in.origin)
	if in.owner == (ownerKey{}) && a != nil {
		a[corev1.MirrorPodAnnotationKey] = string(o.UID)
	}
	return a
}

// leavingPod adds a pod whose containers have terminated but which has leftovers: as it was last shown.
func (b *build) leavingPod(p *node.PodView) {
	v := b.view
	key := memoKey{v.kinds.pod, p.Pod.Namespace, p.Pod.Name}
	e, ok := v.pods.last[key]
	if !ok || e.object.GetUID() != p.Pod.UID {
		b.pod(p, nil)
		return
	}
	o := e.object.(*corev1.Pod)
	if o.DeletionTimestamp == nil {
		o = shallow(o)
		grace := int64(0)
		if s := o.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = *s
		}
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = p.Pod.DeletionTimestamp, &grace
	}
	v.pods.now[key] = memoEntry{nil, o}
	v.lives.of(o.UID, b.born)
	b.showPod(o)
}
