package run

import (
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/runner/runtimetest"
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

// TestARunPrintsTheWarningsOfValidate: on stderr, once each, and they change neither the exit code nor the report.
func TestARunPrintsTheWarningsOfValidate(t *testing.T) {
	t.Parallel()
	const warning = "web.yaml:8: service default/s: spec.ports[0].protocol: warning: Services do not forward SCTP; "
	text := daemontest.PodYAML("web", runtimetest.ScriptServe) + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {a: b}, ports: [{port: 80, protocol: SCTP}]}\n"
	for name, c := range map[string]struct {
		args   []string
		warned int
	}{
		"once":       {[]string{"once", "--rm"}, 1},
		"once quiet": {[]string{"once", "--rm", "-q"}, 0},
		"up":         {[]string{"up"}, 1},
		"up quiet":   {[]string{"up", "-q"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRunBench(t)
			args := append(c.args, "--junit", b.Path("junit.xml"), "-f", b.file("web.yaml", text))
			if c.args[0] == "up" {
				args = append(args, "--", "true")
			}
			r := b.do(args...)
			if r.Code != 0 || strings.Count(r.Stderr, warning) != c.warned || strings.Contains(r.Stdout, "warning") {
				t.Errorf("code %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
			}
			if junit := b.readPath("junit.xml"); !strings.Contains(junit, `failures="0"`) || strings.Contains(junit, "warning") {
				t.Errorf("the report has %s", junit)
			}
			b.nothingLeft()
		})
	}
}
