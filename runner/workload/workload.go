// Package workload turns Deployments, DaemonSets, ReplicaSets, StatefulSets, Jobs and CronJobs into the pods that
// should exist now.
//
// It owns the rules of those kinds as far as they make sense on one machine. Expand is pure: documents, what is known
// of their pods, and what was noted before, to pods and new notes. The notes (State) are what Jobs have completed and
// when CronJobs last ran: they must survive the agent, so the caller stores them (Store). The package must not know
// what runs pods.
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
)

// Workload is one document.
type Workload struct {
	// Object is *appsv1.Deployment, *appsv1.DaemonSet, *appsv1.ReplicaSet, *appsv1.StatefulSet, *batchv1.Job or *batchv1.CronJob.
	Object metav1.Object
	Kind   string
	Origin manifests.Origin
	// Kept says that what there is of it goes on as it is: it is written at a place that goes before this one and has not
	// been read.
	Kept bool
}

// id is the name of a workload in State.
func (w Workload) id() string {
	return w.Kind + " " + w.Object.GetNamespace() + "/" + w.Object.GetName()
}

// Current is a pod of a workload as it is.
type Current struct {
	// Pod is the manifest that it was last given; nil when it does not exist.
	Pod *manifests.Pod
	// Settled says that it is what runs: it has been carried out to the end. Before, the rest is about an older one.
	Settled bool
	// Ready is its condition.
	Ready bool
	Phase corev1.PodPhase
	// Restarts of all its containers.
	Restarts int
}

// Input is everything Expand decides on.
type Input struct {
	// Now should have a monotonic reading: how long a Job has run must not follow corrections of the clock.
	Now       time.Time
	Workloads []Workload
	// Pods are those that exist, whoever made them.
	Pods map[manifests.Key]Current
	// State is what the last Expand returned.
	State State
	// Make completes a pod: it sets defaults and checks it. The same call yields the same pointer as long as the workload is the same.
	Make func(w Workload, pod *corev1.Pod) (*manifests.Pod, error)
}

// Output is what should be.
type Output struct {
	Pods []*manifests.Pod
	// Claims are those that StatefulSets make of their templates.
	Claims []Claim
	// State is to be stored before the pods are acted on when it differs from the last one.
	State State
	// Next is when to look again without any change; zero: never.
	Next time.Time
	// Problems are about workloads that cannot be carried out as written, by their id.
	Problems map[string]error
}

// Claim is a PersistentVolumeClaim of a StatefulSet.
type Claim struct {
	Object *corev1.PersistentVolumeClaim
	Origin manifests.Origin
}

// expansion is an Expand under way.
type expansion struct {
	Input
	out Output
}

// Expand returns the pods of all workloads. What it says of one depends on that one only.
func Expand(in Input) Output {
	e := &expansion{Input: in}
	e.out.State = State{Jobs: map[string]*JobState{}, Crons: map[string]*CronState{}}
	e.out.Problems = map[string]error{}
	for _, w := range in.Workloads {
		if w.Kept {
			e.rest(w)
			continue
		}
		switch o := w.Object.(type) {
		case *appsv1.Deployment:
			all := o.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
			e.replicas(w, replicaSet{template: o.Spec.Template, replicas: number(o.Spec.Replicas), atOnce: all, label: appsv1.DefaultDeploymentUniqueLabelKey})
		case *appsv1.ReplicaSet:
			e.replicas(w, replicaSet{template: o.Spec.Template, replicas: number(o.Spec.Replicas), label: appsv1.DefaultDeploymentUniqueLabelKey})
		case *appsv1.DaemonSet:
			e.replicas(w, replicaSet{template: o.Spec.Template, replicas: 1, label: appsv1.DefaultDaemonSetUniqueLabelKey})
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

// number is a count that is 1 when it is left out.
func number(n *int32) int {
	if n == nil {
		return 1
	}
	return max(0, int(*n))
}

// wake asks for another look at t.
func (e *expansion) wake(t time.Time) {
	if e.out.Next.IsZero() || t.Before(e.out.Next) {
		e.out.Next = t
	}
}

// problem notes what is wrong with a workload; nil is nothing.
func (e *expansion) problem(w Workload, err error) {
	if err != nil && e.out.Problems[w.id()] == nil {
		e.out.Problems[w.id()] = err
	}
}

// pod makes a pod of a template.
func (e *expansion) pod(w Workload, template corev1.PodTemplateSpec, name string, rev stamp, edit func(*corev1.Pod)) (*manifests.Pod, error) {
	t := template.DeepCopy()
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: t.Spec}
	p.Name, p.Namespace = name, w.Object.GetNamespace()
	// As in a controller, nothing else of the template's metadata counts: with a uid all pods would be one.
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

// stamp is the label that says from which template a pod is.
type stamp struct{ label, value string }

func (s stamp) on(p *manifests.Pod) bool { return p != nil && p.Object.Labels[s.label] == s.value }

func cloned(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// Revision is the label of pods that are as a template says.
func Revision(t corev1.PodTemplateSpec) string { return revision(t) }

// revision is a short name of a template.
func revision(t corev1.PodTemplateSpec) string {
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:5])
}

// owner is what the pods of a workload say about it. Its uid is made of its name: the same after every start.
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

func uidOf(w Workload) types.UID {
	if uid := w.Object.GetUID(); uid != "" {
		return uid
	}
	h := sha256.Sum256([]byte(w.id()))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// current returns what is known of a pod by its name.
func (e *expansion) current(w Workload, name string) Current {
	return e.Pods[manifests.Key{Namespace: w.Object.GetNamespace(), Name: name}]
}

// owned returns the pods there are that were made for a workload, by name.
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

// ownersOf are the ids of the workloads that a pod says that it is of.
func ownersOf(p *manifests.Pod) []string {
	var ids []string
	for _, ref := range p.Object.OwnerReferences {
		ids = append(ids, ref.Kind+" "+p.Object.Namespace+"/"+ref.Name)
	}
	return ids
}

// byName sorts pods.
func byName(a, b *manifests.Pod) int { return cmp.Compare(a.Object.Name, b.Object.Name) }
