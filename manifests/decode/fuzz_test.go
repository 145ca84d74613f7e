package decode

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/manifests/manifesttest"
	"monopod/manifests/podhash"
)

// FuzzLoad feeds bytes to Pods. Whatever they are: no panic, either pods or errors with a position inside the
// input, no document overlooked, and an accepted pod loads again from its own JSON as the same pod.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"valid", "invalid"} {
		for _, data := range manifesttest.Files(f, "testdata/"+dir) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := Pods("fuzz", data, Options{})
		if err != nil {
			if pods != nil {
				t.Fatalf("pods and an error: %v", err)
			}
			checkErrors(t, "fuzz", data, err)
			return
		}
		for _, p := range pods {
			reload(t, p)
		}
	})
}

// reload checks that an accepted pod is complete in itself.
func reload(t *testing.T, p *manifests.Pod) {
	t.Helper()
	text, err := json.Marshal(p.Object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Pods("fuzz", text, Options{})
	if err != nil || len(again) != 1 {
		t.Fatalf("%s does not load: %v", text, err)
	}
	if podhash.Pod(p.Object) != podhash.Pod(again[0].Object) || podhash.Sandbox(p.Object) != podhash.Sandbox(again[0].Object) {
		t.Fatalf("%s loads as something else: %s", text, cmp.Diff(p.Object, again[0].Object))
	}
	for i := range p.Object.Spec.Containers {
		name := p.Object.Spec.Containers[i].Name
		if podhash.Container(p.Object, name) != podhash.Container(again[0].Object, name) {
			t.Fatalf("container %s of %s loads as something else", name, text)
		}
	}
	defaulted := p.Object.DeepCopy()
	if defaults.Pod(defaulted); !cmp.Equal(defaulted, p.Object, cmpopts.EquateEmpty()) {
		t.Fatalf("defaults are not idempotent: %s", cmp.Diff(p.Object, defaulted))
	}
}
