package strategy

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/node/kubeapi/kinds"
)

// status returns the status of an object; ok is false for kinds that have none.
func status(o kinds.Object) (v reflect.Value, ok bool) {
	v = reflect.ValueOf(o).Elem().FieldByName("Status")
	return v, v.IsValid()
}

// copyStatus copies the status.
func copyStatus(_ *kinds.Kind, to, from kinds.Object) {
	if v, ok := status(to); ok {
		source, _ := status(from.DeepCopyObject().(kinds.Object))
		v.Set(source)
	}
}

// copySpec copies everything but status and the metadata that a write of status may change, which is none.
func copySpec(to, from kinds.Object) {
	source := reflect.ValueOf(from.DeepCopyObject()).Elem()
	target := reflect.ValueOf(to).Elem()
	for i := range target.NumField() {
		switch target.Type().Field(i).Name {
		case "Status", "TypeMeta":
			continue
		}
		target.Field(i).Set(source.Field(i))
	}
}

// sameSpec reports whether everything but metadata and status is equal.
func sameSpec(a, b kinds.Object) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		switch va.Type().Field(i).Name {
		case "Status", "TypeMeta", "ObjectMeta":
			continue
		}
		if !equality.Semantic.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// SameStatus reports whether the status of two objects is equal.
func SameStatus(a, b kinds.Object) bool {
	va, ok := status(a)
	if !ok {
		return true
	}
	vb, _ := status(b)
	return equality.Semantic.DeepEqual(va.Interface(), vb.Interface())
}

// GateConditions turns the status sent by a client into the stored one: only the conditions of the pod's readiness gates are taken,
// everything else comes from old. now is modified.
func GateConditions(old, now *corev1.Pod) {
	sent := now.Status.Conditions
	now.Status = *old.Status.DeepCopy()
	for _, gate := range old.Spec.ReadinessGates {
		c := conditionOf(sent, gate.ConditionType)
		at := conditionOf(now.Status.Conditions, gate.ConditionType)
		switch {
		case c != nil && at != nil:
			*at = *c
		case c != nil:
			now.Status.Conditions = append(now.Status.Conditions, *c)
		case at != nil:
			now.Status.Conditions = without(now.Status.Conditions, gate.ConditionType)
		}
	}
}

func conditionOf(list []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

func without(list []corev1.PodCondition, kind corev1.PodConditionType) []corev1.PodCondition {
	var rest []corev1.PodCondition
	for _, c := range list {
		if c.Type != kind {
			rest = append(rest, c)
		}
	}
	return rest
}
