package board

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
	"monopod/runner/workload"
)

// View is what the board knows at one moment of what is wanted and what there is.
type View struct {
	// documents are the desired pods, objects the other documents that are desired.
	documents map[manifests.Key]*manifests.Pod
	objects   map[manifests.ObjectID]*manifests.Object
	// removable says of a place that what is missing there is gone.
	removable func(manifests.Origin) bool
	// Pods are those that are shown; seen says that they can be.
	pods map[manifests.Key]node.PodView
	seen bool
}

// document returns the desired pod of a name, nil when there is none.
func (v View) document(id manifests.ObjectID) *manifests.Pod {
	if id.Kind != "Pod" {
		return nil
	}
	return v.documents[manifests.Key{Namespace: id.Namespace, Name: id.Name}]
}

// shown returns the pod of a name as it is shown.
func (v View) shown(id manifests.ObjectID) (node.PodView, bool) {
	p, ok := v.pods[manifests.Key{Namespace: id.Namespace, Name: id.Name}]
	return p, ok && id.Kind == "Pod"
}

// ownership is where an object is written that counts now; the zero value: nowhere.
type ownership struct {
	At manifests.Origin
	// Workload names the one that makes the pod, as "Deployment web".
	Workload string
	// unread says that the place has not been read since the start of the agent: the pod runs from what it said before.
	unread bool
}

// String completes a sentence that begins with "it is".
func (o ownership) String() string {
	switch {
	case o.Workload != "":
		return fmt.Sprintf("a pod of %s, written in %s", o.Workload, verdict.Place(o.At))
	case o.unread:
		return "defined in " + verdict.Place(o.At) + " (not read since monopod started)"
	}
	return "defined in " + verdict.Place(o.At)
}

// Owner says where the object of a name is written.
func (v View) Owner(id manifests.ObjectID) ownership {
	if p := v.document(id); p != nil {
		return ownership{At: p.Origin}
	}
	if o := v.objects[id]; o != nil {
		return ownership{At: o.Origin}
	}
	p, ok := v.shown(id)
	if !ok {
		return ownership{}
	}
	if c := metav1.GetControllerOf(p.Pod); c != nil {
		w := v.objects[manifests.ObjectID{Kind: c.Kind, Namespace: id.Namespace, Name: c.Name}]
		if w != nil {
			return ownership{At: w.Origin, Workload: c.Kind + " " + c.Name}
		}
	}
	if v.removable(p.Origin) || p.Origin.Source == "" {
		return ownership{} // it is on its way out
	}
	return ownership{At: p.Origin, unread: true}
}

// Same says that what counts now says the same as what is to be applied.
func (v View) Same(p *Pushed) bool {
	if was := v.document(p.ID); was != nil {
		return p.Pod != nil && reflect.DeepEqual(was.Object, p.Pod.Object)
	}
	if was := v.objects[p.ID]; was != nil {
		return p.Object != nil && reflect.DeepEqual(was.Object, p.Object.Object)
	}
	was, ok := v.shown(p.ID)
	return ok && p.Pod != nil && was.Manifest == rollout.Hash(p.Pod.Object)
}

// PodsOf are the pods that go with an object: itself, or those of a workload.
func (v View) PodsOf(id manifests.ObjectID) []localapi.AppliedPod {
	if id.Kind == "Pod" {
		return []localapi.AppliedPod{{Namespace: id.Namespace, Name: id.Name}}
	}
	var pods []localapi.AppliedPod
	for key, p := range v.pods {
		owner := metav1.GetControllerOf(p.Pod)
		if owner != nil && owner.Kind == id.Kind && owner.Name == id.Name && key.Namespace == id.Namespace {
			pods = append(pods, localapi.AppliedPod{Namespace: key.Namespace, Name: key.Name})
		}
	}
	return pods
}

// Shows says that what was applied is desired, unless another source has its place, and that its pod can be asked for.
func (v View) Shows(p *Pushed) bool {
	at := v.written(p.ID)
	if at == "" || at == config.SourceApplied && !v.Same(p) {
		return false
	}
	_, shown := v.shown(p.ID)
	return shown || p.Pod == nil || !v.seen
}

// TakenBack notes which of the pods that were applied run an earlier revision.
func (v View) TakenBack(r localapi.ApplyResult) {
	for _, o := range r.Objects {
		for i := range o.Pods {
			p := &o.Pods[i]
			if shown := v.pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}].Revision; o.Verdict == localapi.Unchanged && shown.Written == p.Manifest {
				p.Rollback = shown.Rollback
			}
		}
	}
}

// written is the source whose document counts, empty when there is none.
func (v View) written(id manifests.ObjectID) string {
	if p := v.document(id); p != nil {
		return p.Origin.Source
	}
	if o := v.objects[id]; o != nil {
		return o.Origin.Source
	}
	return ""
}

// Lacks says that an object is not desired as it was applied.
func (v View) Lacks(id manifests.ObjectID) bool { return v.written(id) != config.SourceApplied }

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

// Pushed is one object of a request.
type Pushed struct {
	decode.Document
	File string
	// Pod or object is the document, defaulted and valid.
	Pod    *manifests.Pod
	Object *manifests.Object
	// Workload says that object makes pods.
	Workload bool
	Verdict  localapi.Verdict
	Warning  string
}

func (p *Pushed) Origin() manifests.Origin {
	return manifests.Origin{Source: config.SourceApplied, File: p.File, Line: p.Line}
}

// Pods are those to which the object comes.
func (p *Pushed) Pods() []*manifests.Pod {
	switch {
	case p.Pod != nil:
		return []*manifests.Pod{p.Pod}
	case p.Workload:
		return workload.Final(p.Object)
	}
	return nil
}

// Refuse makes an error about the object.
func (p *Pushed) Refuse(msg, hint string) *manifests.Error {
	kind, name := p.ID.Kind, p.ID.Name
	if p.ID.Namespace != "" {
		name = p.ID.Namespace + "/" + name
	}
	if kind == "Pod" {
		kind = ""
	}
	return &manifests.Error{File: p.File, Line: p.Line, Kind: kind, Pod: name, Msg: msg, Hint: hint}
}
