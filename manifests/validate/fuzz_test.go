package validate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"monopod/manifests/defaults"
	"monopod/manifests/document"
	"monopod/manifests/fates"
	"monopod/manifests/validate"
)

// FuzzValidate decodes any pod, however wrong, and validates it: no panic, no change to the pod, the same answer
// twice, and fates that look at it without falling over.
func FuzzValidate(f *testing.F) {
	for _, m := range referenceMutants(f, map[string]bool{"full as it is": true, "host as it is": true}) {
		f.Add(m.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var pod corev1.Pod
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &pod) != nil {
			return
		}
		_, _ = fates.Refusals(&pod, document.Item{Source: &document.Source{}})
		defaults.Pod(&pod)
		before := pod.DeepCopy()
		first, second := validate.Pod(&pod), validate.Pod(&pod)
		if len(first) != len(second) {
			t.Fatalf("%v, and then %v", first, second)
		}
		if !cmp.Equal(before, &pod) {
			t.Fatalf("validation changes the pod: %s", cmp.Diff(before, &pod))
		}
	})
}
