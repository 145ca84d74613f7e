//go:build e2e

package ctrd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/runner/ctrd/trees"
)

// inputPod runs a script in a container with the fields of standard input that are given as YAML.
func inputPod(t testing.TB, name, fields, script string) *manifests.Pod {
	t.Helper()
	return load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %s, %s, command: [sh, -c, %q]}
`, name, testImage, fields, script))
}

// typeIn writes a line to the standard input of the pod's container, like a client that attaches, writes and detaches.
func (a *agent) typeIn(t testing.TB, key manifests.Key, line string) {
	t.Helper()
	all := a.index.OfPod(key)
	f, err := os.OpenFile(filepath.Join(a.dirs.Path("logs"), all[len(all)-1].ID, "stdin"), os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteString(line + "\n")
	check(t, err)
	check(t, f.Close())
}

// says waits until a line is in the log.
func (a *agent) says(t testing.TB, key manifests.Key, line string) {
	t.Helper()
	within(t, 10*time.Second, fmt.Sprintf("%q is in the log", line), func() bool {
		return strings.Contains("\n"+a.logOf(t, key), "\n"+line+"\n")
	})
}

const echoes = `while read line; do echo "read $line"; done; echo "end of input"; exec sleep 1000`

func TestStandardInputStaysOpen(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer func() { a.end(t) }()
	for name, fields := range map[string]string{
		"open": "stdin: true", "once": "stdin: true, stdinOnce: true", "terminal": "stdin: true, tty: true",
	} {
		pod := inputPod(t, name, fields, echoes)
		check(t, startPod(t.Context(), a, pod))
		a.typeIn(t, pod.Key(), "first")
		a.says(t, pod.Key(), "read first")
		a.stop(t)
		*a = *w.open(t)
		a.typeIn(t, pod.Key(), "second")
		a.says(t, pod.Key(), "read second")
		if out := a.logOf(t, pod.Key()); strings.Contains(out, "end of input") {
			t.Errorf("%s: the input has ended: %s", name, out)
		}
		check(t, removePod(t.Context(), a, pod.Key()))
	}
	without := inputPod(t, "closed", "stdinOnce: true", echoes)
	check(t, startPod(t.Context(), a, without))
	a.says(t, without.Key(), "end of input")
	check(t, removePod(t.Context(), a, without.Key()))
	a.idle(t)
	if left := trees.Names(a.dirs.Path("logs")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestATerminalIsLogged(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	const script = `for i in 0 1 2; do test -t $i && echo "$i is a terminal"; done; echo "$TERM"; echo error >&2; test -c /dev/console && echo console`
	got := a.output(t, inputPod(t, "terminal", "tty: true", script))
	want := "0 is a terminal\n1 is a terminal\n2 is a terminal\nxterm\nerror\nconsole\n"
	if got != want {
		t.Errorf("the log has\n%q\nwant\n%q", got, want)
	}
	if got := a.output(t, inputPod(t, "none", "tty: false", script)); strings.Contains(got, "terminal") || strings.Contains(got, "xterm") {
		t.Errorf("without a terminal the log has\n%q", got)
	}
}
