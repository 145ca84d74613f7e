//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"monopod/e2e/testimages"
)

// building serializes builds of programs.
var building sync.Mutex

// clientProgram returns a client of the Kubernetes API, which is built from its pinned modules if missing.
func clientProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".cache", "clients", name))
	if err != nil {
		t.Fatal(err)
	}
	building.Lock()
	defer building.Unlock()
	if out, err := exec.CommandContext(t.Context(), "make", "-C", "..", path).CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", path, err, out)
	}
	return path
}

// clientImage makes an image of a client that needs no other files, for pods of the instance.
func (in *instance) clientImage(program string) string {
	in.t.Helper()
	b, err := os.ReadFile(clientProgram(in.t, program))
	if err != nil {
		in.t.Fatal(err)
	}
	name := "monopod.test/" + program + ":1"
	img := testimages.FromFiles(in.t, []testimages.File{{Path: "bin/" + program, Content: b, Mode: 0o755}}, nil)
	testimages.ArchiveOf(in.t, filepath.Join(in.dir, "images", program+".tar"), img, name)
	return name
}

// clientPod is a pod that uses the API with a role, by its own token.
func clientPod(name, role, image string, command ...string) string {
	quoted := make([]string, len(command))
	for i, word := range command {
		quoted[i] = strconv.Quote(word)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {monopod.dev/api-access: %s}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: %s, command: [%s]}
`, name, role, image, strings.Join(quoted, ", "))
}

// logsIfFailed logs the output of a pod in a test that has failed.
func (in *instance) logsIfFailed(k *kubectl, pod string) {
	if !in.t.Failed() {
		return
	}
	if out, err := exec.Command(k.program, "--kubeconfig="+k.kubeconfig, "logs", pod, "--tail=40").CombinedOutput(); len(out) > 0 { // the context of the test has ended
		in.t.Logf("%s: %v\n%s", pod, err, out)
	}
}

// with returns a different program with the same credentials.
func (k *kubectl) with(t *testing.T, program string) *kubectl {
	t.Helper()
	return &kubectl{t: t, program: clientProgram(t, program), kubeconfig: k.kubeconfig, env: k.env}
}

// TestClientOfTwoMinorsAgo: kubectl 1.35 does what kubectl 1.37 does.
func TestClientOfTwoMinorsAgo(t *testing.T) {
	testEachCommand(t, func(t *testing.T, k *kubectl) *kubectl {
		old := k.with(t, "kubectl-1.35")
		if out := old.prints("version", "--client"); !strings.Contains(out, "v1.35") {
			t.Errorf("it is %s", out)
		}
		return old
	})
}

// TestClientHelm: three charts are installed, upgraded, rolled back and removed by both supported Helm versions.
func TestClientHelm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ program, atomic string }{
		{"helm3", "--atomic"},
		{"helm4", "--rollback-on-failure"}, // applies with server-side apply, and waits with watches
	} {
		t.Run(tt.program, func(t *testing.T) {
			t.Parallel()
			in, admin := servesKubernetes(t)
			h := &helm{in: in, admin: admin, helm: admin.with(t, tt.program), atomic: tt.atomic}
			h.web(t)
			h.store(t)
			h.batch(t)
			if out := admin.prints("get", "deployments,statefulsets,daemonsets,services,configmaps", "-o", "name"); out != "service/kubernetes\nconfigmap/kube-root-ca.crt\n" {
				t.Errorf("left behind: %s", out)
			}
		})
	}
}

// helm tests one version of Helm.
type helm struct {
	in          *instance
	admin, helm *kubectl
	atomic      string
}

// web: rollouts with --wait, Services in a test of the chart, and rollouts that fail.
func (h *helm) web(t *testing.T) {
	h.helm.says([][2]string{
		{"install web testdata/charts/web --dry-run=server", "kind: Deployment"},
		{"install web testdata/charts/web --wait --timeout=60s", "The page of web says hello."},
		{"list", "deployed"},
		{"status web", "STATUS: deployed"},
		{"get manifest web", "kind: Deployment"},
		{"test web --timeout=60s", "Succeeded"},
		{"upgrade web testdata/charts/web --set greeting=bye,replicas=1 --wait --timeout=60s", "The page of web says bye."},
		{"test web --timeout=60s", "Succeeded"},
		{"get values web", "greeting: bye"},
	})
	h.admin.says([][2]string{
		{"get deployment web", "1/1"},
		{"get job web-pre-install", "Complete"},
		{"logs job/web-pre-install", "pre-install of revision 1"},
		{"logs job/web-post-upgrade", "post-upgrade of revision 2"},
	})
	h.helm.says([][2]string{
		{"rollback web 1 --wait --timeout=60s", "Rollback was a success"},
		{"history web", "Rollback to 1"},
		{"test web --timeout=60s", "Succeeded"},
	})
	for _, line := range []string{
		"upgrade web testdata/charts/web --set fails=true --timeout=6s ",
		"install bad testdata/charts/web --set fails=true --timeout=6s ",
	} {
		if out, errs, code := h.helm.try("", strings.Fields(line+h.atomic)...); code == 0 || strings.Contains(errs, "an error occurred while") {
			t.Errorf("%s: exit code %d\n%s%s", line, code, out, errs)
		}
	}
	h.helm.says([][2]string{
		{"status web", "STATUS: deployed"},
		{"history web --max=1", "Rollback to 3"},
		{"test web --timeout=60s", "Succeeded"},
	})
	if out := h.helm.prints("list", "--all-namespaces", "--short"); strings.TrimSpace(out) != "web" {
		t.Errorf("releases: %s", out)
	}
	if out := h.admin.prints("get", "deployments,services", "-o", "name"); strings.Contains(out, "bad") {
		t.Errorf("left of what failed: %s", out)
	}
	h.helm.says([][2]string{{"uninstall web --wait --timeout=60s", "uninstalled"}})
	h.admin.says([][2]string{{"delete job/web-pre-install job/web-post-upgrade pod/web-test --grace-period=1", "deleted"}})
}

// store: a StatefulSet, a headless Service, a Secret, and hooks of all types.
func (h *helm) store(t *testing.T) {
	password := func(want string) {
		t.Helper()
		for _, pod := range []string{"store-0", "store-1"} {
			if out := h.admin.prints("logs", pod); out != "password "+want+"\n" {
				t.Errorf("%s: %s", pod, out)
			}
		}
	}
	h.helm.says([][2]string{{"upgrade --install -n data --create-namespace store testdata/charts/store --wait --timeout=60s", "STATUS: deployed"}})
	h.admin = h.inNamespace("data")
	password("first")
	h.helm.says([][2]string{{"-n data upgrade store testdata/charts/store --set password=second --wait --timeout=60s", "REVISION: 2"}})
	password("second")
	h.helm.says([][2]string{
		{"-n data rollback store --wait --timeout=60s", "Rollback was a success"},
		{"-n data get hooks store", "post-rollback"},
	})
	password("first")
	h.helm.says([][2]string{{"-n data uninstall store --wait --timeout=60s", "uninstalled"}})
	if out := h.admin.prints("get", "all,secrets,configmaps", "-o", "name"); out != "configmap/kube-root-ca.crt\n" {
		t.Errorf("left behind: %s", out)
	}
	h.admin = h.inNamespace("default")
	h.admin.says([][2]string{{"delete namespace data --timeout=60s", "deleted"}})
}

// inNamespace returns an admin client with a default namespace.
func (h *helm) inNamespace(namespace string) *kubectl {
	h.admin.prints("config", "set-context", "--current", "--namespace="+namespace)
	return h.admin
}

// batch: a DaemonSet, Jobs, a CronJob, a ConfigMap that is a hook, and a Secret that is kept.
func (h *helm) batch(t *testing.T) {
	h.helm.says([][2]string{
		{"install batch testdata/charts/batch --wait --wait-for-jobs --timeout=60s", "STATUS: deployed"},
		{"upgrade batch testdata/charts/batch --set note=two --wait --wait-for-jobs --timeout=60s", "REVISION: 2"},
	})
	h.admin.says([][2]string{
		{"get daemonset batch", "1"},
		{"exec daemonset/batch -- sh -c env", "token=batch-two"},
		{"logs job/batch-2", "two"},
		{"get cronjob batch -o jsonpath={.spec.jobTemplate.spec.template.spec.containers[0].command}", "two"},
	})
	h.helm.says([][2]string{
		{"rollback batch 1 --wait --wait-for-jobs --timeout=60s", "Rollback was a success"},
		{"list --output=json", `"revision":"3"`},
	})
	h.admin.says([][2]string{{"exec daemonset/batch -- sh -c env", "token=batch-one"}})
	h.helm.says([][2]string{{"uninstall batch --wait --timeout=60s", "kept due to the resource policy"}})
	h.admin.says([][2]string{
		{"get secret batch", "Opaque"},
		{"delete secret/batch configmap/batch-before", "deleted"},
	})
	h.in.eventually("its pods are gone", func() error {
		if out := h.admin.prints("get", "pods", "-o", "name"); strings.Contains(out, "batch") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
