package apply

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
	"monopod/runner/workload"
	"monopod/watcher/applied"
)

// definitions are pods and other objects.
type definitions struct {
	documents map[manifests.Key]*manifests.Pod
	objects   map[manifests.ObjectID]*manifests.Object
}

// view is a snapshot of the desired objects and of what clients see.
type view struct {
	definitions
	// overridden are the applied pods and objects that another source overrides.
	overridden definitions
	// removable reports whether pods of an origin are removed when it no longer lists them.
	removable func(manifests.Origin) bool
	// pods are those that clients see. visible is false while containers cannot be observed.
	pods    map[manifests.Key]node.PodView
	visible bool
}

// view returns a snapshot of the current state.
func (a *Applier) view() view {
	views, err := a.State.Pods()
	d, _ := a.State.Desired()
	return newView(d, views, err == nil)
}

func newView(d model.Desired, views []node.PodView, visible bool) view {
	v := view{
		definitions: definitionsOf(d.Pods, slices.Concat(d.Objects, d.Workloads)), overridden: definitionsOf(appliedOnly(d.Overridden)),
		removable: d.Removable, pods: make(map[manifests.Key]node.PodView, len(views)), visible: visible,
	}
	for _, p := range views {
		v.pods[manifests.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name}] = p
	}
	return v
}

func definitionsOf(pods []*manifests.Pod, objects []*manifests.Object) definitions {
	d := definitions{make(map[manifests.Key]*manifests.Pod, len(pods)), make(map[manifests.ObjectID]*manifests.Object, len(objects))}
	for _, p := range pods {
		d.documents[p.Key()] = p
	}
	for _, o := range objects {
		d.objects[o.ID()] = o
	}
	return d
}

// appliedOnly returns what was applied.
func appliedOnly(o model.Overridden) (pods []*manifests.Pod, objects []*manifests.Object) {
	for _, p := range o.Pods {
		if p.Origin.Source == config.SourceApplied {
			pods = append(pods, p)
		}
	}
	for _, obj := range o.Objects {
		if obj.Origin.Source == config.SourceApplied {
			objects = append(objects, obj)
		}
	}
	return pods, objects
}

// document returns the pod with an id; nil: there is none.
func (d definitions) document(id manifests.ObjectID) *manifests.Pod {
	if id.Kind != "Pod" {
		return nil
	}
	return d.documents[manifests.Key{Namespace: id.Namespace, Name: id.Name}]
}

// shown returns a pod as clients see it.
func (v view) shown(id manifests.ObjectID) (node.PodView, bool) {
	p, ok := v.pods[manifests.Key{Namespace: id.Namespace, Name: id.Name}]
	return p, ok && id.Kind == "Pod"
}

// owner is the place of the effective definition of an object; the zero value means that it has none.
type owner struct {
	At manifests.Origin
	// Workload names the workload that creates the pod, as "Deployment web".
	Workload string
	// unread: the source has not been read since the daemon started. The pod runs from its recorded manifest.
	unread bool
}

// String completes a sentence that starts with "it is".
func (o owner) String() string {
	switch {
	case o.Workload != "":
		return fmt.Sprintf("a pod of %s, defined in %s", o.Workload, verdict.Place(o.At))
	case o.unread:
		return "defined in " + verdict.Place(o.At) + " (not read since monopod started)"
	}
	return "defined in " + verdict.Place(o.At)
}

// owner returns where an object is defined.
func (v view) owner(id manifests.ObjectID) owner {
	if p := v.document(id); p != nil {
		return owner{At: p.Origin}
	}
	if o := v.objects[id]; o != nil {
		return owner{At: o.Origin}
	}
	p, ok := v.shown(id)
	if !ok {
		return owner{}
	}
	if c := metav1.GetControllerOf(p.Pod); c != nil {
		w := v.objects[manifests.ObjectID{Kind: c.Kind, Namespace: id.Namespace, Name: c.Name}]
		if w != nil {
			return owner{At: w.Origin, Workload: c.Kind + " " + c.Name}
		}
	}
	if v.removable(p.Origin) || p.Origin.Source == "" {
		return owner{} // it is being removed
	}
	return owner{At: p.Origin, unread: true}
}

// same reports whether the effective definition equals the one to apply.
func (v view) same(p *pushed) bool {
	if v.source(p.ID) != "" {
		return v.have(p)
	}
	was, ok := v.shown(p.ID)
	return ok && p.Pod != nil && was.Manifest == rollout.Hash(p.Pod.Object)
}

// have reports whether a definition equals the one to apply.
func (d definitions) have(p *pushed) bool {
	if was := d.document(p.ID); was != nil {
		return p.Pod != nil && reflect.DeepEqual(was.Object, p.Pod.Object)
	}
	was := d.objects[p.ID]
	return was != nil && p.Object != nil && reflect.DeepEqual(was.Object, p.Object.Object)
}

