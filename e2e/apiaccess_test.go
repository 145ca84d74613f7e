//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// apiUser is a pod that runs e2e/apiclient, with a role.
func (in *instance) apiUser(name, role, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {monopod.dev/api-access: %s}}
spec:
  terminationGracePeriodSeconds: 1
%s
  containers:
  - name: c
    image: %s
    command: [/bin-of-test/apiclient]
    volumeMounts: [{name: bin, mountPath: /bin-of-test, readOnly: true}]
  volumes:
  - {name: bin, hostPath: {path: %s}}
`, name, role, more, image, in.bin)
}

// output waits for a line in the output of a pod.
func (in *instance) output(k *kubectl, name, want string, more ...string) {
	in.t.Helper()
	in.eventually(name+" says "+want, func() error {
		if out, _, _ := k.try("", append([]string{"logs", name}, more...)...); !strings.Contains(out, want) {
			return errors.New(out)
		}
		return nil
	})
}

// TestKubectlAndPodsThatUseTheAPI: client-go programs in pods list, watch across a restart of the agent, and have the permissions of their
// role; a token becomes invalid with its pod.
func TestKubectlAndPodsThatUseTheAPI(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	in.put("reader", in.apiUser("reader", "view", ""))
	in.put("writer", in.apiUser("writer", "edit", ""))
	in.put("host", in.apiUser("host", "rules", "  hostNetwork: true"))
	granted := strings.Replace(in.apiUser("granted", "view", ""), "annotations: {monopod.dev/api-access: view}", "namespace: trusted", 1)
	in.put("granted", granted)
	admin.gives(strings.Replace(granted, "name: granted", "name: applied", 1), "apply", "-f", "-")
	in.ready("reader")
	in.ready("writer")
	in.ready("host")
	in.output(admin, "reader", `cannot create resource "configmaps"`)
	in.output(admin, "reader", "added file")
	in.output(admin, "writer", "create: <nil>")
	in.output(admin, "--namespace=trusted", "added applied", "granted")
	in.output(admin, "--namespace=trusted", "added granted", "applied")
	in.output(admin, "host", "forbidden")
	if out := admin.prints("get", "configmap", "of-a-pod"); !strings.Contains(out, "of-a-pod") {
		t.Error(out)
	}
	in.kill9()
	in.start()
	in.put("later", sleeper("later", "true"))
	in.ready("later")
	in.output(admin, "reader", "added later")

	const mount = "/var/run/secrets/kubernetes.io/serviceaccount"
	if out := admin.prints("exec", "file", "--", "sh", "-c", "ls "+mount+" 2>&1 || true; env"); !strings.Contains(out, "No such file") || strings.Contains(out, "KUBERNETES_SERVICE_HOST") {
		t.Errorf("a pod without the annotation: %s", out)
	}
	in.put("mute", strings.NewReplacer(
		"labels: {", "annotations: {monopod.dev/api-access: view}, labels: {", "\nspec:\n", "\nspec:\n  automountServiceAccountToken: false\n",
	).Replace(sleeper("mute", "true")))
	in.ready("mute")
	if out := admin.prints("exec", "mute", "--", "sh", "-c", "ls "+mount+" 2>&1 || true"); !strings.Contains(out, "No such file") {
		t.Errorf("a pod with the annotation and without a token: %s", out)
	}
	review := func(token string) string {
		return admin.gives(fmt.Sprintf("apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: %s}\n", token), "create", "-f", "-", "-o", "yaml")
	}
	token := strings.TrimSpace(admin.prints("create", "token", "default"))
	if out := review(token); !strings.Contains(out, "authenticated: true") || !strings.Contains(out, "username: system:serviceaccount:default:default") {
		t.Errorf("a token of the service account: %s", out)
	}
	uid := admin.prints("get", "pod", "reader", "-o", "jsonpath={.metadata.uid}")
	bound := strings.TrimSpace(admin.prints("create", "token", "default", "--bound-object-kind=Pod", "--bound-object-name=reader", "--bound-object-uid="+uid))
	if out := review(bound); !strings.Contains(out, "monopod:view") {
		t.Errorf("a token of the pod: %s", out)
	}
	in.drop("reader")
	in.eventually("the token ends with its pod", func() error {
		if out := review(bound); strings.Contains(out, "authenticated: true") || !strings.Contains(out, "no longer exists") {
			return errors.New(out)
		}
		return nil
	})
	edit := in.client("edit")
	root := strings.Replace(in.apiUser("root", "admin", ""), "hostPath: {path: "+in.bin+"}", "emptyDir: {}", 1)
	if _, errs, code := edit.try(root, "create", "-f", "-"); code == 0 || !strings.Contains(errs, "permissions that User") {
		t.Errorf("edit makes a pod with the role admin: %s", errs)
	}
}

// TestAPodThatUsesTheAPIWaitsWhileItIsOff: without the API over TCP, pods that use it wait, and report the reason.
func TestAPodThatUsesTheAPIWaitsWhileItIsOff(t *testing.T) {
	t.Parallel()
	in := newInstance(t)
	in.put("reader", in.apiUser("reader", "view", ""))
	in.start()
	in.eventually("the reason is shown", func() error {
		out, _ := in.run("why", "reader")
		if !strings.Contains(out, "apiServer.address") {
			return errors.New(out)
		}
		return nil
	})
}
