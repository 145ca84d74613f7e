//go:build e2e

package sandbox_test

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

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/trees"
)

// recording returns an OCI runtime that calls runc and records its arguments.
func recording(t *testing.T, w *ctrdtest.World, name string) (path string, calls func() string) {
	t.Helper()
	path = filepath.Join(w.Dir, name)
	ctrdtest.Check(t, os.WriteFile(path, []byte("#!/bin/sh\necho \"$*\" >> "+path+".calls\nexec runc \"$@\"\n"), 0o755))
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
	ctrdtest.Check(t, err)
	return manifests.WithRefs(ctrdtest.Load(t, pod), nil, manifests.NewObjects(c.Objects))
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
`, name, class, ctrdtest.TestImage, script)
}

// TestTheRuntimeOfAClassMakesItsContainers: its containers, and process 1 of the pod, and they stay with it.
func TestTheRuntimeOfAClassMakesItsContainers(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	mine, calls := recording(t, w, "mine")
	with := func(c *ctrd.Config) { c.Handlers = handlers(map[string]string{"mine": mine}) }
	a := w.OpenWith(t, with)
	defer func() { a.End(t) }()
	plain := ctrdtest.Load(t, strings.Replace(classPod("plain", "x", "exec sleep 1000"), "  runtimeClassName: x\n", "", 1))
	a.Drive(t, plain.Key(), plain)
	if said := calls(); said != "" {
		t.Fatalf("the runtime of a class is asked for a pod without one:\n%s", said)
	}
	for class, want := range map[string]string{"strange": `RuntimeClass "strange": nothing is known of handler "strange"`, "gone": `RuntimeClass "gone" not found`} {
		err := ctrdtest.StartPod(t.Context(), a, resolved(t, classPod("waits", class, "exec sleep 1000"), twoClasses))
		var step *runner.StepError
		if !errors.As(err, &step) || step.Reason != runner.ReasonCreatePodSandboxError || !strings.Contains(err.Error(), want) {
			t.Errorf("class %s: %v", class, err)
		}
	}
	pod := resolved(t, classPod("classy", "mine", "exec sleep 1000"), twoClasses)
	a.Drive(t, pod.Key(), pod)
	id := a.State(t, pod.Key()).Containers[0].ID
	for _, want := range []string{"run --detach", "create --bundle", " start " + id} {
		if !strings.Contains(calls(), want) {
			t.Errorf("the runtime of the class was not asked for %q:\n%s", want, calls())
		}
	}
	sandbox := a.Index.Sandbox(pod.Key())
	if got := a.Limits(t, sandbox.Meta.Cgroup); got != "quota 75000 memory 50331648" {
		t.Errorf("with its overhead the pod has %s", got)
	}
	if got, want := a.Weight(t, sandbox.Meta.Cgroup), a.WeightOf(512); got != want {
		t.Errorf("with its overhead the pod weighs %s, want %s", got, want)
	}
	if got := a.Limits(t, a.ContainerCgroup(t, pod.Key())); got != "quota 50000 memory 33554432" {
		t.Errorf("the container has %s", got)
	}
	a.Stop(t)
	a = w.OpenWith(t, with)
	// The class is gone: what runs stays as it is, and is replaced in its sandbox by its runtime.
	bare := ctrdtest.Load(t, classPod("classy", "mine", "exec sleep 1000"))
	if did := a.Drive(t, pod.Key(), bare); len(did) != 0 {
		t.Errorf("without its class: %v", did)
	}
	before := calls()
	edited := ctrdtest.Load(t, strings.Replace(classPod("classy", "mine", "exec sleep 1001"), "memory: 32Mi", "memory: 64Mi", 1))
	a.Drive(t, pod.Key(), edited)
	if later := strings.TrimPrefix(calls(), before); !strings.Contains(later, "create --bundle") {
		t.Errorf("the runtime of the class was not asked for the new container:\n%s", later)
	}
	if got := a.Limits(t, sandbox.Meta.Cgroup); got != "quota 75000 memory 83886080" {
		t.Errorf("after an edit the pod has %s", got)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, plain.Key()))
	a.Idle(t)
	if !strings.Contains(calls(), "delete --force "+sandbox.ID) {
		t.Errorf("process 1 of the pod was not ended by the runtime of the class:\n%s", calls())
	}
}

// TestCrunIsARuntimeClass has pods of two OCI runtimes. crun refuses hybrid cgroups, so the unified hierarchy is unmounted in the
// mount namespace of the tests.
func TestCrunIsARuntimeClass(t *testing.T) {
	crun, err := exec.LookPath("crun")
	ctrdtest.Check(t, err)
	const unified = "/sys/fs/cgroup/unified"
	if trees.IsMountPoint(unified) {
		ctrdtest.Check(t, unix.Unmount(unified, unix.MNT_DETACH))
		defer func() { ctrdtest.Check(t, unix.Mount("cgroup2", unified, "cgroup2", 0, "")) }()
	}
	w := ctrdtest.NewWorld(t)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.Handlers = handlers(map[string]string{"mine": crun}) })
	defer a.End(t)
	usual := ctrdtest.Load(t, strings.Replace(classPod("usual", "x", "exec sleep 1000"), "  runtimeClassName: x\n", "", 1))
	pod := resolved(t, classPod("crun", "mine", "exec sleep 1000"), twoClasses)
	for _, p := range []*manifests.Pod{usual, pod} {
		a.Drive(t, p.Key(), p)
		a.PID(t, p.Key())
	}
	id := a.State(t, pod.Key()).Containers[0].ID
	out, err := exec.Command(crun, "--root", filepath.Join(a.Dirs.Path("handlers", "mine"), a.Config.Namespace), "list", "--quiet").Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), id) {
		t.Errorf("crun has %q, want %s: %v", out, id, err)
	}
	if got := a.Limits(t, a.Index.Sandbox(pod.Key()).Meta.Cgroup); got != "quota 75000 memory 50331648" {
		t.Errorf("with its overhead the pod has %s", got)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, usual.Key()))
}

// TestContainersThatOnlyTheRuntimeOfAClassKnowsAreDeleted is what cleaning up at a start does for each runtime.
func TestContainersThatOnlyTheRuntimeOfAClassKnowsAreDeleted(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	mine, calls := recording(t, w, "mine")
	a := w.OpenWith(t, func(c *ctrd.Config) { c.Handlers = handlers(map[string]string{"mine": mine}) })
	defer a.End(t)
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(a.Dirs.Path("handlers", "mine"), a.Config.Namespace, "lost"), 0o700))
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(a.Dirs.Path("handlers", "strange"), a.Config.Namespace, "lost"), 0o700))
	ctrdtest.Check(t, a.Lifecycle.Shims.CleanRuntime(a.NS(t.Context()), nil))
	if said := calls(); !strings.Contains(said, "delete --force lost") {
		t.Errorf("the runtime was asked for\n%s", said)
	}
}
