package kinds_test

import (
	"testing"

	"monopod/manifests/kinds"
)

func TestFindKind(t *testing.T) {
	for word, want := range map[string]string{
		"pod": "Pod", "pods": "Pod", "PO": "Pod", "deploy": "Deployment", "deployments": "Deployment", "StorageClass": "StorageClass",
		"storageclasses": "StorageClass", "cm": "ConfigMap", "node": "", "": "",
	} {
		kind, namespaced, ok := kinds.Find(word)
		if kind != want || ok != (want != "") || namespaced != (ok && kind != "StorageClass") {
			t.Errorf("%q: %q %v %v, want %q", word, kind, namespaced, ok, want)
		}
	}
}
