//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// operate starts an operator, and returns a function that kills it.
func operate(t *testing.T, program string, k *kubectl, identity string) (kill func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, k.kubeconfig, identity, image)
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("operator %s: %s", identity, log.String())
		}
	})
	return kill
}

// TestClientControllerRuntime: an operator with a cache follows objects, writes others, and hands over its Lease, also while the agent is
// killed.
func TestClientControllerRuntime(t *testing.T) {
	t.Parallel()
	program := clientProgram(t, "operator")
	in, admin := servesKubernetes(t)
	in.hasOperators(admin, func(identity string) (kill func()) { return operate(t, program, admin, identity) })
}

// TestClientControllerRuntimeInPods: the same operators run in pods, with the role and the token of their pod.
func TestClientControllerRuntimeInPods(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	img := in.clientImage("operator")
	in.hasOperators(admin, func(identity string) (kill func()) {
		in.put(identity, clientPod(identity, "edit", img, "/bin/operator", "", identity, image))
		t.Cleanup(func() { in.logsIfFailed(admin, identity) })
		return func() { in.drop(identity) }
	})
}

// hasOperators tests two operators, of which the first is killed.
func (in *instance) hasOperators(admin *kubectl, operate func(identity string) (kill func())) {
	in.t.Helper()
	prints := func(what, want string, args ...string) {
		in.t.Helper()
		in.eventually(what, func() error {
			if out, errs, code := admin.try("", args...); code != 0 || out != want {
				return fmt.Errorf("exit code %d, it prints %q, not %q: %s", code, out, want, errs)
			}
			return nil
		})
	}
	killFirst := operate("first")
	prints("the first operator leads", "first", "get", "lease", "operator", "-o", "jsonpath={.spec.holderIdentity}")
	operate("second")

	site := func(replicas int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site, labels: {sites: 'yes'}}\ndata: {replicas: '%d'}\n", replicas)
	}
	status := []string{"get", "configmap", "site", "-o", "jsonpath={.metadata.annotations.ready} {.metadata.annotations.operator}"}
	admin.gives(site(2), "apply", "-f", "-")
	prints("both replicas are ready", "2 first", status...)
	admin.says([][2]string{
		{"get deployment site -o jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}", "ConfigMap/site"},
		{"get events --field-selector reason=Deployed", "the Deployment is created"},
		{"get configmap site -o jsonpath={.metadata.finalizers}", "monopod.test/site"},
	})
	// A Deployment changed by another client is corrected, without starting a loop of writes.
	admin.prints("scale", "deployment", "site", "--replicas=1")
	prints("the operator scales it back", "2", "get", "deployment", "site", "-o", "jsonpath={.spec.replicas}")
	prints("both replicas are ready again", "2 first", status...)

	killFirst()
	admin.gives(site(1), "apply", "-f", "-")
	prints("the second operator goes on", "1 second", status...)
	in.kill9()
	in.start()
	admin.gives(site(3), "apply", "-f", "-")
	prints("it goes on after the agent", "3 second", status...)
	prints("it has the Lease again", "second", "get", "lease", "operator", "-o", "jsonpath={.spec.holderIdentity}")

	admin.says([][2]string{{"delete configmap site --timeout=60s", "deleted"}})
	prints("the finalizer has run", "site", "get", "configmap", "site-was", "-o", "jsonpath={.data.site}")
	in.eventually("its Deployment went with it", func() error {
		if out := admin.prints("get", "deployments,pods", "-o", "name"); strings.Contains(out, "site") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
