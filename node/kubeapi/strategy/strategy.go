// Package strategy decides the outcome of creates, updates and deletes: server-set metadata, defaults, conflicts, finalizers, dependents,
// and the fields that subresources may change.
//
// It must not know where objects come from, nor store them; clock, names and uids are passed in. Errors are those of kube-apiserver, as
// *apierrors.StatusError. Functions modify only objects that their comments name.
//
// Goroutines: none.
package strategy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/node/kubeapi/kinds"
)

// NewMetadata holds the values that the server adds to a new object.
type NewMetadata struct {
	// Namespace is the namespace in the path.
	Namespace string
	Now       time.Time
	UID       types.UID
	// Suffix is appended to generateName, 5 characters.
	Suffix string
}

// Create turns an object sent by a client into a new object. o is modified.
func Create(k *kinds.Kind, o kinds.Object, g NewMetadata) error {
	if err := sameNamespace(k, o, g.Namespace); err != nil {
		return err
	}
	if o.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if pod, ok := o.(*corev1.Pod); ok && len(pod.Spec.EphemeralContainers) > 0 {
		return invalid(k, o.GetName(), field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "cannot be set on create"))
	}
	if o.GetName() == "" {
		if o.GetGenerateName() == "" {
			return invalid(k, "", field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
		}
		o.SetName(generated(o.GetGenerateName(), g.Suffix))
	}
	o.SetUID(g.UID)
	o.SetCreationTimestamp(metav1.NewTime(g.Now.Truncate(time.Second)))
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetSelfLink("")
	o.SetGeneration(0)
	if hasGeneration(k) {
		o.SetGeneration(1)
	}
	copyStatus(k, o, k.New())
	Default(k, o)
	if pod, ok := o.(*corev1.Pod); ok {
		defaults.PodLimits(&pod.Spec)
	}
	return validate(k, o)
}

// Pending sets the status of a new pod in the response to a dry run. The status of a stored pod is computed.
func Pending(o kinds.Object) {
	if pod, ok := o.(*corev1.Pod); ok {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: manifests.QOSClass(pod)}
	}
}

// maxGenerated is the length to which generateName is truncated, so that names have at most 63 characters.
const maxGenerated = 63 - 5

func generated(base, suffix string) string {
	if len(base) > maxGenerated {
		base = strings.ToValidUTF8(base[:maxGenerated], "") // the cut may split a character
	}
	return base + suffix
}

// Exists returns the error for creating an existing object. generated reports whether the server generated its name.
func Exists(k *kinds.Kind, there kinds.Object, generated bool) error {
	if generated {
		return apierrors.NewGenerateNameConflict(k.Resource().GroupResource(), there.GetName(), 1)
	}
	err := apierrors.NewAlreadyExists(k.Resource().GroupResource(), there.GetName())
	if there.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// CheckTerminating checks an update, with defaults, of an object that is only terminating: it is no longer stored, and a write would recreate it.
// Labels and annotations of a pod may change until it is gone.
func CheckTerminating(k *kinds.Kind, old, now kinds.Object) error {
	if after, ok := now.(*corev1.Pod); ok {
		before := old.DeepCopyObject().(kinds.Object)
		Default(k, before)
		if equality.Semantic.DeepEqual(before.(*corev1.Pod).Spec, after.Spec) {
			return nil
		}
	}
	return apierrors.NewForbidden(k.Resource().GroupResource(), old.GetName(), errors.New("it is being deleted; recreate it once it is gone"))
}

// errModified has kube-apiserver's text.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// Update turns an object sent by a client into the replacement of old. now is modified, old is not. The status subresource changes only the
// status; all others preserve it.
func Update(k *kinds.Kind, subresource string, old, now kinds.Object) error {
	if err := sameNamespace(k, now, old.GetNamespace()); err != nil {
		return err
	}
	if now.GetName() == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", old.GetName()))
	}
	if now.GetName() != old.GetName() {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", now.GetName(), old.GetName()))
	}
	if err := Current(k, old, now); err != nil {
		return err
	}
	keepMetadata(old, now)
	if subresource == "status" {
		copySpec(now, old)
	} else {
		copyStatus(k, now, old)
	}
	Default(k, now)
	keepDecided(old, now)
	restart(old, now)
	if pod, ok := now.(*corev1.Pod); ok && subresource != "ephemeralcontainers" {
		if err := sameEphemeral(k, old.(*corev1.Pod), pod); err != nil {
			return err
		}
	}
	if hasGeneration(k) && (!sameSpec(old, now) || countsAnnotations(old, now)) {
		now.SetGeneration(old.GetGeneration() + 1)
	}
	return validateUpdate(k, old, now)
}

