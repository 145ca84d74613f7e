// Package workload turns Deployments, DaemonSets, ReplicaSets, StatefulSets, Jobs and CronJobs into the pods that should exist now.
//
// It owns the rules of those kinds as far as they make sense on one machine; it must not know what runs pods. Expand is pure: it turns
// documents, their observed pods and the previous saved.State into pods and a new State. The State (completions of Jobs, last runs of CronJobs,
// revisions of templates) must survive the agent, so the Expander stores it with a saved.Store. It
// starts no goroutines.
package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner/workload/saved"
)

// Workload is one document.
type Workload struct {
	// Object is *appsv1.Deployment, *appsv1.DaemonSet, *appsv1.ReplicaSet, *appsv1.StatefulSet, *batchv1.Job or *batchv1.CronJob.
	Object metav1.Object
	Kind   string
	Origin manifests.Origin
	// UID is the one that the Kubernetes API has given; empty: it has given none. Pods and progress of another uid are not those of the workload,
	// whatever their names are.
	UID types.UID
	// Kept reports that its existing pods stay as they are: it is also written at a place of higher precedence that has not been read.
	Kept bool
}

// id returns the key of a workload in State.
func (w Workload) id() string {
	return w.Kind + " " + w.Object.GetNamespace() + "/" + w.Object.GetName()
}

// Current is the observed state of a pod of a workload.
type Current struct {
	// Pod is the manifest that it was last assigned; nil if it does not exist.
	Pod *manifests.Pod
	// Settled reports that Pod has been applied completely. Before that, the other fields describe an older manifest.
	Settled bool
	// Ready is its Ready condition.
	Ready bool
	Phase corev1.PodPhase
	// Deleted reports that a client has deleted it. The pod of this name is to be created again, unless it has ended and is of a Job.
	Deleted bool
	// Restarts is the sum of restarts of all its containers.
	Restarts int
	// Leaving reports that the pod is being removed: it is not used any more, and its name is not used until it is gone.
	Leaving bool
}

// Input is the input of Expand.
type Input struct {
	// Now should have a monotonic reading: the elapsed time of a Job must not follow corrections of the clock.
	Now       time.Time
	Workloads []Workload
	// Pods are the existing pods, whatever created them.
	Pods map[manifests.Key]Current
	// State is the result of the previous Expand.
	State saved.State
	// Make completes a pod: it sets defaults and checks it. It must return the same pointer for the same arguments as long as the workload is
	// the same.
	Make func(w Workload, pod *corev1.Pod) (*manifests.Pod, error)
}

// Output is the result of Expand.
type Output struct {
	Pods []*manifests.Pod
	// Claims are those of StatefulSets, from their templates.
	Claims []Claim
	// State must be stored before the pods are acted on if it differs from the previous one.
	State saved.State
	// Next is when to expand again without any change; zero means never.
	Next time.Time
	// Expired are the finished Jobs whose ttlSecondsAfterFinished has elapsed.
	Expired []Expired
	// Problems are the workloads that cannot be carried out as written, by id.
	Problems map[string]error
}

// Expired is a finished Job of a document whose ttlSecondsAfterFinished has elapsed.
type Expired struct {
	Namespace, Name string
	// UID is the one that the Kubernetes API has given; empty: it has given none.
	UID    types.UID
	Origin manifests.Origin
	// TTL is ttlSecondsAfterFinished.
	TTL int32
}

// Claim is a PersistentVolumeClaim of a StatefulSet.
type Claim struct {
	Object *corev1.PersistentVolumeClaim
	Origin manifests.Origin
}

// expansion is an Expand in progress.
type expansion struct {
	Input
	out Output
}

// Expand returns the pods of all workloads. The result for one workload does not depend on the others.
func Expand(in Input) Output {
	e := &expansion{Input: in}
	e.out.State = saved.NewState()
	e.out.Problems = map[string]error{}
	for _, w := range in.Workloads {
		if w.Kept {
			e.rest(w)
			continue
		}
		switch o := w.Object.(type) {
		case *appsv1.Deployment:
			e.deployment(w, o)
		case *appsv1.ReplicaSet:
			e.replicas(w, newReplicaSet(o.Spec.Template, number(o.Spec.Replicas), appsv1.DefaultDeploymentUniqueLabelKey))
		case *appsv1.DaemonSet:
			e.daemonSet(w, o)
		case *appsv1.StatefulSet:
			e.statefulSet(w, o)
		case *batchv1.Job:
			e.job(w, o)
		case *batchv1.CronJob:
			e.cronJob(w, o)
		}
	}
	return e.out
}

// number returns a count, which defaults to 1.
func number(n *int32) int {
	if n == nil {
		return 1
	}
	return max(0, int(*n))
}

// wake requests another expansion at t.
func (e *expansion) wake(t time.Time) {
	if e.out.Next.IsZero() || t.Before(e.out.Next) {
		e.out.Next = t
	}
}

