// Package podupdate decides which updates of pods Kubernetes allows.
//
// It must not know what monopod can carry out.
package podupdate

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// updatable are the fields that Kubernetes lets updates of pods change, in its words.
const updatable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// Validate returns an error for each change of a pod's spec that Kubernetes forbids (ValidatePodUpdate). Both have defaults.
func Validate(old, now *corev1.PodSpec) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	for _, l := range []struct {
		name     string
		old, now []corev1.Container
	}{{"containers", old.Containers, now.Containers}, {"initContainers", old.InitContainers, now.InitContainers}} {
		if len(l.old) != len(l.now) {
			return field.ErrorList{field.Forbidden(spec.Child(l.name), "pod updates may not add or remove containers")}
		}
	}
	errs = append(errs, deadlineUpdate(spec.Child("activeDeadlineSeconds"), old.ActiveDeadlineSeconds, now.ActiveDeadlineSeconds)...)
	if slices.ContainsFunc(old.Tolerations, func(t corev1.Toleration) bool { return !tolerates(now.Tolerations, t) }) {
		errs = append(errs, field.Forbidden(spec.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"))
	}
	for i, g := range now.SchedulingGates {
		if !slices.Contains(old.SchedulingGates, g) {
			errs = append(errs, field.Forbidden(spec.Child("schedulingGates").Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name)))
		}
	}
	rest := now.DeepCopy()
	rest.ActiveDeadlineSeconds, rest.Tolerations, rest.SchedulingGates = old.ActiveDeadlineSeconds, old.Tolerations, old.SchedulingGates
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.InitContainers[i].Image
	}
	if was, is := old.TerminationGracePeriodSeconds, rest.TerminationGracePeriodSeconds; was != nil && *was < 0 && is != nil && *is == 1 {
		rest.TerminationGracePeriodSeconds = was
	}
	if changed := changedFields(old, rest); len(changed) > 0 {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than "+updatable+"; changed: "+strings.Join(changed, ", ")))
	}
	return errs
}

// deadlineUpdate allows a deadline to be set, and to become shorter.
func deadlineUpdate(path *field.Path, old, now *int64) field.ErrorList {
	switch {
	case now == nil && old != nil:
		return field.ErrorList{field.Invalid(path, now, "must not update from a positive integer to nil value")}
	case now == nil:
		return nil
	case *now < 0 || *now > math.MaxInt32:
		return field.ErrorList{field.Invalid(path, *now, fmt.Sprintf("must be between 0 and %d, inclusive", math.MaxInt32))}
	case old != nil && *old < *now:
		return field.ErrorList{field.Invalid(path, *now, "must be less than or equal to previous value")}
	}
	return nil
}

// tolerates reports whether a list has a toleration, whose seconds may differ.
func tolerates(list []corev1.Toleration, t corev1.Toleration) bool {
	return slices.ContainsFunc(list, func(o corev1.Toleration) bool {
		o.TolerationSeconds = t.TolerationSeconds
		return o == t
	})
}

// changedFields returns the paths of the fields that differ. The lists of containers have the same lengths.
func changedFields(old, now *corev1.PodSpec) (changed []string) {
	containers := func(name string, old, now []corev1.Container) {
		for i := range now {
			changed = append(changed, changedIn(fmt.Sprintf("spec.%s[%d].", name, i), &old[i], &now[i])...)
		}
	}
	containers("initContainers", old.InitContainers, now.InitContainers)
	containers("containers", old.Containers, now.Containers)
	return append(changed, changedIn("spec.", old, now, "initContainers", "containers")...)
}

// changedIn returns the JSON names of the fields of two structs that differ, without those in except.
func changedIn(prefix string, old, now any, except ...string) (changed []string) {
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(now).Elem()
	for i := range a.NumField() {
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		if !slices.Contains(except, name) && !equality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			changed = append(changed, prefix+name)
		}
	}
	return changed
}