// keepDecided preserves values that were set when the object was created, if a client does not send them.
func keepDecided(old, now kinds.Object) {
	switch o := old.(type) {
	case *corev1.Service:
		n := now.(*corev1.Service)
		keepAssigned(&o.Spec, &n.Spec)
		dropAssigned(&o.Spec, &n.Spec)
	case *corev1.Pod:
		keepAdmitted(&o.Spec, &now.(*corev1.Pod).Spec)
	}
}

// Current checks the resourceVersion and the uid sent by a client, if any, against the current object.
func Current(k *kinds.Kind, old, now kinds.Object) error {
	resource := k.Resource().GroupResource()
	if uid := now.GetUID(); uid != "" && uid != old.GetUID() {
		return apierrors.NewConflict(resource, old.GetName(), fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())) //nolint:staticcheck // kube-apiserver's text
	}
	if version := now.GetResourceVersion(); version != "" && version != "0" && version != old.GetResourceVersion() {
		return apierrors.NewConflict(resource, old.GetName(), errModified)
	}
	return nil
}

// SameUID checks the uid that a patch set: kube-apiserver reports a different one as an invalid change, not as a conflict.
func SameUID(k *kinds.Kind, old, now kinds.Object) error {
	if uid := now.GetUID(); uid != "" && uid != old.GetUID() {
		return invalid(k, old.GetName(), field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"))
	}
	return nil
}

// Applied returns an object that an apply patch creates. It has no uid, and its resourceVersion is ignored: that of a missing object.
func Applied(k *kinds.Kind, name string, o kinds.Object) (kinds.Object, error) {
	if uid := o.GetUID(); uid != "" {
		return nil, apierrors.NewConflict(k.Resource().GroupResource(), name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	o.SetResourceVersion("")
	return o, nil
}

// keepMetadata preserves server-set metadata.
func keepMetadata(old, now kinds.Object) {
	now.SetUID(old.GetUID())
	now.SetCreationTimestamp(old.GetCreationTimestamp())
	now.SetDeletionTimestamp(old.GetDeletionTimestamp())
	now.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	now.SetGeneration(old.GetGeneration())
	now.SetResourceVersion(old.GetResourceVersion())
	now.SetGenerateName(old.GetGenerateName())
	now.SetSelfLink("")
}

// Same reports whether two objects are equal, ignoring the times in managedFields and resourceVersion.
func Same(a, b kinds.Object) bool {
	a, b = withoutVersion(a), withoutVersion(b)
	return equality.Semantic.DeepEqual(a, b)
}

func withoutVersion(o kinds.Object) kinds.Object {
	c := o.DeepCopyObject().(kinds.Object)
	c.SetResourceVersion("")
	c.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	entries := c.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	c.SetManagedFields(entries)
	return c
}

func sameNamespace(k *kinds.Kind, o kinds.Object, namespace string) error {
	if !k.Namespaced {
		o.SetNamespace("")
		return nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	if o.GetNamespace() != namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

func invalid(k *kinds.Kind, name string, errs ...*field.Error) error {
	return apierrors.NewInvalid(k.GroupKind(), name, errs)
}

// hasGeneration reports whether objects of a kind have a generation, which counts changes of the spec.
func hasGeneration(k *kinds.Kind) bool {
	switch k.Kind {
	case "Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "PriorityClass",
		"Ingress", "IngressClass", "NetworkPolicy", "PodDisruptionBudget":
		return true
	}
	return false
}

// countsAnnotations reports whether changed annotations are a new generation: those of a Deployment are copied to its ReplicaSets.
func countsAnnotations(old, now kinds.Object) bool {
	_, ok := old.(*appsv1.Deployment)
	return ok && !equality.Semantic.DeepEqual(old.GetAnnotations(), now.GetAnnotations())
}

// NamespaceMissing returns the error for a create in a namespace that does not exist or is being deleted.
func NamespaceMissing(name string) error {
	return apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

// NamespaceEnds returns the error for a create in a namespace that is being deleted.
func NamespaceEnds(k *kinds.Kind, name, namespace string) error {
	err := apierrors.NewForbidden(k.Resource().GroupResource(), name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", namespace), Field: "metadata.namespace",
	})
	return err
}

// Elsewhere is the answer to a write of an object that is defined in a file, behind a URL or by a workload, or made by monopod.
func Elsewhere(k *kinds.Kind, name, place string) error {
	if strings.HasPrefix(place, "monopod, ") {
		return apierrors.NewForbidden(k.Resource().GroupResource(), name, fmt.Errorf("it is defined by %s; it cannot be changed", place))
	}
	return apierrors.NewForbidden(k.Resource().GroupResource(), name, fmt.Errorf("it is defined in %s; change it there", place))
}

// Manager returns the field manager of a request: the given one, or else the first word of its User-Agent.
func Manager(given, userAgent string) string {
	if given != "" {
		return given
	}
	first, _, _ := strings.Cut(userAgent, "/")
	first = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, first)
	if first == "" {
		first = "unknown"
	}
	return first[:min(len(first), 128)]
}
