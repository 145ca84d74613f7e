package needs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monopod/internal/model"
	"monopod/manifests/manifesttest"
	"monopod/node/localapi"
)

const pod = `
apiVersion: v1
kind: Pod
spec:
  initContainers: [{name: i, image: init}]
  containers: [{name: a, image: app}, {name: b, image: app}]
  volumes: [{name: v, image: {reference: data}}, {name: w, emptyDir: {}}]
`

func newImages() *Images {
	return &Images{Refs: map[string][]localapi.ImageNeed{}, Digests: map[string][]localapi.ImageNeed{}}
}

func TestImagesOfAPodEachOnce(t *testing.T) {
	spec := &manifesttest.Pod(t, pod).Spec
	if got := ImagesOf(spec); !slices.Equal(got, []string{"app", "data", "init"}) {
		t.Errorf("images %v", got)
	}
	n := newImages()
	n.Spec(spec, "default/p")
	n.Spec(spec, "default/p")
	n.Spec(spec, "default/q")
	want := []localapi.ImageNeed{{Kind: NeedManifest, By: "default/p"}, {Kind: NeedManifest, By: "default/q"}}
	if diff := cmp.Diff(want, n.Refs["app"]); diff != "" {
		t.Error(diff)
	}
}

func TestDigestsEachOnce(t *testing.T) {
	n := newImages()
	by := localapi.ImageNeed{Kind: NeedRevision, By: "default/p"}
	n.Digest("sha256:a", by)
	n.Digest("sha256:a", by)
	n.Digest("", by)
	if diff := cmp.Diff(map[string][]localapi.ImageNeed{"sha256:a": {by}}, n.Digests); diff != "" {
		t.Error(diff)
	}
}

func TestImagesOfARefusedFileAreNeededToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("spec: {\n  containers:\n  - image: \"app:1\"\n  - {'image': 'b', reference: c}\n  - myimage: no\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		report model.Input
		want   []string
	}{
		{"a refused file", model.Input{State: model.InputRefused, Input: file}, []string{"app:1", "b", "c"}},
		{"an accepted file", model.Input{State: model.InputAccepted, Input: file}, nil},
		{"a URL", model.Input{State: model.InputRefused, Input: "https://example.com/a.yaml"}, nil},
		{"a file that is gone", model.Input{State: model.InputRefused, Input: file + ".gone"}, nil},
	} {
		n := newImages()
		n.Refused(tt.report)
		var got []string
		for ref := range n.Refs {
			got = append(got, ref)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
