// Package revisions follows the pod templates of Deployments, StatefulSets and DaemonSets.
//
// It owns the numbers, annotations and limits of their revisions; it must not know pods, or where a History is stored. All of it is pure: a
// History is not changed but replaced. It starts no goroutines.
package revisions

import (
	"encoding/json"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/manifests/defaults"
)

const (
	// defaultHistory is the number of old revisions unless spec.revisionHistoryLimit is set.
	defaultHistory = 10
	// maxHistory and maxHistories limit the size of the old revisions of one workload and of all of them, in bytes.
	maxHistory   = 64 << 10
	maxHistories = 16 << 20
	// maxFormer is the number of former numbers of a revision that are kept.
	maxFormer = 100
)

// History has the revisions of the pod template of a Deployment, StatefulSet or DaemonSet. Once it is part of a State, it is not changed.
type History struct {
	// Origin is where the workload is written, UID is the uid that the Kubernetes API gave it; empty: none.
	Origin manifests.Origin `json:"origin"`
	UID    types.UID        `json:"uid,omitempty"`
	// Revisions have ascending numbers. New pods are made from the last one.
	Revisions []*Revision `json:"revisions"`
	// Current is the hash of the revision from which an update of a StatefulSet started. Pods below the partition are made from it.
	Current string `json:"current,omitempty"`
}

// Revision is one version of a pod template.
type Revision struct {
	Number int64 `json:"number"`
	// Hash is the label value of its pods.
	Hash string `json:"hash"`
	// Template is the pod template as written.
	Template json.RawMessage `json:"template"`
	// Annotations are those of the workload, without those that are not Copied. They include kubernetes.io/change-cause.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Former are the earlier numbers of this revision, before rollbacks to it.
	Former []int64 `json:"former,omitempty"`
}

// AnnotationNumber is the annotation with the number of a revision, on Deployments and their ReplicaSets.
const AnnotationNumber = "deployment.kubernetes.io/revision"

// AnnotationFormer is the annotation with the former numbers of a revision, on ReplicaSets.
const AnnotationFormer = "deployment.kubernetes.io/revision-history"

// Copied reports whether an annotation of a workload belongs to its revisions too.
func Copied(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, AnnotationNumber, AnnotationFormer, appsv1.DeprecatedRollbackTo,
		"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas":
		return false
	}
	return true
}

// PodTemplate returns the template.
func (r *Revision) PodTemplate() (*corev1.PodTemplateSpec, error) {
	t := &corev1.PodTemplateSpec{}
	return t, json.Unmarshal(r.Template, t)
}

func (r *Revision) size() int {
	n := len(r.Template)
	for key, value := range r.Annotations {
		n += len(key) + len(value)
	}
	return n
}

// Latest returns the revision that new pods are made from; nil if none. h may be nil.
func (h *History) Latest() *Revision {
	if h == nil || len(h.Revisions) == 0 {
		return nil
	}
	return h.Revisions[len(h.Revisions)-1]
}

// Find returns the revision with a hash; nil if none. h may be nil.
func (h *History) Find(hash string) *Revision {
	if h == nil {
		return nil
	}
	for _, r := range h.Revisions {
		if r.Hash == hash {
			return r
		}
	}
	return nil
}

// Document is a workload as it is written.
type Document struct {
	// Object is *appsv1.Deployment, *appsv1.StatefulSet or *appsv1.DaemonSet; others have no revisions.
	Object metav1.Object
	Origin manifests.Origin
	// UID is the one that the Kubernetes API has given; empty: it has given none.
	UID types.UID
}

// Of returns the workload of a document.
func Of(o *manifests.Object) Document {
	doc := Document{Object: o.Object, Origin: o.Origin}
	if o.Given != nil {
		doc.UID = o.Given.UID
	}
	return doc
}

// written is what a document says about its revisions.
type written struct {
	template *corev1.PodTemplateSpec
	hash     string
	limit    int
	paused   bool
	// follows reports that annotations of the document that change later are copied to the last revision.
	follows bool
}

// revisioned returns what a workload says about its revisions; false if it has none.
func revisioned(doc Document) (written, bool) {
	var out written
	limit := func(n *int32) int {
		if n == nil {
			return defaultHistory
		}
		return max(0, int(*n))
	}
	switch o := doc.Object.(type) {
	case *appsv1.Deployment:
		out = written{template: &o.Spec.Template, limit: limit(o.Spec.RevisionHistoryLimit), paused: o.Spec.Paused, follows: true}
	case *appsv1.StatefulSet:
		out = written{template: &o.Spec.Template, limit: limit(o.Spec.RevisionHistoryLimit)}
	case *appsv1.DaemonSet:
		out = written{template: &o.Spec.Template, limit: limit(o.Spec.RevisionHistoryLimit)}
	default:
		return out, false
	}
	return out, true
}

