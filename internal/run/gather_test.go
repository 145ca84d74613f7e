package run

import (
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
)

// TestManifestsBelowASubDirectoryAreNoTestThatPasses: a directory is read as by the daemon, and what is left out is an error.
func TestManifestsBelowASubDirectoryAreNoTestThatPasses(t *testing.T) {
	t.Parallel()
	d := clitest.New(t, nil)
	dir := strings.TrimSuffix(d.File("tests/a.yaml", daemontest.PodYAML("a", "x")), "/a.yaml")
	d.File("tests/more/b.yaml", daemontest.PodYAML("b", "x"))
	p := NewCommands(d.Program().Program, d.Program().Machine)
	content, refused := p.gather(&trialFlags{files: []string{dir}}, &config.Loaded{})
	if len(refused) != 1 || !strings.Contains(refused[0].Text, "tests/more: manifests in sub-directories are not read; name the directory, too") {
		t.Errorf("refused %v", refused)
	}
	if len(content.pods) != 1 {
		t.Errorf("%d pods", len(content.pods))
	}
	if content, refused = p.gather(&trialFlags{files: []string{dir, dir + "/more", dir + "/a.yaml"}}, &config.Loaded{}); len(refused) != 0 || len(content.pods) != 2 {
		t.Errorf("%d pods, refused %v", len(content.pods), refused)
	}
}
