// Package manifesttest is test support: it turns text into API objects without the checks of manifests/decode.
//
// Only tests import it.
package manifesttest

import (
	"os"
	"path/filepath"
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

// Files returns the contents of the files of a directory, by name.
func Files(tb testing.TB, dir string) map[string][]byte {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name())) //nolint:forbidigo // tests read files
		if err != nil {
			tb.Fatal(err)
		}
		all[e.Name()] = data
	}
	if len(all) == 0 {
		tb.Fatalf("%s is empty", dir)
	}
	return all
}
