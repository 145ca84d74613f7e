//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/node/apiserver/apitest"
)

// servesKubernetes starts an instance whose Kubernetes API listens, and returns it with an admin client.
func servesKubernetes(t *testing.T, extra ...string) (*instance, *kubectl) {
	t.Helper()
	in := newInstance(t, append([]string{fmt.Sprintf("apiServer: {address: '127.0.0.1:%d', namespaceAccess: {trusted: view}}", freePort(t))}, extra...)...)
	in.put("file", sleeper("file", "echo from a file"))
	in.start()
	in.ready("file")
	return in, in.client("admin")
}

// client returns kubectl with a role.
func (in *instance) client(role string) *kubectl {
	in.t.Helper()
	file := filepath.Join(in.dir, role+".kubeconfig")
	if out, err := in.run("kubeconfig", role, "--output", file); err != nil {
		in.t.Fatalf("kubeconfig: %v\n%s", err, out)
	}
	programs := apitest.Programs(in.t)
	return &kubectl{t: in.t, program: filepath.Join(programs, "kubectl"), kubeconfig: file, env: []string{"HOME=" + in.t.TempDir()}}
}

// gives runs a command with standard input that must succeed.
func (k *kubectl) gives(in string, args ...string) string {
	k.t.Helper()
	out, errs, code := k.try(in, args...)
	if code != 0 {
		k.t.Fatalf("%s %v: exit code %d\n%s%s", filepath.Base(k.program), args, code, out, errs)
	}
	return out + errs
}

// says runs commands and checks their output.
func (k *kubectl) says(lines [][2]string) {
	k.t.Helper()
	for _, line := range lines {
		out, errs, code := k.try("", strings.Fields(line[0])...)
		if code != 0 || !strings.Contains(out+errs, line[1]) {
			k.t.Errorf("%s %s: exit code %d, no %q in\n%s%s", filepath.Base(k.program), line[0], code, line[1], out, errs)
		}
	}
}

// reads: the commands that users try first.
func (k *kubectl) reads() {
	k.t.Helper()
	k.says([][2]string{
		{"version", "Server Version: v1."},
		{"api-resources", "sources "},
		{"api-versions", "monopod.dev/v1alpha1"},
		{"cluster-info", "is running at"},
		{"get nodes", "Ready"},
		{"get nodes -o wide", "containerd://"},
		{"describe node e2e", "Allocatable"},
		{"get namespaces", "kube-system"},
		{"get pods", "file"},
		{"get pods -A -o wide", "Running"},
		{"get pod file -o yaml", "kubernetes.io/config.source"},
		{"get pods -o name", "pod/file"},
		{"get pods -l app=file", "file"},
		{"get pods --field-selector status.phase=Running", "file"},
		{"get pods --sort-by .metadata.name", "file"},
		{"describe pod file", "Node:"},
		{"logs file", "from a file"},
		{"exec file -- echo inside", "inside"},
		{"get events", "Started"},
		{"events", "Started"},
		{"get all", "pod/file"},
		{"explain pod.spec.containers.image", "FIELD: image"},
		{"auth can-i create pods", "yes"},
		{"auth whoami", "admin"},
		{"get sources", "file.yaml"},
		{"get agents", "e2e"},
		{"get images", "sha256"},
		{"get revisions", "file"},
		{"get --raw /readyz", "ok"},
		{"wait --for=condition=Ready pod/file --timeout=10s", "condition met"},
	})
	out, errs, code := k.try("", "delete", "pod", "file", "--wait=false")
	if code == 0 || !strings.Contains(errs, "is defined in") {
		k.t.Errorf("a pod of a file was deleted: %d %s%s", code, out, errs)
	}
}

const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: %s
        command: [sh, -c, "trap 'exit 0' TERM; mkdir -p /tmp/w; echo served >/tmp/w/index.html; httpd -p 8080 -h /tmp/w; while :; do sleep 3600 & wait $!; done"]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  selector: {app: shop}
  ports: [{port: 80, targetPort: http}]
