//go:build e2e

package ctrd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/runner"
)

// envFilePod has an init container that writes a file with a script, and a container with variables from it.
func envFilePod(t testing.TB, name, script string) *manifests.Pod {
	t.Helper()
	return load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  initContainers:
  - {name: i, image: %[2]s, command: [sh, -c, %[3]q], volumeMounts: [{name: config, mountPath: /config}]}
  containers:
  - name: c
    image: %[2]s
    command: [sh, -c, 'echo "$ADDRESS|$TEXT|${NONE-none}|$ARG"']
    env:
    - {name: ADDRESS, valueFrom: {fileKeyRef: {volumeName: config, path: sub/app.env, key: DB_ADDRESS}}}
    - {name: TEXT, valueFrom: {fileKeyRef: {volumeName: config, path: sub/app.env, key: TEXT}}}
    - {name: NONE, valueFrom: {fileKeyRef: {volumeName: config, path: none.env, key: X, optional: true}}}
    - {name: ARG, value: "<$(ADDRESS)>"}
  volumes: [{name: config, emptyDir: {}}]
`, name, testImage, script))
}

// afterInit runs the init container of a pod to its end and creates the regular one.
func (a *agent) afterInit(t testing.TB, pod *manifests.Pod) error {
	t.Helper()
	apply := func(act runner.Action) error { return a.Apply(t.Context(), pod.Key(), pod, act) }
	check(t, apply(runner.Action{Kind: runner.CheckPod}))
	check(t, apply(runner.Action{Kind: runner.CreateSandbox, UID: "uid-" + pod.Object.Name}))
	check(t, apply(runner.Action{Kind: runner.EnsureImage, Container: "i"}))
	check(t, apply(runner.Action{Kind: runner.CreateContainer, Container: "i"}))
	check(t, apply(runner.Action{Kind: runner.StartContainer, Container: "i"}))
	if c := a.exit(t, pod.Key()); c.Exit.ExitCode != 0 {
		t.Fatalf("the init container has ended with %+v: %s", c.Exit, a.logOf(t, pod.Key()))
	}
	return apply(runner.Action{Kind: runner.CreateContainer, Container: "c"})
}

func TestVariablesComeFromFilesOfVolumes(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	pod := envFilePod(t, "good", `mkdir /config/sub; printf "# written here\\nDB_ADDRESS='db:5432'\\nTEXT='one\\ntwo' # two lines\\n" > /config/sub/app.env`)
	check(t, a.afterInit(t, pod))
	check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.StartContainer, Container: "c"}))
	a.exit(t, pod.Key())
	want := "db:5432|one\ntwo|none|<db:5432>\n"
	within(t, 10*time.Second, "the output is in the log", func() bool { return a.logOf(t, pod.Key()) != "" })
	if got := a.logOf(t, pod.Key()); got != want {
		t.Errorf("the container sees %q, want %q", got, want)
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	for script, want := range map[string]string{
		"true": `env ADDRESS: volume "config" has no file "sub/app.env"`,
		"mkdir /config/sub; echo DB_ADDRESS=db > /config/sub/app.env":                  "line 1: the value is not in single quotes",
		"mkdir /config/sub; mkfifo /config/sub/app.env":                                "not a regular file",
		"mkdir /config/sub; ln -s ../../../../../hosts /config/sub/app.env":            "leads out of the volume",
		"mkdir /config/sub; dd if=/dev/zero of=/config/sub/app.env bs=1M count=2 2>&1": "larger than 1048576 bytes",
	} {
		pod := envFilePod(t, "bad", script)
		err := a.afterInit(t, pod)
		step, ok := errors.AsType[*runner.StepError](err)
		if !ok || step.Reason != runner.ReasonCreateContainerConfigError || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", script, err, want)
		}
		check(t, removePod(t.Context(), a, pod.Key()))
		a.idle(t)
	}
}
