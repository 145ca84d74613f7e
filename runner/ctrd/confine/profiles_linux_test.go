package confine

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

func TestASeccompProfileThatCannotBeUsedIsNamed(t *testing.T) {
	dir := t.TempDir()
	p := &Profiles{SeccompProfileRoot: dir}
	for name, text := range map[string]string{"broken.json": "{", "empty.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"none.json", "broken.json", "empty.json"} {
		_, err := p.localSeccomp(corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new(name)})
		want := cause.Cause{Kind: cause.ProfileUnusable, Object: cause.Object{Kind: cause.Seccomp, Name: filepath.Join(dir, name)}}
		if name == "none.json" {
			want.Fault = cause.NotFound
		}
		if cause.Of(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
