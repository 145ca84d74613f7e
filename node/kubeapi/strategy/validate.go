package strategy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/strategy/podupdate"
)

// validate checks a new object: metadata that manifests do not have, and kinds that manifests cannot define. Manifests are validated when
// they are stored.
func validate(k *kinds.Kind, o kinds.Object) error {
	return asError(k, o, append(metadata(o), own(k, o)...))
}

// validateUpdate checks an object that replaces another. Problems that existed before are tolerated.
func validateUpdate(k *kinds.Kind, old, now kinds.Object) error {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	if before := metadata(old); len(before) == 0 {
		errs = metadata(now)
	}
	if old.GetDeletionTimestamp() != nil {
		errs = append(errs, apivalidation.ValidateNoNewFinalizers(now.GetFinalizers(), old.GetFinalizers(), path.Child("finalizers"))...)
	}
	errs = append(errs, immutable(old, now)...)
	if len(own(k, old)) == 0 {
		errs = append(errs, own(k, now)...)
	}
	return asError(k, now, errs)
}

func asError(k *kinds.Kind, o kinds.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return invalid(k, o.GetName(), errs...)
}

// metadata checks metadata that manifests do not have.
func metadata(o kinds.Object) field.ErrorList {
	path := field.NewPath("metadata")
	errs := apivalidation.ValidateFinalizers(o.GetFinalizers(), path.Child("finalizers"))
	for i, name := range o.GetFinalizers() {
		switch {
		case strings.Contains(name, "/"), name == metav1.FinalizerOrphanDependents, name == metav1.FinalizerDeleteDependents, name == string(corev1.FinalizerKubernetes):
		default:
			errs = append(errs, field.Invalid(path.Child("finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return append(errs, apivalidation.ValidateOwnerReferences(o.GetOwnerReferences(), path.Child("ownerReferences"))...)
}

// roleName returns the problems of a name that must be one segment of a path. It becomes the name of a file, too.
func roleName(name string, _ bool) []string {
	problems := content.IsPathSegmentName(name)
	if strings.ContainsFunc(name, unicode.IsControl) {
		problems = append(problems, "may not contain control characters")
	}
	if !utf8.ValidString(name) {
		problems = append(problems, "must be valid UTF-8")
	}
	return problems
}

// own checks the kinds that manifests cannot define.
func own(k *kinds.Kind, o kinds.Object) (errs field.ErrorList) {
	name := apivalidation.NameIsDNSSubdomain
	switch o := o.(type) {
	case *corev1.Namespace:
		name = apivalidation.ValidateNamespaceName
	case *corev1.Node:
	case *coordinationv1.Lease:
		if s := o.Spec.LeaseDurationSeconds; s != nil && *s <= 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *s, "must be greater than 0"))
		}
	case *corev1.Event:
		if n := o.InvolvedObject.Namespace; n != "" && n != o.Namespace {
			errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), n, "does not match event.namespace"))
		}
	default:
		if k.Kind != "ServiceAccount" && k.Kind != "Event" && !k.Inert {
			return nil
		}
		if k.Group == rbacv1.GroupName {
			name = roleName
		}
	}
	path := field.NewPath("metadata")
	for _, problem := range name(o.GetName(), false) {
		errs = append(errs, field.Invalid(path.Child("name"), o.GetName(), problem))
	}
	errs = append(errs, metav1validation.ValidateLabels(o.GetLabels(), path.Child("labels"))...)
	return append(errs, apivalidation.ValidateAnnotations(o.GetAnnotations(), path.Child("annotations"))...)
}

// PodUpdate returns the error for an update of a pod that Kubernetes forbids (ValidatePodUpdate), although monopod could carry it out. now has
// defaults. Metadata may change.
func PodUpdate(k *kinds.Kind, old, now kinds.Object) error {
	after, ok := now.(*corev1.Pod)
	if !ok {
		return nil
	}
	before := old.DeepCopyObject().(*corev1.Pod)
	Default(k, before)
	if errs := podupdate.Validate(&before.Spec, &after.Spec); len(errs) > 0 {
		return invalid(k, old.GetName(), errs...)
	}
	return nil
}
