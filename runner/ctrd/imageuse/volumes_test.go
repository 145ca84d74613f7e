package imageuse

import (
	"os"
	"testing"

	"monopod/internal/cause"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
)

// The image of a volume, and not that of the container, is the one that is missing.
func TestAMissingImageOfAVolumeIsNamed(t *testing.T) {
	i, ctx := newImages(t)
	b, err := os.ReadFile("../../../e2e/testdata/cases/c10c-missing-volume-image.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods, err := decode.Pods("f", b, decode.Options{Policy: policy.Policy{Rejects: true}}) // as the Kubernetes API, which accepts any name
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cause.Cause{
		"c10c-never":   {Kind: cause.ImageNeverPull, Image: "example.test/nosuch:1", Volume: "v"},
		"c10c-badname": {Kind: cause.ImageName, Image: "127.0.0.1:1/Bad/NAME:1", Volume: "v"},
		"c10c-pull":    {Kind: cause.RegistryUnreachable, Image: "127.0.0.1:1/team/rules:1", Volume: "v"},
	}
	if len(pods) != len(want) {
		t.Fatalf("%d pods", len(pods))
	}
	for _, p := range pods {
		got := cause.Of(i.EnsureImageVolumes(ctx, p, &p.Object.Spec.Containers[0]))
		if w := want[p.Object.Name]; got.Kind != w.Kind || got.Image != w.Image || got.Volume != w.Volume {
			t.Errorf("%s: %+v, want %+v", p.Object.Name, got, w)
		}
	}
}
