//go:build e2e

package container_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
)

// envFilePod has an init container that writes a file with a script, and a container with variables from it.
func envFilePod(t testing.TB, name, script string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
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
`, name, ctrdtest.TestImage, script))
}

// afterInit runs the init container of a pod to its end and creates the regular one.
func afterInit(t testing.TB, a *ctrdtest.Agent, pod *manifests.Pod) error {
	t.Helper()
	apply := func(act runner.Action) error { return a.Apply(t.Context(), pod.Key(), pod, act) }
	ctrdtest.Check(t, apply(runner.Action{Kind: runner.CheckPod}))
	ctrdtest.Check(t, apply(runner.Action{Kind: runner.CreateSandbox, UID: "uid-" + pod.Object.Name}))
	ctrdtest.Check(t, apply(runner.Action{Kind: runner.EnsureImage, Container: "i"}))
	ctrdtest.Check(t, apply(runner.Action{Kind: runner.CreateContainer, Container: "i"}))
	ctrdtest.Check(t, apply(runner.Action{Kind: runner.StartContainer, Container: "i"}))
	if c := a.Exit(t, pod.Key()); c.Exit.ExitCode != 0 {
		t.Fatalf("the init container has ended with %+v: %s", c.Exit, a.LogOf(t, pod.Key()))
	}
	return apply(runner.Action{Kind: runner.CreateContainer, Container: "c"})
}

func TestVariablesComeFromFilesOfVolumes(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	pod := envFilePod(t, "good", `mkdir /config/sub; printf "# written here\\nDB_ADDRESS='db:5432'\\nTEXT='one\\ntwo' # two lines\\n" > /config/sub/app.env`)
	ctrdtest.Check(t, afterInit(t, a, pod))
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.StartContainer, Container: "c"}))
	a.Exit(t, pod.Key())
	want := "db:5432|one\ntwo|none|<db:5432>\n"
	ctrdtest.Within(t, 10*time.Second, "the output is in the log", func() bool { return a.LogOf(t, pod.Key()) != "" })
	if got := a.LogOf(t, pod.Key()); got != want {
		t.Errorf("the container sees %q, want %q", got, want)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	for script, want := range map[string]string{
		"true": `env ADDRESS: volume "config" has no file "sub/app.env"`,
		"mkdir /config/sub; echo DB_ADDRESS=db > /config/sub/app.env":                  "line 1: the value is not in single quotes",
		"mkdir /config/sub; mkfifo /config/sub/app.env":                                "not a regular file",
		"mkdir /config/sub; ln -s ../../../../../hosts /config/sub/app.env":            "leads out of the volume",
		"mkdir /config/sub; dd if=/dev/zero of=/config/sub/app.env bs=1M count=2 2>&1": "at most 1048576 bytes are read",
	} {
		pod := envFilePod(t, "bad", script)
		err := afterInit(t, a, pod)
		step, ok := errors.AsType[*runner.StepError](err)
		if !ok || step.Reason != runner.ReasonCreateContainerConfigError || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", script, err, want)
		}
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
		a.Idle(t)
	}
}
