package decode

import (
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/quantity"
	"monopod/manifests/schema"
)

// dropObserved clears what a server or a controller observed about an object. A manifest is desired state; only observations of this
// machine are reported.
func dropObserved(obj metav1.Object, a Author) {
	obj.SetSelfLink("")
	obj.SetResourceVersion("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetManagedFields(nil)
	if a != AuthorAPIServer {
		obj.SetGeneration(0)
	}
	if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
}

// cutStatus removes the status from the JSON of an object whose type has one, and reports whether it did. A status is not
// decoded: a newer server may have written fields into it that are unknown here.
func cutStatus(m map[string]any, t reflect.Type) bool {
	if _, ok := m["status"].(map[string]any); !ok || !schema.HasField(t, "status") {
		return false
	}
	delete(m, "status")
	return true
}

// strictly decodes a pod for what the decoder complains about.
func strictly(m map[string]any) (complaints []error, err error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return quantity.UnmarshalStrict(data, &corev1.Pod{})
}
