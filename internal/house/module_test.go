package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/version"
)

// TestModulePathIsOneConstant includes the module that uses the fixture, which .ci/module-path renames with the others.
func TestModulePathIsOneConstant(t *testing.T) {
	for file, want := range map[string]string{
		"go.mod":                       "module " + version.Module + "\n",
		"fixture/testdata/shop/go.mod": "replace " + version.Module + " => ../../..\n",
		".golangci.yml":                "prefix(" + version.Module + ")",
	} {
		data, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), want) {
			t.Errorf("%s does not contain %q", file, want)
		}
	}
}