`

// writes: a Deployment is applied, read, changed, scaled and deleted.
func (k *kubectl) writes(in *instance) {
	k.t.Helper()
	k.gives(fmt.Sprintf(shop, image), "apply", "-f", "-")
	k.says([][2]string{
		{"rollout status deployment/shop --timeout=60s", "successfully rolled out"},
		{"get deployments", "2/2"},
		{"get replicasets", "shop-"},
		{"get endpointslices", "8080"},
		{"scale deployment shop --replicas=1", "scaled"},
		{"rollout status deployment/shop --timeout=60s", "successfully rolled out"},
		{"get deployment shop", "1/1"},
		{"label deployment shop team=a", "labeled"},
		{"annotate deployment shop note=b", "annotated"},
		{"set env deployment/shop WORD=new", "env updated"},
		{"rollout status deployment/shop --timeout=60s", "successfully rolled out"},
		{"exec deploy/shop -- sh -c env", "WORD=new"},
		{"exec deploy/shop -- touch /tmp/before", ""},
		{"rollout restart deployment/shop", "restarted"},
		{"rollout status deployment/shop --timeout=60s", "successfully rolled out"},
		{"exec deploy/shop -- test ! -e /tmp/before", ""},
		{"create namespace team", "created"},
		{"-n team create configmap words --from-literal=a=b", "created"},
		{"-n team get configmap words -o jsonpath={.data.a}", "b"},
		{"-n team patch configmap words --type=merge -p {\"data\":{\"a\":\"c\"}}", "patched"},
		{"-n team patch configmap words --type=json -p [{\"op\":\"replace\",\"path\":\"/data/a\",\"value\":\"d\"}]", "patched"},
		{"-n team get configmap words -o jsonpath={.data.a}", "d"},
		{"-n team create secret generic safe --from-literal=k=v", "created"},
		{"-n team get secret safe", "Opaque"},
		{"-n team create job once --image=" + image + " -- true", "created"},
		{"-n team wait --for=condition=Complete job/once --timeout=60s", "condition met"},
		{"-n team create serviceaccount robot", "created"},
		{"-n team run alone --image=" + image + " --restart=Never -- sleep 3600", "created"},
		{"-n team wait --for=condition=Ready pod/alone --timeout=60s", "condition met"},
		{"-n team delete pod alone --grace-period=1", "deleted"},
		{"cordon e2e", "cordoned"},
		{"get node e2e", "SchedulingDisabled"},
		{"uncordon e2e", "uncordoned"},
		{"delete namespace team --timeout=60s", "deleted"},
		{"top node", "e2e"},
		{"top pod -A", "shop"},
		{"delete deployment,service shop", "deleted"},
	})
	if out, _, code := k.try("", "get", "namespace", "team"); code == 0 {
		k.t.Errorf("the namespace is still there: %s", out)
	}
	in.eventually("its pods are gone", func() error {
		if out := k.prints("get", "pods", "-o", "name"); strings.Contains(out, "shop") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	// Server-side apply, with fields of several managers.
	words := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words}\ndata: {a: " + value + "}\n"
	}
	k.gives(words("one"), "apply", "--server-side", "--field-manager=first", "-f", "-")
	if out, errs, code := k.try(words("two"), "apply", "--server-side", "--field-manager=second", "-f", "-"); code == 0 || !strings.Contains(errs, "conflict") {
		k.t.Errorf("no conflict: %s%s", out, errs)
	}
	k.gives(words("two"), "apply", "--server-side", "--field-manager=second", "--force-conflicts", "-f", "-")
	if out, _, code := k.try(words("three"), "diff", "-f", "-"); code != 1 || !strings.Contains(out, "three") {
		k.t.Errorf("diff: exit code %d\n%s", code, out)
	}
	// Written objects outlive the daemon, uids included.
	uid := k.prints("get", "configmap", "words", "-o", "jsonpath={.metadata.uid} {.metadata.creationTimestamp}")
	in.kill9()
	in.start()
	if now := k.prints("get", "configmap", "words", "-o", "jsonpath={.metadata.uid} {.metadata.creationTimestamp}"); now != uid {
		k.t.Errorf("%s, before the restart %s", now, uid)
	}
}

// streams: port-forward, cp, attach, logs -f and the proxy.
func (k *kubectl) streams(in *instance) {
	t := k.t
	t.Helper()
	k.gives(sleeper("web", "mkdir -p /tmp/w; echo served >/tmp/w/index.html; httpd -p 8080 -h /tmp/w"), "apply", "-f", "-")
	in.ready("web")
	port := freePort(t)
	c := k.command("port-forward", "pod/web", fmt.Sprintf("%d:8080", port))
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	in.eventually("the port is forwarded", func() error {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if body, _ := io.ReadAll(res.Body); string(body) != "served\n" {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	if out := k.prints("get", "--raw", "/api/v1/namespaces/default/pods/web:8080/proxy/"); out != "served\n" {
		t.Errorf("proxy: %q", out)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("copied"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.prints("cp", file, "web:/tmp/there")
	if out := k.prints("exec", "web", "--", "cat", "/tmp/there"); out != "copied" {
		t.Errorf("cp: %q", out)
	}
	if out := k.gives("typed\n", "exec", "-i", "web", "--", "cat"); out != "typed\n" {
		t.Errorf("exec -i: %q", out)
	}
	if _, _, code := k.try("", "exec", "web", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("exit code %d", code)
	}
}

// TestKubectlOfEachRole: permissions of the roles, and their limits.
func TestKubectlOfEachRole(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	admin.prints("create", "secret", "generic", "safe", "--from-literal=k=v")
	view, edit := in.client("view"), in.client("edit")
	for _, tt := range []struct {
		who  *kubectl
		line string
		code int
		want string
	}{
		{view, "get pods", 0, "file"},
		{view, "get secrets", 1, "forbidden"},
		{view, "exec file -- true", 1, "forbidden"},
		{view, "create configmap a", 1, "forbidden"},
		{view, "logs file", 0, "from a file"},
		{view, "auth can-i create pods", 1, "no"},
		{edit, "create configmap a", 0, "created"},
		{edit, "get secrets", 0, "safe"},
		{edit, "run good --image=" + image + " --restart=Never -- true", 0, "created"},
		{edit, "run bad --image=" + image + ` --restart=Never --privileged -- true`, 1, "baseline"},
		{edit, "create service loadbalancer ssh --tcp=22:8080", 1, "opens ports of the machine"},
		{edit, "expose pod file --name=ssh --port=22 --external-ip=198.51.100.7", 1, "externalIPs"},
		{edit, "create service nodeport good --tcp=80:8080", 0, "created"},
		{edit, "cordon e2e", 0, "forbidden"}, // kubectl says so, and ends with 0
	} {
		out, errs, code := tt.who.try("", strings.Fields(tt.line)...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s%s", tt.line, code, tt.code, tt.want, out, errs)
		}
	}
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(serverOf(t, admin), "https://"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// serverOf returns the address in a kubeconfig.
func serverOf(t *testing.T, k *kubectl) string {
	t.Helper()
	return strings.TrimSpace(k.prints("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"))
}

// TestKubectlOnTheSocket: the same handlers serve root without a listener.
func TestKubectlOnTheSocket(t *testing.T) {
	t.Parallel()
	in := newInstance(t)
	in.put("file", sleeper("file", "true"))
	in.start()
	in.ready("file")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "curl", "-s", "--unix-socket", filepath.Join(in.state, "monopod.sock"), "http://monopod/api/v1/namespaces/default/pods").Output()
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil || list.Kind != "PodList" || len(list.Items) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