// problem records a problem of a workload; nil means none.
func (e *expansion) problem(w Workload, err error) {
	if err != nil && e.out.Problems[w.id()] == nil {
		e.out.Problems[w.id()] = err
	}
}

// pod makes a pod from a template.
func (e *expansion) pod(w Workload, template corev1.PodTemplateSpec, name string, rev stamp, edit func(*corev1.Pod)) (*manifests.Pod, error) {
	t := template.DeepCopy()
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: t.Spec}
	p.Name, p.Namespace = name, w.Object.GetNamespace()
	// As in a controller, nothing else of the template's metadata counts: with a uid all pods would be the same.
	p.Labels, p.Annotations, p.Finalizers = cloned(t.Labels), cloned(t.Annotations), t.Finalizers
	p.Labels[rev.label] = rev.value
	p.OwnerReferences = []metav1.OwnerReference{owner(w)}
	if edit != nil {
		edit(p)
	}
	made, err := e.Make(w, p)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	return made, nil
}

// stamp is the label with the revision of the template that a pod is from.
type stamp struct{ label, value string }

func (s stamp) on(p *manifests.Pod) bool { return p != nil && p.Object.Labels[s.label] == s.value }

func cloned(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// Revision returns the label value of pods that match a template.
func Revision(t corev1.PodTemplateSpec) string { return revision(t) }

// revision returns a short hash of a template.
func revision(t corev1.PodTemplateSpec) string {
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:5])
}

// owner returns the owner reference of the pods of a workload. Its uid is derived from the name, so it is the same after every start.
func owner(w Workload) metav1.OwnerReference {
	version := appsv1.SchemeGroupVersion
	switch w.Kind {
	case "Job", "CronJob":
		version = batchv1.SchemeGroupVersion
	case "ReplicationController":
		version = corev1.SchemeGroupVersion
	}
	yes := true
	return metav1.OwnerReference{
		APIVersion: version.String(), Kind: w.Kind, Name: w.Object.GetName(), UID: uidOf(w), Controller: &yes, BlockOwnerDeletion: &yes,
	}
}

// UID returns the uid of a workload in the labels and owner references of its pods.
func UID(kind string, o metav1.Object) types.UID { return uidOf(Workload{Object: o, Kind: kind}) }

func uidOf(w Workload) types.UID {
	if uid := w.Object.GetUID(); uid != "" {
		return uid
	}
	return w.uidByName()
}

// identity returns what tells a workload from another one of the same name. Manifests that the Kubernetes API has not stored are identified by
// their names: a uid that is written in a manifest may change without another workload.
func (w Workload) identity() types.UID {
	if w.UID != "" {
		return w.UID
	}
	return w.uidByName()
}

func (w Workload) uidByName() types.UID {
	h := sha256.Sum256([]byte(w.id()))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// foreign reports whether a pod belongs to another workload, for example to a deleted one of the same name.
func (w Workload) foreign(p *manifests.Pod) bool {
	if w.UID == "" || p == nil {
		return false
	}
	uid := controllerOf(p)
	return uid != "" && uid != uidOf(w)
}

// controllerOf returns the uid of the controller of a pod; empty: it has none.
func controllerOf(p *manifests.Pod) types.UID {
	if ref := metav1.GetControllerOf(p.Object); ref != nil {
		return ref.UID
	}
	return ""
}

// current returns the state of a pod by its name. A pod that is being removed, or belongs to another workload, does not exist for this one.
func (e *expansion) current(w Workload, name string) Current {
	c := e.Pods[manifests.Key{Namespace: w.Object.GetNamespace(), Name: name}]
	if c.Leaving || w.foreign(c.Pod) {
		return Current{}
	}
	return c
}

// OfJob reports whether a pod is of a Job: such a pod may have nothing more to do.
func OfJob(p *manifests.Pod) bool {
	ref := metav1.GetControllerOf(p.Object)
	return ref != nil && (ref.Kind == "Job" || ref.Kind == "CronJob")
}

// owned returns the existing pods of a workload, by name.
func (e *expansion) owned(w Workload) map[string]Current {
	all := map[string]Current{}
	uid := uidOf(w)
	for key, c := range e.Pods {
		if key.Namespace != w.Object.GetNamespace() || c.Pod == nil {
			continue
		}
		refs := c.Pod.Object.OwnerReferences
		if slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			all[key.Name] = c
		}
	}
	return all
}

// ownersOf returns the ids of the workloads in the owner references of a pod.
func ownersOf(p *manifests.Pod) []string {
	var ids []string
	for _, ref := range p.Object.OwnerReferences {
		ids = append(ids, ref.Kind+" "+p.Object.Namespace+"/"+ref.Name)
	}
	return ids
}

// byName compares pods by name.
func byName(a, b *manifests.Pod) int { return cmp.Compare(a.Object.Name, b.Object.Name) }
