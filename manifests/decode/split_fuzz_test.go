package decode

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"monopod/manifests"
	"monopod/manifests/manifesttest"
)

// FuzzCanonical takes accepted inputs apart: each object of them, in its canonical form, is accepted as the same object.
func FuzzCanonical(f *testing.F) {
	for _, data := range manifesttest.Files(f, "testdata/valid") {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, err := All("fuzz", data, Options{})
		if err != nil {
			_, _ = Split("fuzz", data) // it must not panic
			return
		}
		docs, err := Split("fuzz", data)
		if err != nil {
			t.Fatalf("accepted, but it cannot be taken apart: %v", err)
		}
		got := joined(t, docs)
		if diff := cmp.Diff(&manifests.Content{Pods: want.Pods, Objects: want.Objects, Workloads: want.Workloads}, got, cmpopts.IgnoreTypes(manifests.Origin{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