// Follow returns the history of a workload including its present template, which has that hash: h itself if nothing has changed. While a
// Deployment is paused, its history does not change. The result may be nil.
func Follow(h *History, doc Document, hash string) *History {
	now, ok := revisioned(doc)
	if !ok {
		return nil
	}
	if h != nil && h.UID != doc.UID && h.UID != "" && doc.UID != "" {
		h = nil // it is that of a deleted workload with the same name
	}
	if h == nil && now.paused {
		return nil
	}
	now.hash = hash
	out := &History{Origin: doc.Origin, UID: doc.UID}
	if h != nil {
		out.Revisions, out.Current = h.Revisions, h.Current
	}
	if !now.paused {
		out.Revisions = now.after(out.Revisions, doc)
	}
	if _, ok := doc.Object.(*appsv1.StatefulSet); ok && out.Find(out.Current) == nil && out.Latest() != nil {
		out.Current = out.Latest().Hash
	}
	if h != nil && h.Origin == out.Origin && h.UID == out.UID && h.Current == out.Current && slices.Equal(h.Revisions, out.Revisions) {
		return h
	}
	return out
}

// Adopt returns the history of a paused Deployment whose pods have its present template, for states of versions that kept no history; nil if
// it is not paused.
func Adopt(doc Document, hash string) *History {
	now, ok := revisioned(doc)
	if !ok || !now.paused {
		return nil
	}
	now.hash = hash
	return &History{Revisions: now.after(nil, doc)}
}

// after returns revisions of which the last one is the template in now. Of an old revision with the same template, only the number changes.
func (now *written) after(revisions []*Revision, doc Document) []*Revision {
	annotations := maps.Clone(doc.Object.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !Copied(key) })
	last := len(revisions) - 1
	i := now.find(revisions)
	switch {
	case i < 0:
		template, err := json.Marshal(now.template)
		if err != nil {
			return revisions // such a template has no hash either
		}
		r := &Revision{Number: 1, Hash: now.hash, Template: template, Annotations: annotations}
		if last >= 0 {
			r.Number = revisions[last].Number + 1
		}
		return append(slices.Clone(revisions), r)
	case i == last && revisions[i].Hash == now.hash && (!now.follows || maps.Equal(revisions[i].Annotations, annotations)):
		return revisions
	}
	r := *revisions[i]
	if r.Hash != now.hash { // it is written in other words
		template, err := json.Marshal(now.template)
		if err != nil {
			return revisions
		}
		r.Hash, r.Template = now.hash, template
	}
	if now.follows {
		r.Annotations = annotations
	}
	if i != last {
		r.Former = append(slices.Clone(r.Former), r.Number)
		r.Former = r.Former[max(0, len(r.Former)-maxFormer):]
		r.Number = revisions[last].Number + 1
	}
	return append(slices.Delete(slices.Clone(revisions), i, i+1), &r)
}

// find returns the index of the revision with the template in now; -1 if none. Templates that differ in defaults only are the same.
func (now *written) find(revisions []*Revision) int {
	if i := slices.IndexFunc(revisions, func(r *Revision) bool { return r.Hash == now.hash }); i >= 0 {
		return i
	}
	defaulted := func(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
		t = t.DeepCopy()
		defaults.Template(&t.Spec)
		return t
	}
	wanted := defaulted(now.template)
	return slices.IndexFunc(revisions, func(r *Revision) bool {
		t, err := r.PodTemplate()
		return err == nil && equality.Semantic.DeepEqual(defaulted(t), wanted)
	})
}

// Trim drops the oldest revisions beyond revisionHistoryLimit of a document, which is one of a number of workloads, and those that are too
// large. Those with hashes in use stay.
func (h *History) Trim(doc Document, workloads int, used map[string]bool) *History {
	now, _ := revisioned(doc)
	return h.trim(now.limit, min(maxHistory, maxHistories/max(1, workloads)), used)
}

// trim drops the oldest revisions beyond limit, and those that make the old ones larger than size bytes. The last one, the current one and
// those in use stay.
func (h *History) trim(limit, size int, used map[string]bool) *History {
	kept, old, bytes := make([]*Revision, 0, len(h.Revisions)), 0, 0
	for i, r := range slices.Backward(h.Revisions) {
		if i < len(h.Revisions)-1 && r.Hash != h.Current && !used[r.Hash] {
			old++
			bytes += r.size()
			if old > limit || bytes > size {
				continue
			}
		}
		kept = append(kept, r)
	}
	if len(kept) == len(h.Revisions) {
		return h
	}
	slices.Reverse(kept)
	out := *h
	out.Revisions = kept
	return &out
}
