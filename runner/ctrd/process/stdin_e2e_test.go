//go:build e2e

package process_test

import (
	"fmt"
	"strings"
	"testing"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner/ctrd/trees"
)

// inputPod runs a script in a container with the fields of standard input that are given as YAML.
func inputPod(t testing.TB, name, fields, script string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %s, %s, command: [sh, -c, %q]}
`, name, ctrdtest.TestImage, fields, script))
}

const echoes = `while read line; do echo "read $line"; done; echo "end of input"; exec sleep 1000`

func TestStandardInputStaysOpen(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	for name, fields := range map[string]string{
		"open": "stdin: true", "once": "stdin: true, stdinOnce: true", "terminal": "stdin: true, tty: true",
	} {
		pod := inputPod(t, name, fields, echoes)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		a.TypeIn(t, pod.Key(), "first")
		a.Says(t, pod.Key(), "read first")
		a.Stop(t)
		*a = *w.Open(t)
		a.TypeIn(t, pod.Key(), "second")
		a.Says(t, pod.Key(), "read second")
		if out := a.LogOf(t, pod.Key()); strings.Contains(out, "end of input") {
			t.Errorf("%s: the input has ended: %s", name, out)
		}
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	}
	without := inputPod(t, "closed", "stdinOnce: true", echoes)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, without))
	a.Says(t, without.Key(), "end of input")
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, without.Key()))
	a.Idle(t)
	if left := trees.Names(a.Dirs.Path("logs")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestATerminalIsLogged(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	const script = `for i in 0 1 2; do test -t $i && echo "$i is a terminal"; done; echo "$TERM"; echo error >&2; test -c /dev/console && echo console`
	got := a.Output(t, inputPod(t, "terminal", "tty: true", script))
	want := "0 is a terminal\n1 is a terminal\n2 is a terminal\nxterm\nerror\nconsole\n"
	if got != want {
		t.Errorf("the log has\n%q\nwant\n%q", got, want)
	}
	if got := a.Output(t, inputPod(t, "none", "tty: false", script)); strings.Contains(got, "terminal") || strings.Contains(got, "xterm") {
		t.Errorf("without a terminal the log has\n%q", got)
	}
}
