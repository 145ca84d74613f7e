package decode

import (
	"fmt"
	"testing"

	"monopod/manifests/manifesttest"
	"monopod/manifests/podhash"
)

// BenchmarkLoad loads manifests of the size that people write; 1,000 of them are to take less than 2 s.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"minimal.yaml", "enforced.yaml"} {
		data := manifesttest.Files(b, "testdata/valid")[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Pods(name, data, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoadRefused is the way with positions and hints.
func BenchmarkLoadRefused(b *testing.B) {
	data := manifesttest.Files(b, "testdata/invalid")["refused.yaml"]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Pods("f", data, Options{}); err == nil {
			b.Fatal("accepted")
		}
	}
}

// BenchmarkHashes hashes all of a pod, as a worker does for each new manifest.
func BenchmarkHashes(b *testing.B) {
	pods, err := Pods("f", manifesttest.Files(b, "testdata/valid")["enforced.yaml"], Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		podhash.Pod(pods[0].Object)
		podhash.Sandbox(pods[0].Object)
		podhash.Container(pods[0].Object, "main")
	}
}

// BenchmarkLoadList loads one input of 1,000 pods.
func BenchmarkLoadList(b *testing.B) {
	var data []byte
	for i := range 1000 {
		data = fmt.Appendf(data, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {containers: [{name: c, image: app}]}\n", i)
	}
	for b.Loop() {
		if pods, err := Pods("f", data, Options{}); err != nil || len(pods) != 1000 {
			b.Fatal(len(pods), err)
		}
	}
}
