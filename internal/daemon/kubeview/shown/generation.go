package shown

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SameSpec compares the specs of two objects.
func SameSpec(a, b metav1.Object) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	if x.Type() != y.Type() {
		return false
	}
	s, t := x.FieldByName("Spec"), y.FieldByName("Spec")
	return !s.IsValid() || reflect.DeepEqual(s.Interface(), t.Interface())
}

// HasGeneration reports whether objects of a kind have a generation, which counts changes of the spec.
func HasGeneration(o metav1.Object) bool {
	switch o.(type) {
	case *corev1.Service, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim: // Kubernetes sets no generation for them
		return false
	case *schedulingv1.PriorityClass: // it has a generation, but no spec
		return true
	}
	v := reflect.ValueOf(o).Elem().FieldByName("Spec")
	return v.IsValid()
}
