//go:build e2e

package container_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
)

// cdiSpec has two devices, both of them /dev/fuse under other names, with an environment variable each.
const cdiSpec = `{
  "cdiVersion": "0.6.0", "kind": "example.com/dev",
  "devices": [
    {"name": "one", "containerEdits": {"env": ["ONE=1"], "deviceNodes": [{"path": "/dev/one", "hostPath": "%[1]s/node", "permissions": "rw"}]}},
    {"name": "two", "containerEdits": {"env": ["TWO=2"], "deviceNodes": [{"path": "/dev/two", "hostPath": "%[1]s/node"}]}}
  ],
  "containerEdits": {"env": ["KIND=dev"], "mounts": [{"hostPath": "%[1]s", "containerPath": "/lib/dev", "options": ["bind", "ro"]}]}
}`

// devicePod requests devices by annotation and by number.
func devicePod(t testing.TB, name, annotation, script string, n int) *manifests.Pod {
	t.Helper()
	limits := "{}"
	if n > 0 {
		limits = fmt.Sprintf("{example.com/dev: %d}", n)
	}
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: %s, command: [sh, -c, %q], resources: {limits: %s}}]
`, name, annotation, ctrdtest.TestImage, "exec 2>&1; "+script, limits))
}

func addDevices(t testing.TB, w *ctrdtest.World) {
	t.Helper()
	dir := filepath.Join(w.Dir, "cdi")
	ctrdtest.Check(t, os.MkdirAll(dir, 0o755))
	// fuse: no container has it by default.
	ctrdtest.Check(t, unix.Mknod(filepath.Join(dir, "node"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "dev.json"), fmt.Appendf(nil, cdiSpec, dir), 0o644))
}

func TestDevicesByAnnotation(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	const annotation = "cdi.k8s.io/test: 'example.com/dev=one'"
	pod := devicePod(t, "ann", annotation, "stat -c '%t %T' /dev/one; : 3< /dev/one && echo opened; ls /dev/two; ls /lib/dev; echo $KIND $ONE $TWO.", 0)
	if err := ctrdtest.StartPod(t.Context(), a, pod); err == nil || !strings.Contains(err.Error(), "has device example.com/dev=one") {
		t.Errorf("without a CDI spec: %v", err)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	addDevices(t, w)
	want := "a e5\nopened\nls: /dev/two: No such file or directory\ndev.json\nnode\ndev 1 .\n"
	if got := a.Output(t, pod); got != want {
		t.Errorf("the container says\n%s\nwant\n%s", got, want)
	}
	// Without the annotation there is neither the node nor the right to use one.
	plain := devicePod(t, "plain", "a: b", "ls /dev/one; mknod /x c 10 229 && : 3< /x && echo opened; echo done", 0)
	if got := a.Output(t, plain); strings.Contains(got, "opened") || !strings.Contains(got, "No such file") {
		t.Errorf("a container that asked for nothing says\n%s", got)
	}
}

func TestDevicesByNumberBelongToOneContainer(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	addDevices(t, w)
	a := w.Open(t)
	defer a.End(t)
	first, second, third := devicePod(t, "first", "a: b", "sleep 1000", 1), devicePod(t, "second", "a: b", "sleep 1000", 1), devicePod(t, "third", "a: b", "sleep 1000", 1)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, first))
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, second))
	for pod, device := range map[*manifests.Pod]string{first: "one", second: "two"} {
		for _, name := range []string{"one", "two"} {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/%s", a.PID(t, pod.Key()), name))
			if (err == nil) != (name == device) {
				t.Errorf("pod %s, device %s: %v", pod.Key(), name, err)
			}
		}
	}
	a.Stop(t)
	*a = *w.Open(t) // who has what is on the records
	var step *runner.StepError
	if err := ctrdtest.StartPod(t.Context(), a, third); !errors.As(err, &step) || step.Reason != runner.ReasonCreateContainerConfigError || !strings.Contains(err.Error(), "1 devices example.com/dev are requested, 0 are free") {
		t.Errorf("a third pod: %v", err)
	}
	// A new instance of a container does not wait for its own old one.
	ctrdtest.Check(t, a.Apply(t.Context(), first.Key(), first, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, first.Key()))
	ctrdtest.Check(t, a.Apply(t.Context(), third.Key(), third, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	if err := a.Apply(t.Context(), third.Key(), devicePod(t, "third", "a: b", "true", 3), runner.Action{Kind: runner.CheckPod}); err == nil || !strings.Contains(err.Error(), "3 devices example.com/dev are requested") {
		t.Errorf("a check of what the machine does not have: %v", err)
	}
	for _, pod := range []*manifests.Pod{second, third} {
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	}
	a.Idle(t)
}

// TestDevicesAddToAnEnvironmentWithSecrets checks that the environment of the CDI spec is kept with the secret one, and that an
// aborted creation leaves no file.
func TestDevicesAddToAnEnvironmentWithSecrets(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	addDevices(t, w)
	a := w.Open(t)
	defer a.End(t)
	pod := devicePod(t, "hidden", "cdi.k8s.io/test: 'example.com/dev=one'", "echo $KIND $ONE $WORD.", 0)
	key, c := pod.Key(), &pod.Object.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "WORD", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "word"},
	}})
	pod.Refs = &manifests.Refs{Secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"word": []byte("w0rd")}}}}

	ctrdtest.Check(t, a.Apply(t.Context(), key, pod, runner.Action{Kind: runner.CreateSandbox, UID: "uid-hidden"}))
	ctrdtest.Check(t, a.Apply(t.Context(), key, pod, runner.Action{Kind: runner.EnsureImage, Container: "c"}))
	var free []func()
	for range cap(a.Creator.Slots) {
		done, err := a.Creator.Slots.Take(t.Context())
		ctrdtest.Check(t, err)
		free = append(free, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Apply(ctx, key, pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}) }()
	hidden := filepath.Join(a.Dirs.SecretsDir(), "process")
	ctrdtest.Within(t, 10*time.Second, "the environment is written", func() bool { return len(trees.Names(hidden)) == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the creation ended with %v", err)
	}
	if left := trees.Names(hidden); len(left) > 0 {
		t.Errorf("an environment is left: %v", left)
	}
	for _, done := range free {
		done()
	}
	if got, want := a.Output(t, pod), "dev 1 w0rd.\n"; got != want {
		t.Errorf("the container says %q, want %q", got, want)
	}
	if left := trees.Names(hidden); len(left) > 0 {
		t.Errorf("after the pod an environment is left: %v", left)
	}
}
