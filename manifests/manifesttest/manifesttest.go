// Package manifesttest is test support: it turns text into API objects without the checks of manifests/decode.
//
// Only tests import it.
package manifesttest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Pod decodes a pod strictly, but neither sets defaults nor validates it.
func Pod(tb testing.TB, text string) *corev1.Pod {
	tb.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	var pod corev1.Pod
	if strict, err := kjson.UnmarshalStrict(data, &pod); err != nil || len(strict) > 0 {
		tb.Fatal(err, strict)
	}
	return &pod
}
