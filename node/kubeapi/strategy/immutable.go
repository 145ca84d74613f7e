package strategy

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/kubeapi/kinds"
)

// immutable returns errors for changes to fields that are immutable in Kubernetes. Pods may be changed: monopod replaces their containers, unless PodUpdate refuses it.
func immutable(old, now kinds.Object) field.ErrorList {
	spec := field.NewPath("spec")
	same := func(path *field.Path, a, b any) field.ErrorList {
		return apivalidation.ValidateImmutableField(b, a, path)
	}
	switch o := old.(type) {
	case *appsv1.Deployment:
		return same(spec.Child("selector"), o.Spec.Selector, now.(*appsv1.Deployment).Spec.Selector)
	case *appsv1.ReplicaSet:
		return same(spec.Child("selector"), o.Spec.Selector, now.(*appsv1.ReplicaSet).Spec.Selector)
	case *appsv1.DaemonSet:
		return same(spec.Child("selector"), o.Spec.Selector, now.(*appsv1.DaemonSet).Spec.Selector)
	case *appsv1.StatefulSet:
		return immutableStatefulSet(spec, &o.Spec, &now.(*appsv1.StatefulSet).Spec)
	case *batchv1.Job:
		return immutableJob(spec, o, now.(*batchv1.Job))
	case *corev1.Service:
		return immutableService(spec, &o.Spec, &now.(*corev1.Service).Spec)
	case *corev1.PersistentVolumeClaim:
		return immutableClaim(spec, o, now.(*corev1.PersistentVolumeClaim))
	case *corev1.PersistentVolume:
		n := now.(*corev1.PersistentVolume)
		var errs field.ErrorList
		if !equality.Semantic.DeepEqual(o.Spec.PersistentVolumeSource, n.Spec.PersistentVolumeSource) {
			errs = append(errs, field.Forbidden(spec.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
		}
		return append(errs, same(field.NewPath("volumeMode"), o.Spec.VolumeMode, n.Spec.VolumeMode)...)
	case *corev1.ConfigMap:
		n := now.(*corev1.ConfigMap)
		return immutableData(o.Immutable, n.Immutable, map[string]bool{"data": reflect.DeepEqual(o.Data, n.Data), "binaryData": reflect.DeepEqual(o.BinaryData, n.BinaryData)})
	case *corev1.Secret:
		n := now.(*corev1.Secret)
		return append(same(field.NewPath("type"), o.Type, n.Type), immutableData(o.Immutable, n.Immutable, map[string]bool{"data": reflect.DeepEqual(o.Data, n.Data)})...)
	case *storagev1.StorageClass:
		n := now.(*storagev1.StorageClass)
		errs := same(field.NewPath("parameters"), o.Parameters, n.Parameters)
		errs = append(errs, same(field.NewPath("provisioner"), o.Provisioner, n.Provisioner)...)
		errs = append(errs, same(field.NewPath("reclaimPolicy"), o.ReclaimPolicy, n.ReclaimPolicy)...)
		return append(errs, same(field.NewPath("volumeBindingMode"), o.VolumeBindingMode, n.VolumeBindingMode)...)
	case *schedulingv1.PriorityClass:
		n := now.(*schedulingv1.PriorityClass)
		errs := same(field.NewPath("preemptionPolicy"), o.PreemptionPolicy, n.PreemptionPolicy)
		if o.Value != n.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		return errs
	case *nodev1.RuntimeClass:
		return same(field.NewPath("handler"), o.Handler, now.(*nodev1.RuntimeClass).Handler)
	case *networkingv1.IngressClass:
		return same(spec.Child("controller"), o.Spec.Controller, now.(*networkingv1.IngressClass).Spec.Controller)
	case *rbacv1.RoleBinding:
		return same(field.NewPath("roleRef"), o.RoleRef, now.(*rbacv1.RoleBinding).RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return same(field.NewPath("roleRef"), o.RoleRef, now.(*rbacv1.ClusterRoleBinding).RoleRef)
	}
	return nil
}

// immutableData checks ConfigMaps and Secrets: was and is are the values of immutable, same says which fields are unchanged.
func immutableData(was, is *bool, same map[string]bool) (errs field.ErrorList) {
	if was == nil || !*was {
		return nil
	}
	const text = "field is immutable when `immutable` is set"
	if is == nil || !*is {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), text))
	}
	for name, equal := range same {
		if !equal {
			errs = append(errs, field.Forbidden(field.NewPath(name), text))
		}
	}
	return errs
}

