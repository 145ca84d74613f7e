package strategy

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/node/kubeapi/kinds"
)

// MaxReplicas is the limit of manifests/validate.
const MaxReplicas = 1000

// scaled returns the fields of a workload that scale reads and writes; replicas is nil for kinds without scale.
func scaled(o kinds.Object) (replicas **int32, have int32, selector *metav1.LabelSelector) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.ReplicaSet:
		return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.StatefulSet:
		return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	}
	return nil, 0, nil
}

// ScaleOf returns the scale of a workload.
func ScaleOf(o kinds.Object) (*autoscalingv1.Scale, error) {
	replicas, have, selector := scaled(o)
	if replicas == nil {
		return nil, fmt.Errorf("%T cannot be scaled", o)
	}
	s := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			CreationTimestamp: o.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: have},
	}
	if *replicas != nil {
		s.Spec.Replicas = **replicas
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	s.Status.Selector = parsed.String()
	return s, nil
}

// SetScale returns a copy of a workload with the replicas of a scale. The resourceVersion and uid that the client gave are in the copy, for
// Update to check.
func SetScale(k *kinds.Kind, old kinds.Object, s *autoscalingv1.Scale) (kinds.Object, error) {
	if s.Name != "" && s.Name != old.GetName() || s.Namespace != "" && s.Namespace != old.GetNamespace() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", s.Name, old.GetName()))
	}
	path := field.NewPath("spec", "replicas")
	scale := autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind()
	if s.Spec.Replicas < 0 {
		return nil, apierrors.NewInvalid(scale, old.GetName(), field.ErrorList{field.Invalid(path, s.Spec.Replicas, "must be greater than or equal to 0")})
	}
	if s.Spec.Replicas > MaxReplicas {
		return nil, apierrors.NewInvalid(scale, old.GetName(), field.ErrorList{field.Invalid(path, s.Spec.Replicas, fmt.Sprintf("must be less than or equal to %d", MaxReplicas))})
	}
	now := old.DeepCopyObject().(kinds.Object)
	replicas, _, _ := scaled(now)
	if replicas == nil {
		return nil, fmt.Errorf("%s %s cannot be scaled", k.Kind, old.GetName())
	}
	*replicas = new(s.Spec.Replicas)
	now.SetResourceVersion(s.ResourceVersion)
	now.SetUID(s.UID)
	return now, nil
}

// Resize turns a write of pods/resize into the desired pod, as kube-apiserver does. now keeps only resources and resize policies of the
// request, unless it adds, removes, renames or reorders containers. Then only cpu and memory of containers and of the pod may change, none
// may be removed, and the QoS class stays: all else would recreate the pod. Resources of the pod as a whole are completed, and stay if the
// request has none.
func Resize(k *kinds.Kind, old, now *corev1.Pod) error {
	spec := field.NewPath("spec")
	keepResources(old, now)
	var errs field.ErrorList
	if manifests.QOSClass(old) != manifests.QOSClass(now) {
		errs = append(errs, field.Invalid(spec, now.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	changed := now.Spec.DeepCopy()
	if changed.Resources != nil {
		var was corev1.ResourceRequirements
		if old.Spec.Resources != nil {
			was = *old.Spec.Resources
		}
		errs = append(errs, removed(changed.Resources, &was, spec.Child("resources"), "pod-level resource ")...)
		if keepCPUAndMemory(changed.Resources, &was); old.Spec.Resources == nil && equality.Semantic.DeepEqual(*changed.Resources, was) {
			changed.Resources = nil
		}
	}
	for _, l := range []struct {
		name     string
		now, was []corev1.Container
	}{{"initContainers", changed.InitContainers, old.Spec.InitContainers}, {"containers", changed.Containers, old.Spec.Containers}} {
		for i := range min(len(l.now), len(l.was)) {
			now, was := &l.now[i].Resources, &l.was[i].Resources
			errs = append(errs, removed(now, was, spec.Child(l.name).Index(i).Child("resources"), "resource ")...)
			keepCPUAndMemory(now, was)
		}
	}
	if !equality.Semantic.DeepEqual(changed, &old.Spec) {
		errs = append(errs, field.Forbidden(spec, "only cpu and memory resources are mutable"))
	}
	if len(errs) > 0 {
		return invalid(k, old.Name, errs...)
	}
	return nil
}

// removed returns an error for requests and for limits that have lost a resource.
func removed(now, was *corev1.ResourceRequirements, path *field.Path, what string) (errs field.ErrorList) {
	for _, l := range []struct {
		name     string
		now, was corev1.ResourceList
	}{{"requests", now.Requests, was.Requests}, {"limits", now.Limits, was.Limits}} {
		for name := range l.was {
			if _, ok := l.now[name]; !ok {
				errs = append(errs, field.Forbidden(path.Child(l.name), what+l.name+" cannot be removed"))
				break
			}
		}
	}
	return errs
}

// keepCPUAndMemory replaces cpu and memory by their earlier values, so that other differences remain.
func keepCPUAndMemory(now, was *corev1.ResourceRequirements) {
	for _, l := range []struct {
		now *corev1.ResourceList
		was corev1.ResourceList
	}{{&now.Requests, was.Requests}, {&now.Limits, was.Limits}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			delete(*l.now, name)
			if q, ok := l.was[name]; ok {
				if *l.now == nil {
					*l.now = corev1.ResourceList{}
				}
				(*l.now)[name] = q
			}
		}
	}
}

// keepResources removes what a resize ignores from now. It changes nothing if the containers are not those of old.
func keepResources(old, now *corev1.Pod) {
	wanted := old.Spec.DeepCopy()
	if now.Spec.Resources != nil { // else the client does not know them
		wanted.Resources = now.Spec.Resources.DeepCopy()
	}
	if resize(wanted.Containers, now.Spec.Containers) && resize(wanted.InitContainers, now.Spec.InitContainers) {
		now.Spec = *wanted
		defaults.PodLimits(&now.Spec)
		now.Labels, now.Annotations, now.Finalizers, now.OwnerReferences = old.Labels, old.Annotations, old.Finalizers, old.OwnerReferences
	}
}

// resize copies what a resize changes from one list of containers to another; it returns false if they are not of the same containers.
func resize(into, from []corev1.Container) bool {
	if len(into) != len(from) {
		return false
	}
	for i := range from {
		if into[i].Name != from[i].Name {
			return false
		}
		into[i].Resources, into[i].ResizePolicy = from[i].Resources, from[i].ResizePolicy
	}
	return true
}

// Bind checks a binding of a pod to a node: all pods of this API are on this node.
func Bind(k *kinds.Kind, pod *corev1.Pod, b *corev1.Binding, node string) error {
	resource := k.Resource().GroupResource()
	resource.Resource += "/binding"
	switch {
	case b.Name != "" && b.Name != pod.Name:
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	case b.Target.Kind != "" && b.Target.Kind != "Node" && b.Target.Kind != "Minion":
		return invalid(k, b.Name, field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	case b.Target.Name == "":
		return invalid(k, b.Name, field.Required(field.NewPath("target", "name"), ""))
	case b.Target.Name != node:
		return apierrors.NewConflict(resource, pod.Name, fmt.Errorf("pod %s is already assigned to node %q", pod.Name, node))
	}
	return nil
}
