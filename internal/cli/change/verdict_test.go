package change

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

// TestApplyDecidesAsValidateDoes: what validate refuses or warns of, apply does, too, of what the daemon knows besides.
func TestApplyDecidesAsValidateDoes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	given := func(name string) string {
		text, err := os.ReadFile(filepath.Join("../../../e2e/testdata/cases", name))
		if err != nil {
			t.Fatal(err)
		}
		return d.File(name, string(text))
	}
	r := d.Cmd("apply", "-f", given("badimg.yaml"))
	for _, want := range []string{`badimg.yaml:6:22: pod default/badimg: spec.containers[0].image: "bad image" is not an image name`, `spec.containers[1].image: "Busybox:latest" is not an image name`} {
		if r.Code != 1 || !strings.Contains(r.Stderr, want) {
			t.Errorf("code %d, want %q in\n%s", r.Code, want, r.Stderr)
		}
	}
	const created = "pod/warn created (dry run)\nservice/warn created (dry run)\n"
	d.Says(0, created, "$DIR/files/warn.yaml:1: pod default/warn: spec.containers[0].envFrom[0].configMapRef.name: warning: there is no ConfigMap default/nope: "+
		"the pod waits for it; add the document, or write optional: true\n", "apply", "--dry-run", "-f", given("warn.yaml"))
	d.Says(0, created, "", "apply", "--dry-run", "-q", "-f", given("warn.yaml"))
	d.Says(0, "configmap/nope created\n", "", "apply", "-f", d.File("nope.yaml", strings.Replace(fmt.Sprintf(configMapYAML, "v"), "name: app", "name: nope", 1)))
	d.Says(0, created, "", "apply", "--dry-run", "-f", given("warn.yaml"))
}

// TestAPodIsAppliedAfterItsPriorityClass: the class may be in the same file, on the machine, or nowhere yet.
func TestAPodIsAppliedAfterItsPriorityClass(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	const class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n"
	pod := strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "spec:\n", "spec:\n  priorityClassName: high\n", 1)
	d.Says(0, "pod/web created (dry run)\n", "$DIR/files/web.yaml:1: pod default/web: spec.priorityClassName: warning: there is no PriorityClass high: the pod waits for it; "+
		"add the document, or correct the name\n", "apply", "--dry-run", "-f", d.File("web.yaml", pod))
	d.Says(0, "priorityclass/high created (dry run)\npod/web created (dry run)\n", "", "apply", "--dry-run", "-f", d.File("both.yaml", class+"---\n"+pod))
	d.Says(0, "priorityclass/high created\n", "", "apply", "-f", d.File("class.yaml", class))
	d.Says(0, "pod/web created\n", "", "apply", "-f", d.File("web.yaml", pod))
}
