package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestGoldenSpecs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d fixtures found: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			s, err := Spec(loadFixture(t, file))
			if err != nil {
				t.Fatal(err)
			}
			sameAsGolden(t, strings.TrimSuffix(file, ".yaml")+".json", s)
		})
	}
}

// fixture is a testdata file: what differs from the usual Input.
type fixture struct {
	Pod          *corev1.Pod
	Container    string
	Image        ocispec.ImageConfig
	User         spec.User
	Host         spec.Host
	ImageVolumes map[string]string
}

// loadFixture reads a testdata file.
func loadFixture(t testing.TB, file string) spec.Input {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{Host: spectest.Host()}
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	in := spectest.Input(f.Pod, f.Container)
	in.Image, in.User, in.Host, in.ImageVolumes = f.Image, f.User, f.Host, f.ImageVolumes
	return in
}
