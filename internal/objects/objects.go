// Package objects knows how objects besides pods are shown: what a word of a command line names, and the status of a workload as
// its pods have it.
//
// It is pure: no clock, no disk, no network, no goroutines. It only reads what is desired; it decides nothing about it.
package objects

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/kinds"
)

// Kinds that are shown but cannot be written in a manifest.
const (
	Node  = "Node"
	Event = "Event"
)

// Find returns the kind that a word names: in any case, in the plural, short as with kubectl, or with its group, as deployments.apps.
// namespaced is false for cluster-wide kinds.
func Find(word string) (kind string, namespaced, ok bool) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	switch word {
	case "no", "node", "nodes":
		return Node, false, true
	case "ev", "event", "events":
		return Event, true, true
	}
	return kinds.Find(word)
}

// InAll are the kinds that `get all` shows, in this order.
func InAll() []string {
	return []string{"Pod", "ReplicationController", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "CronJob", "Job"}
}

// IsWorkload reports whether a kind makes pods.
func IsWorkload(kind string) bool {
	switch kind {
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController":
		return true
	}
	return false
}

// Conditions are those that can be waited for, of objects of a kind; none: its objects can only be waited for to be gone. Pods may have any.
func Conditions(kind string) []string {
	switch kind {
	case "Deployment":
		return []string{"Available", "Ready"}
	case "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController":
		return []string{"Ready"}
	case "Job":
		return []string{"Complete", "Failed"}
	case Node:
		return []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"}
	}
	return nil
}

// Item is an object as a client has it.
type Item struct {
	Kind string
	// Object is a pointer to its type, or to metav1.PartialObjectMetadata of kinds whose content no command looks at.
	Object metav1.Object
	// Raw is the object as JSON.
	Raw json.RawMessage
}

// Decode reads an object from JSON.
func Decode(raw []byte) (Item, error) {
	var t metav1.TypeMeta
	if err := json.Unmarshal(raw, &t); err != nil {
		return Item{}, err
	}
	object := blank(t.Kind)
	if err := json.Unmarshal(raw, object); err != nil {
		return Item{}, fmt.Errorf("%s: %w", t.Kind, err)
	}
	return Item{Kind: t.Kind, Object: object, Raw: raw}, nil
}

func blank(kind string) metav1.Object {
	switch kind {
	case "Pod":
		return &corev1.Pod{}
	case "Deployment":
		return &appsv1.Deployment{}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "ReplicationController":
		return &corev1.ReplicationController{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "DaemonSet":
		return &appsv1.DaemonSet{}
	case "Job":
		return &batchv1.Job{}
	case "CronJob":
		return &batchv1.CronJob{}
	case "Service":
		return &corev1.Service{}
	case "ConfigMap":
		return &corev1.ConfigMap{}
	case "Secret":
		return &corev1.Secret{}
	case "PersistentVolumeClaim":
		return &corev1.PersistentVolumeClaim{}
	case Node:
		return &corev1.Node{}
	}
	return &metav1.PartialObjectMetadata{}
}

// Name is how kubectl names an object with -o name: deployment.apps/web, pod/web.
func (i Item) Name() string {
	var t metav1.TypeMeta
	_ = json.Unmarshal(i.Raw, &t) // it was read before
	kind := strings.ToLower(i.Kind)
	if group, _, ok := strings.Cut(t.APIVersion, "/"); ok {
		kind += "." + group
	}
	return kind + "/" + i.Object.GetName()
}

// Owns reports whether a pod belongs to an object: it was made for it, or the selector of a Service selects it.
func Owns(kind string, o metav1.Object, pod *corev1.Pod) bool {
	if pod.Namespace != o.GetNamespace() {
		return false
	}
	if s, ok := o.(*corev1.Service); ok {
		return len(s.Spec.Selector) > 0 && selects(s.Spec.Selector, pod.Labels)
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == kind && owner.Name == o.GetName()
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
