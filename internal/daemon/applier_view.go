package daemon

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/rollout"
)

// view is what the board knows at one moment of what is wanted and what there is.
type view struct {
	// documents are the desired pods, objects the other documents that are desired.
	documents map[manifests.Key]*manifests.Pod
	objects   map[manifests.ObjectID]*manifests.Object
	// removable says of a place that what is missing there is gone.
	removable func(manifests.Origin) bool
	// pods are those that are shown; seen says that they can be.
	pods map[manifests.Key]node.PodView
	seen bool
}

// knows says that the sources have been read, as far as they could.
func (b *board) knows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published
}

// view returns what is known now.
func (b *board) view() view {
	views, err := b.Pods()
	b.mu.Lock()
	d := b.desired
	b.mu.Unlock()
	v := view{
		documents: make(map[manifests.Key]*manifests.Pod, len(d.Pods)), objects: map[manifests.ObjectID]*manifests.Object{},
		removable: d.Removable, pods: make(map[manifests.Key]node.PodView, len(views)), seen: err == nil,
	}
	for _, p := range d.Pods {
		v.documents[p.Key()] = p
	}
	for _, o := range slices.Concat(d.Objects, d.Workloads) {
		v.objects[o.ID()] = o
	}
	for _, p := range views {
		v.pods[manifests.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name}] = p
	}
	return v
}

// document returns the desired pod of a name, nil when there is none.
func (v view) document(id manifests.ObjectID) *manifests.Pod {
	if id.Kind != "Pod" {
		return nil
	}
	return v.documents[manifests.Key{Namespace: id.Namespace, Name: id.Name}]
}

// shown returns the pod of a name as it is shown.
func (v view) shown(id manifests.ObjectID) (node.PodView, bool) {
	p, ok := v.pods[manifests.Key{Namespace: id.Namespace, Name: id.Name}]
	return p, ok && id.Kind == "Pod"
}

// ownership is where an object is written that counts now; the zero value: nowhere.
type ownership struct {
	at manifests.Origin
	// workload names the one that makes the pod, as "Deployment web".
	workload string
	// unread says that the place has not been read since the start of the agent: the pod runs from what it said before.
	unread bool
}

// String completes a sentence that begins with "it is".
func (o ownership) String() string {
	switch {
	case o.workload != "":
		return fmt.Sprintf("a pod of %s, written in %s", o.workload, verdict.Place(o.at))
	case o.unread:
		return "defined in " + verdict.Place(o.at) + " (not read since monopod started)"
	}
	return "defined in " + verdict.Place(o.at)
}

// owner says where the object of a name is written.
func (v view) owner(id manifests.ObjectID) ownership {
	if p := v.document(id); p != nil {
		return ownership{at: p.Origin}
	}
	if o := v.objects[id]; o != nil {
		return ownership{at: o.Origin}
	}
	p, ok := v.shown(id)
	if !ok {
		return ownership{}
	}
	if c := metav1.GetControllerOf(p.Pod); c != nil {
		w := v.objects[manifests.ObjectID{Kind: c.Kind, Namespace: id.Namespace, Name: c.Name}]
		if w != nil {
			return ownership{at: w.Origin, workload: c.Kind + " " + c.Name}
		}
	}
	if v.removable(p.Origin) || p.Origin.Source == "" {
		return ownership{} // it is on its way out
	}
	return ownership{at: p.Origin, unread: true}
}

// same says that what counts now says the same as what is to be applied.
func (v view) same(p *pushed) bool {
	if was := v.document(p.ID); was != nil {
		return p.pod != nil && reflect.DeepEqual(was.Object, p.pod.Object)
	}
	if was := v.objects[p.ID]; was != nil {
		return p.object != nil && reflect.DeepEqual(was.Object, p.object.Object)
	}
	was, ok := v.shown(p.ID)
	return ok && p.pod != nil && was.Manifest == rollout.Hash(p.pod.Object)
}

// podsOf are the pods that go with an object: itself, or those of a workload.
func (v view) podsOf(id manifests.ObjectID) []node.AppliedPod {
	if id.Kind == "Pod" {
		return []node.AppliedPod{{Namespace: id.Namespace, Name: id.Name}}
	}
	var pods []node.AppliedPod
	for key, p := range v.pods {
		owner := metav1.GetControllerOf(p.Pod)
		if owner != nil && owner.Kind == id.Kind && owner.Name == id.Name && key.Namespace == id.Namespace {
			pods = append(pods, node.AppliedPod{Namespace: key.Namespace, Name: key.Name})
		}
	}
	return pods
}

// shows says that what was applied is desired, unless another source has its place, and that its pod can be asked for.
func (v view) shows(p *pushed) bool {
	at := v.written(p.ID)
	if at == "" || at == config.SourceApplied && !v.same(p) {
		return false
	}
	_, shown := v.shown(p.ID)
	return shown || p.pod == nil || !v.seen
}

// takenBack notes which of the pods that were applied run an earlier revision.
func (v view) takenBack(r node.ApplyResult) {
	for _, o := range r.Objects {
		for i := range o.Pods {
			p := &o.Pods[i]
			if shown := v.pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}].Revision; o.Verdict == node.Unchanged && shown.Written == p.Manifest {
				p.Rollback = shown.Rollback
			}
		}
	}
}

// written is the source whose document counts, empty when there is none.
func (v view) written(id manifests.ObjectID) string {
	if p := v.document(id); p != nil {
		return p.Origin.Source
	}
	if o := v.objects[id]; o != nil {
		return o.Origin.Source
	}
	return ""
}

// lacks says that an object is not desired as it was applied.
func (v view) lacks(id manifests.ObjectID) bool { return v.written(id) != config.SourceApplied }

// manifestHashes remembers the hashes of recorded manifests by their address: they are immutable.
type manifestHashes map[manifests.Key]recordedHash

type recordedHash struct {
	of   *corev1.Pod
	hash string
}

// get returns the hash of a recorded manifest, empty for none.
func (m manifestHashes) get(p *manifests.Pod) string {
	if p == nil {
		return ""
	}
	was := m[p.Key()]
	if was.of != p.Object {
		was = recordedHash{of: p.Object, hash: rollout.Hash(p.Object)}
		m[p.Key()] = was
	}
	return was.hash
}