// sameNote reports whether a definition has the metadata of the one to apply: a write may change only metadata.
func (d definitions) sameNote(p *pushed) bool {
	var was *applied.Note
	if pod := d.document(p.ID); pod != nil {
		was = pod.Given
	} else if o := d.objects[p.ID]; o != nil {
		was = o.Given
	}
	if was == p.Note {
		return true
	}
	a, err := applied.Join(was, nil)
	b, other := applied.Join(p.Note, nil)
	return err == nil && other == nil && bytes.Equal(a, b)
}

// podsOf returns the pods of an object: the object itself, or the pods of a workload.
func (v view) podsOf(id manifests.ObjectID) []localapi.AppliedPod {
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

// shows reports whether an applied object is desired, or would be if no other source overrode it, and whether its pod is visible. An overridden
// one counts only once it has been read, because the other source may lose it at any time.
func (v view) shows(p *pushed) bool {
	from := v.definitions
	if v.source(p.ID) != config.SourceApplied {
		from = v.overridden
	}
	if !from.have(p) || !from.sameNote(p) {
		return false
	}
	_, shown := v.shown(p.ID)
	return shown || p.Pod == nil || !v.visible
}

// addRollbacks marks the applied pods that run an earlier revision.
func (v view) addRollbacks(r localapi.ApplyResult) {
	for _, o := range r.Objects {
		for i := range o.Pods {
			p := &o.Pods[i]
			if shown := v.pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}].Revision; o.Verdict == localapi.Unchanged && shown.Written == p.Manifest {
				p.Rollback = shown.Rollback
			}
		}
	}
}

// source returns the source of a definition; empty: there is none.
func (d definitions) source(id manifests.ObjectID) string {
	if p := d.document(id); p != nil {
		return p.Origin.Source
	}
	if o := d.objects[id]; o != nil {
		return o.Origin.Source
	}
	return ""
}

// lacks reports whether an object has no applied definition, effective or overridden.
func (v view) lacks(id manifests.ObjectID) bool {
	return v.source(id) != config.SourceApplied && v.overridden.source(id) == ""
}

// pushed is one object of a request.
type pushed struct {
	decode.Document
	File string
	// Pod or Object is the defaulted and valid document.
	Pod    *manifests.Pod
	Object *manifests.Object
	// Workload: Object creates pods.
	Workload bool
	Verdict  localapi.Verdict
	Warning  string
	// Note is stored with the document; nil: none.
	Note *applied.Note
}

// object returns the decoded object of a stored document that has one; nil: it has none of that kind.
func object(c *manifests.Content) metav1.Object {
	switch {
	case len(c.Pods) == 1:
		return c.Pods[0].Object
	case len(c.Objects) == 1:
		return c.Objects[0].Object
	case len(c.Workloads) == 1:
		return c.Workloads[0].Object
	}
	return nil
}

// decoded returns the object.
func (p *pushed) decoded() metav1.Object {
	if p.Pod != nil {
		return p.Pod.Object
	}
	return p.Object.Object
}

// same reports whether a stored document is equal, including defaults.
func (p *pushed) same(was *manifests.Content) bool {
	return reflect.DeepEqual(object(was), p.decoded())
}

// raised returns the note with the next generation if more than metadata has changed. Kinds without a generation get none.
func (p *pushed) raised(was *manifests.Content) *applied.Note {
	if p.Note == nil || p.Note.Generation == 0 || reflect.DeepEqual(withoutMetadata(object(was)), withoutMetadata(p.decoded())) {
		return p.Note
	}
	note := *p.Note
	note.Generation++
	return &note
}

// withoutMetadata returns a shallow copy of an object without its metadata; nil: there is no object.
func withoutMetadata(o metav1.Object) any {
	if o == nil {
		return nil
	}
	value := reflect.New(reflect.TypeOf(o).Elem()).Elem()
	value.Set(reflect.ValueOf(o).Elem())
	if meta := value.FieldByName("ObjectMeta"); meta.IsValid() {
		meta.SetZero()
	}
	return value.Interface()
}

// Origin returns the place of the object in the request.
func (p *pushed) Origin() manifests.Origin {
	return manifests.Origin{Source: config.SourceApplied, File: p.File, Line: p.Line}
}

// Pods returns the pods that the object defines.
func (p *pushed) Pods() []*manifests.Pod {
	switch {
	case p.Pod != nil:
		return []*manifests.Pod{p.Pod}
	case p.Workload:
		return workload.Final(p.Object)
	}
	return nil
}

// Refuse returns an error about the object.
func (p *pushed) Refuse(msg, hint string) *manifests.Error {
	kind, name := p.ID.Kind, p.ID.Name
	if p.ID.Namespace != "" {
		name = p.ID.Namespace + "/" + name
	}
	if kind == "Pod" {
		kind = ""
	}
	return &manifests.Error{File: p.File, Line: p.Line, Kind: kind, Pod: name, Msg: msg, Hint: hint}
}
