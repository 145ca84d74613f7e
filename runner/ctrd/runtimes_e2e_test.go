//go:build e2e

package ctrd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
)

// recording returns an OCI runtime that calls runc and records its arguments.
func (w *world) recording(t *testing.T, name string) (path string, calls func() string) {
	t.Helper()
	path = filepath.Join(w.dir, name)
	check(t, os.WriteFile(path, []byte("#!/bin/sh\necho \"$*\" >> "+path+".calls\nexec runc \"$@\"\n"), 0o755))
	return path, func() string {
		b, err := os.ReadFile(path + ".calls")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(b)
	}
}

// handlers are runtimes by their handlers.
func handlers(known map[string]string) func(string) (string, error) {
	return func(name string) (string, error) {
		if path := known[name]; path != "" {
			return path, nil
		}
		return "", fmt.Errorf("nothing is known of handler %q", name)
	}
}

// resolved loads a pod with the documents that it refers to.
func resolved(t *testing.T, pod, documents string) *manifests.Pod {
	t.Helper()
	c, err := decode.All("/x/documents.yaml", []byte(documents), decode.Options{})
	check(t, err)
	return manifests.WithRefs(load(t, pod), nil, manifests.NewObjects(c.Objects))
}

const twoClasses = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: mine}
handler: mine
overhead: {podFixed: {cpu: 250m, memory: 16Mi}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: strange}
handler: strange
`

// classPod runs script in a process namespace of the pod.
func classPod(name, class, script string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  shareProcessNamespace: true
  runtimeClassName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
    resources: {requests: {cpu: 250m, memory: 16Mi}, limits: {cpu: 500m, memory: 32Mi}}
`, name, class, testImage, script)
}

// TestTheRuntimeOfAClassMakesItsContainers: its containers, and process 1 of the pod, and they stay with it.
func TestTheRuntimeOfAClassMakesItsContainers(t *testing.T) {
	w := newWorld(t)
	mine, calls := w.recording(t, "mine")
	with := func(c *Config) { c.Handlers = handlers(map[string]string{"mine": mine}) }
	a := w.openWith(t, with)
	defer func() { a.end(t) }()
	plain := load(t, strings.Replace(classPod("plain", "x", "exec sleep 1000"), "  runtimeClassName: x\n", "", 1))
	a.drive(t, plain.Key(), plain)
	if said := calls(); said != "" {
		t.Fatalf("the runtime of a class is asked for a pod without one:\n%s", said)
	}
	for class, want := range map[string]string{"strange": `RuntimeClass "strange": nothing is known of handler "strange"`, "gone": `RuntimeClass "gone" not found`} {
		err := startPod(t.Context(), a, resolved(t, classPod("waits", class, "exec sleep 1000"), twoClasses))
		var step *runner.StepError
		if !errors.As(err, &step) || step.Reason != runner.ReasonCreatePodSandboxError || !strings.Contains(err.Error(), want) {
			t.Errorf("class %s: %v", class, err)
		}
	}
	pod := resolved(t, classPod("classy", "mine", "exec sleep 1000"), twoClasses)
	a.drive(t, pod.Key(), pod)
	id := a.state(t, pod.Key()).Containers[0].ID
	for _, want := range []string{"run --detach", "create --bundle", " start " + id} {
		if !strings.Contains(calls(), want) {
			t.Errorf("the runtime of the class was not asked for %q:\n%s", want, calls())
		}
	}
	sandbox := a.index.Sandbox(pod.Key())
	if got := a.limits(t, sandbox.Meta.Cgroup); got != "quota 75000 memory 50331648" {
		t.Errorf("with its overhead the pod has %s", got)
	}
	if got, want := a.weight(t, sandbox.Meta.Cgroup), a.weightOf(512); got != want {
		t.Errorf("with its overhead the pod weighs %s, want %s", got, want)
	}
	if got := a.limits(t, a.containerCgroup(t, pod.Key())); got != "quota 50000 memory 33554432" {
		t.Errorf("the container has %s", got)
	}
	a.stop(t)
	a = w.openWith(t, with)
	// The class is gone: what runs stays as it is, and is replaced in its sandbox by its runtime.
	bare := load(t, classPod("classy", "mine", "exec sleep 1000"))
	if did := a.drive(t, pod.Key(), bare); len(did) != 0 {
		t.Errorf("without its class: %v", did)
	}
	before := calls()
	edited := load(t, strings.Replace(classPod("classy", "mine", "exec sleep 1001"), "memory: 32Mi", "memory: 64Mi", 1))
	a.drive(t, pod.Key(), edited)
	if later := strings.TrimPrefix(calls(), before); !strings.Contains(later, "create --bundle") {
		t.Errorf("the runtime of the class was not asked for the new container:\n%s", later)
	}
	if got := a.limits(t, sandbox.Meta.Cgroup); got != "quota 75000 memory 83886080" {
		t.Errorf("after an edit the pod has %s", got)
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	check(t, removePod(t.Context(), a, plain.Key()))
	a.idle(t)
	if !strings.Contains(calls(), "delete --force "+sandbox.ID) {
		t.Errorf("process 1 of the pod was not ended by the runtime of the class:\n%s", calls())
	}
}

// TestCrunIsARuntimeClass has pods of two OCI runtimes. crun refuses hybrid cgroups, so the unified hierarchy is unmounted in the
// mount namespace of the tests.
func TestCrunIsARuntimeClass(t *testing.T) {
	crun, err := exec.LookPath("crun")
	check(t, err)
	const unified = "/sys/fs/cgroup/unified"
	if trees.IsMountPoint(unified) {
		check(t, unix.Unmount(unified, unix.MNT_DETACH))
		defer func() { check(t, unix.Mount("cgroup2", unified, "cgroup2", 0, "")) }()
	}
	w := newWorld(t)
	a := w.openWith(t, func(c *Config) { c.Handlers = handlers(map[string]string{"mine": crun}) })
	defer a.end(t)
	usual := load(t, strings.Replace(classPod("usual", "x", "exec sleep 1000"), "  runtimeClassName: x\n", "", 1))
	pod := resolved(t, classPod("crun", "mine", "exec sleep 1000"), twoClasses)
	for _, p := range []*manifests.Pod{usual, pod} {
		a.drive(t, p.Key(), p)
		a.pidOf(t, p.Key())
	}
	id := a.state(t, pod.Key()).Containers[0].ID
	out, err := exec.Command(crun, "--root", filepath.Join(a.dirs.Path("handlers", "mine"), a.cfg.Namespace), "list", "--quiet").Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), id) {
		t.Errorf("crun has %q, want %s: %v", out, id, err)
	}
	if got := a.limits(t, a.index.Sandbox(pod.Key()).Meta.Cgroup); got != "quota 75000 memory 50331648" {
		t.Errorf("with its overhead the pod has %s", got)
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	check(t, removePod(t.Context(), a, usual.Key()))
}

