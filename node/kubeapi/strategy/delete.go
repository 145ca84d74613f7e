package strategy

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/kubeapi/kinds"
)

// Deletion is the outcome of a delete request.
type Deletion struct {
	// Keep is the object to store with its deletionTimestamp until its last finalizer is removed; if nil, the object is removed now.
	Keep kinds.Object
	// Answer is the object to return to the client, for kinds with graceful deletion; nil returns a Status.
	Answer kinds.Object
	// GraceSeconds is the grace period of a pod; nil for other kinds.
	GraceSeconds *int64
	// DeletionTimestamp is the deletionTimestamp.
	DeletionTimestamp *metav1.Time
	// AlreadyDeleting reports that the object is already being deleted, and nothing changes.
	AlreadyDeleting bool
}

// Delete decides the outcome of a delete. old is not modified.
func Delete(k *kinds.Kind, old kinds.Object, o *metav1.DeleteOptions, now time.Time) (Deletion, error) {
	if err := preconditions(k, old, o.Preconditions); err != nil {
		return Deletion{}, err
	}
	if err := CheckDeleteOptions(o); err != nil {
		return Deletion{}, err
	}
	var d Deletion
	gone := old.DeepCopyObject().(kinds.Object)
	if pod, ok := gone.(*corev1.Pod); ok {
		seconds := Grace(pod, o.GracePeriodSeconds)
		d.AlreadyDeleting = shortenGracePeriod(pod, &seconds, now)
		d.GraceSeconds, d.Answer = &seconds, gone
	} else if gone.GetDeletionTimestamp() == nil {
		stamp(gone, now, 0)
	} else {
		d.AlreadyDeleting = true
	}
	d.DeletionTimestamp = gone.GetDeletionTimestamp()
	if len(gone.GetFinalizers()) > 0 {
		d.Keep, d.Answer = gone, gone
	} else if d.GraceSeconds == nil {
		d.AlreadyDeleting = false // without finalizers it is removed now, whatever its state was
		if answersObject(k) {
			d.Answer = old
		}
	}
	return d, nil
}

// answersObject reports whether a delete returns the deleted object, as Kubernetes does for some kinds.
func answersObject(k *kinds.Kind) bool {
	switch k.Kind {
	case "PersistentVolume", "PersistentVolumeClaim", "ResourceQuota", "Service", "ServiceAccount", "StorageClass":
		return true
	}
	return false
}

// Namespace returns the Namespace being deleted, in phase Terminating; ok is false for other kinds.
func (d Deletion) Namespace(old kinds.Object) (n *corev1.Namespace, ok bool) {
	if n, ok = old.(*corev1.Namespace); !ok {
		return nil, false
	}
	n = n.DeepCopy()
	if n.DeletionTimestamp == nil {
		n.DeletionTimestamp = d.DeletionTimestamp
	}
	n.Status.Phase = corev1.NamespaceTerminating
	return n, true
}

// Grace returns the grace period of a pod in seconds: 0 if it has already terminated.
func Grace(pod *corev1.Pod, given *int64) int64 {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	if given != nil {
		seconds = *given
	}
	switch {
	case seconds < 0:
		seconds = 1
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		seconds = 0
	}
	return seconds
}

// shortenGracePeriod sets the deletionTimestamp of a pod, or an earlier one: the grace period of a terminating pod may only be shortened. again
// reports that nothing changes.
func shortenGracePeriod(pod *corev1.Pod, seconds *int64, now time.Time) (again bool) {
	old := pod.DeletionGracePeriodSeconds
	if pod.DeletionTimestamp == nil || old == nil {
		stamp(pod, now, *seconds)
		return false
	}
	if *seconds >= *old {
		*seconds = *old
		return true
	}
	asked := pod.DeletionTimestamp.Add(-time.Duration(*old) * time.Second)
	end := asked.Add(time.Duration(*seconds) * time.Second)
	if end.Before(now) {
		end = now
		*seconds = min(*seconds, 1)
	}
	pod.DeletionTimestamp = &metav1.Time{Time: end.Truncate(time.Second)}
	pod.DeletionGracePeriodSeconds = new(*seconds)
	return false
}

func stamp(o kinds.Object, now time.Time, seconds int64) {
	o.SetDeletionTimestamp(&metav1.Time{Time: now.Add(time.Duration(seconds) * time.Second).Truncate(time.Second)})
	o.SetDeletionGracePeriodSeconds(&seconds)
	if o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
}

func preconditions(k *kinds.Kind, old kinds.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	resource := k.Resource().GroupResource()
	if p.UID != nil && *p.UID != old.GetUID() {
		return apierrors.NewConflict(resource, old.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, old.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
		return apierrors.NewConflict(resource, old.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, old.GetResourceVersion()))
	}
	return nil
}

// CheckDeleteOptions rejects unsupported options.
func CheckDeleteOptions(o *metav1.DeleteOptions) error {
	refuse := func(errs ...*field.Error) error {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	policy := field.NewPath("propagationPolicy")
	if o.PropagationPolicy != nil && o.OrphanDependents != nil { //nolint:staticcheck // clients may still send it
		return refuse(field.Invalid(policy, *o.PropagationPolicy, "orphanDependents and deletionPropagation cannot be both set"))
	}
	if o.OrphanDependents != nil && *o.OrphanDependents { //nolint:staticcheck // clients may still send it
		return refuse(field.Invalid(field.NewPath("orphanDependents"), true, "orphaning dependents is not supported; use propagationPolicy Background"))
	}
	if p := o.PropagationPolicy; p != nil {
		switch *p {
		case metav1.DeletePropagationBackground, metav1.DeletePropagationForeground:
		default:
			return refuse(field.NotSupported(policy, *p, []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}))
		}
	}
	for _, run := range o.DryRun {
		if run != metav1.DryRunAll {
			return refuse(field.NotSupported(field.NewPath("dryRun"), o.DryRun, []string{metav1.DryRunAll}))
		}
	}
	return nil
}

// Dependents returns those of all that belong to owners, directly or through others: of the owners that they name at least one goes, and none
// remains. Exists reports whether there is an owner, which goes or not.
func Dependents(owners []kinds.Object, all []kinds.Object, exists func(metav1.OwnerReference) bool) []kinds.Object {
	going := map[types.UID]bool{}
	for _, o := range owners {
		going[o.GetUID()] = true
	}
	delete(going, "")
	var found []kinds.Object
	taken := map[kinds.Object]bool{}
	for grown := true; grown; {
		grown = false
		for _, o := range all {
			if taken[o] || going[o.GetUID()] || !ownedBy(o, going, exists) {
				continue
			}
			taken[o], grown = true, true
			found = append(found, o)
			if uid := o.GetUID(); uid != "" {
				going[uid] = true
			}
		}
	}
	return found
}

func ownedBy(o kinds.Object, going map[types.UID]bool, exists func(metav1.OwnerReference) bool) bool {
	goes := false
	for _, r := range o.GetOwnerReferences() {
		switch {
		case going[r.UID]:
			goes = true
		case exists(r):
			return false
		}
	}
	return goes
}

// Deleted returns the Status for an object that is deleted immediately.
func Deleted(k *kinds.Kind, name string, uid types.UID) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: name, Group: k.Group, Kind: k.Plural, UID: uid},
	}
}