func immutableStatefulSet(spec *field.Path, old, now *appsv1.StatefulSetSpec) (errs field.ErrorList) {
	for _, f := range []struct {
		name    string
		is, was any
	}{
		{"selector", now.Selector, old.Selector},
		{"volumeClaimTemplates", now.VolumeClaimTemplates, old.VolumeClaimTemplates},
		{"serviceName", now.ServiceName, old.ServiceName},
		{"podManagementPolicy", now.PodManagementPolicy, old.PodManagementPolicy},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.is, f.was, spec.Child(f.name))...)
	}
	return errs
}

// immutableJob allows changing the completions of an Indexed Job together with its parallelism, and the scheduling fields and resources of
// a suspended Job.
func immutableJob(spec *field.Path, old, now *batchv1.Job) field.ErrorList {
	var errs field.ErrorList
	same := func(name string, a, b any) {
		errs = append(errs, apivalidation.ValidateImmutableField(b, a, spec.Child(name))...)
	}
	o, n := &old.Spec, &now.Spec
	indexed := n.CompletionMode != nil && *n.CompletionMode == batchv1.IndexedCompletion
	switch {
	case !indexed:
		same("completions", o.Completions, n.Completions)
	case equality.Semantic.DeepEqual(o.Completions, n.Completions), n.Completions == nil:
	case n.Parallelism == nil || *n.Completions != *n.Parallelism:
		errs = append(errs, field.Invalid(spec.Child("completions"), *n.Completions, "can only be modified in tandem with spec.parallelism"))
	}
	same("selector", o.Selector, n.Selector)
	same("completionMode", o.CompletionMode, n.CompletionMode)
	same("managedBy", o.ManagedBy, n.ManagedBy)
	if o.Suspend == nil || !*o.Suspend || old.Status.Active > 0 {
		same("template", o.Template, n.Template)
		return errs
	}
	rest, t := o.Template.Spec.DeepCopy(), &n.Template.Spec
	rest.NodeSelector, rest.Tolerations, rest.SchedulingGates, rest.Affinity = t.NodeSelector, t.Tolerations, t.SchedulingGates, t.Affinity
	resources(rest.Containers, t.Containers)
	resources(rest.InitContainers, t.InitContainers)
	return append(errs, apivalidation.ValidateImmutableField(*t, *rest, spec.Child("template", "spec"))...)
}

// resources copies resources between containers with the same index and name.
func resources(to, from []corev1.Container) {
	for i := range to {
		if len(to) == len(from) && to[i].Name == from[i].Name {
			to[i].Resources = from[i].Resources
		}
	}
}

// immutableClaim allows a claim to grow and to be bound.
func immutableClaim(spec *field.Path, old, now *corev1.PersistentVolumeClaim) (errs field.ErrorList) {
	rest := *now.Spec.DeepCopy()
	size, was := rest.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if old.Spec.VolumeName == "" {
		rest.VolumeName = ""
	}
	if old.Spec.StorageClassName == nil {
		rest.StorageClassName = nil
	}
	if old.Status.Phase == corev1.ClaimBound {
		rest.Resources.Requests, rest.VolumeAttributesClassName = old.Spec.Resources.Requests, old.Spec.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(&rest, &old.Spec) {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	have := old.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(was) < 0 && size.Cmp(have) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	return append(errs, apivalidation.ValidateImmutableField(now.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
}