// TestContainersThatOnlyTheRuntimeOfAClassKnowsAreDeleted is what cleaning up at a start does for each runtime.
func TestContainersThatOnlyTheRuntimeOfAClassKnowsAreDeleted(t *testing.T) {
	w := newWorld(t)
	mine, calls := w.recording(t, "mine")
	a := w.openWith(t, func(c *Config) { c.Handlers = handlers(map[string]string{"mine": mine}) })
	defer a.end(t)
	check(t, os.MkdirAll(filepath.Join(a.dirs.Path("handlers", "mine"), a.cfg.Namespace, "lost"), 0o700))
	check(t, os.MkdirAll(filepath.Join(a.dirs.Path("handlers", "strange"), a.cfg.Namespace, "lost"), 0o700))
	check(t, a.lifecycle.Shims.CleanRuntime(a.ns(t.Context()), nil))
	if said := calls(); !strings.Contains(said, "delete --force lost") {
		t.Errorf("the runtime was asked for\n%s", said)
	}
}

// TestSeccompByDefault is seccompDefault of the configuration.
func TestSeccompByDefault(t *testing.T) {
	a := newWorld(t).openWith(t, func(c *Config) { c.SeccompDefault = true })
	defer a.end(t)
	const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: confined}
spec:
  hostNetwork: true
  containers:
  - name: c
    securityContext: %s
    `
	for security, want := range map[string]string{"{}": "2", "{seccompProfile: {type: Unconfined}}": "0", "{privileged: true}": "0"} {
		if got := a.tell(t, fmt.Sprintf(manifest, security)+"%s\n", `sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status`); got != want {
			t.Errorf("%s: seccomp mode %s, want %s", security, got, want)
		}
	}
}
