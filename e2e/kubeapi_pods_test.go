//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// changesRunningPods: a resize down to the cgroup, Services and pods through the API server, logs while a container restarts,
// and a terminal whose size changes.
func (k *kubectl) changesRunningPods(in *instance) {
	k.t.Helper()
	sized := sleeper("sized", "true", "    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}")
	for _, text := range []string{sized, counts, sleeper("web", "mkdir -p /tmp/w; echo served >/tmp/w/index.html; httpd -p 8080 -h /tmp/w")} {
		k.gives(text, "apply", "-f", "-")
	}
	k.resizesAPod(in)
	k.followsLogs(in)
	k.reachesServices(in)
	k.changesItsTerminal()
}

func (k *kubectl) resizesAPod(in *instance) {
	k.t.Helper()
	before := in.ready("sized")
	k.gives("", "patch", "pod", "sized", "--subresource=resize", "--patch",
		`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "150m"}, "limits": {"cpu": "300m", "memory": "96Mi"}}}]}}`)
	in.pod("sized", "reports its new limits", func(p corev1.Pod) bool {
		r := p.Status.ContainerStatuses[0].Resources
		return r != nil && r.Limits.Cpu().String() == "300m" && r.Limits.Memory().String() == "96Mi"
	})
	for _, w := range []struct{ v2, v1, on2, on1 string }{
		{"memory.max", "memory/memory.limit_in_bytes", "100663296", "100663296"},
		{"cpu.max", "cpu/cpu.cfs_quota_us", "30000 100000", "30000"},
	} {
		for of, got := range map[string]string{"container": cgroupFile(k.t, in, before, w.v2, w.v1), "pod": readCgroup(k.t, podCgroup(in, before), w.v2, w.v1)} {
			if want := choose(w.on2, w.on1); got != want {
				k.t.Errorf("%s of the %s is %s, want %s", w.v2, of, got, want)
			}
		}
	}
	if after := in.ready("sized"); after.UID != before.UID || containerID(after, "c") != containerID(before, "c") || restarts(after) != 0 {
		k.t.Errorf("the resize restarted something: %s", brief(after))
	}
	if out := k.prints("get", "pod", "sized", "-o", "jsonpath={.spec.containers[0].resources.requests.cpu} {.spec.containers[0].resources.limits.memory}"); out != "150m 96Mi" {
		k.t.Errorf("its spec has %s", out)
	}
	for want, patch := range map[string]string{
		"only cpu and memory": `{"spec": {"containers": [{"name": "c", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}}`,
		"QOS":                 `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "300m", "memory": "96Mi"}}}]}}`,
	} {
		if out, errs, code := k.try("", "patch", "pod", "sized", "--subresource=resize", "--patch", patch); code == 0 || !strings.Contains(strings.ToUpper(errs), strings.ToUpper(want)) {
			k.t.Errorf("%s: exit code %d, no %q: %s%s", patch, code, want, out, errs)
		}
	}
}

// counts is a pod whose container numbers its instances, and ends when a file exists.
const counts = `apiVersion: v1
kind: Pod
metadata: {name: counts}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: ` + image + `
    command:
    - sh
    - -c
    - |
      trap 'exit 0' TERM
      n=$(($(cat /v/n || echo 0) + 1))
      echo $n >/v/n
      echo begin $n
      until [ -e /v/end$n ]; do sleep 0.1; done
      echo end $n
      exit 3
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
`

// followsLogs: as in a cluster, `logs -f` ends with the container, with all that it has written, and the next one follows the next container.
func (k *kubectl) followsLogs(in *instance) {
	k.t.Helper()
	in.ready("counts")
	k.prints("exec", "counts", "--", "rm", "-f", "/v/none")
	for n, want := range []string{"begin 1", "begin 2"} {
		if n > 0 {
			in.pod("counts", "has restarted", func(p corev1.Pod) bool { return isReady(p) && int(restarts(p)) == n })
		}
		lines, end := k.follows("logs", "--follow", "--ignore-errors", "counts")
		var said []string
		for lines.Scan() {
			line := lines.Text()
			if !strings.HasPrefix(line, "begin ") && !strings.HasPrefix(line, "end ") {
				continue // cat has no file at first
			}
			if said = append(said, line); line == want { // it is shown while the container runs
				k.prints("exec", "counts", "--", "touch", fmt.Sprintf("/v/end%d", n+1))
			}
		}
		end()
		if all := strings.Join(said, "\n"); all != fmt.Sprintf("begin %d\nend %[1]d", n+1) {
			k.t.Errorf("logs -f of the container number %d: %q", n+1, said)
		}
	}
	in.pod("counts", "has ended twice", func(p corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil
	})
	k.says([][2]string{{"logs counts --previous", "end"}, {"delete pod counts --now", "deleted"}})
}

// reachesServices: `kubectl get --raw` of the proxy of a Service and of a pod, by number and name of a port.
func (k *kubectl) reachesServices(in *instance) {
	k.t.Helper()
	in.ready("web")
	k.gives("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}\n", "apply", "-f", "-")
	k.gives("apiVersion: v1\nkind: Service\nmetadata: {name: idle}\nspec: {selector: {app: none}, ports: [{port: 80}]}\n", "apply", "-f", "-")
	const at = "/api/v1/namespaces/default/"
	for _, path := range []string{"services/web/proxy/", "services/web:80/proxy/index.html", "services/http:web:http/proxy/", "pods/web:8080/proxy/", "pods/http:web:8080/proxy/index.html"} {
		if out, errs, code := k.try("", "get", "--raw", at+path); code != 0 || out != "served\n" {
			k.t.Errorf("%s: exit code %d: %q %s", path, code, out, errs)
		}
	}
	for path, want := range map[string]string{
		"services/idle:80/proxy/": "no endpoints available", "services/web:81/proxy/": "no service port", "services/none/proxy/": "not found",
		"pods/none:80/proxy/": "not found", "services/web/proxy/missing": "could not find the requested resource",
	} {
		if out, errs, code := k.try("", "get", "--raw", at+path); code == 0 || !strings.Contains(strings.ToLower(errs), want) {
			k.t.Errorf("%s: exit code %d, no %q: %s%s", path, code, want, out, errs)
		}
	}
}

// changesItsTerminal: a command in a container sees the size of the user's terminal, at first and after a change.
func (k *kubectl) changesItsTerminal() {
	k.t.Helper()
	u := k.onTerminal(31, 101, "exec", "-it", "file", "--", "sh")
	u.reads("# ")
	for _, size := range []string{"31 101", "42 123"} {
		if size == "42 123" {
			u.resize(42, 123)
		}
		u.types([2]string{`until [ "$(stty size)" = "` + size + `" ]; do sleep 0.1; done; echo size of $((6*7))`, "size of 42"})
	}
	u.types([2]string{"tty; exit", "/dev/pts/"})
	u.ends()
}

// debugsCopiesAndTheNode: `kubectl debug --copy-to` and `kubectl debug node/NAME`. The default profile of kubectl 1.35 copies the annotation
// of mirror pods, which kube-apiserver rejects too: for pods from files it needs --profile=general, the default of 1.37.
func (k *kubectl) debugsCopiesAndTheNode(in *instance) {
	admin, t := k, k.t
	t.Helper()
	before := in.ready("file")
	out := admin.talks([][2]string{{"ps", "sleep 3600"}, {"echo $((6*7))", "42"}, {"exit", ""}},
		"debug", "-it", "file", "--copy-to=copy", "--image="+image, "--container=tools", "--share-processes", "--profile=general", "--", "sh")
	if !strings.Contains(out, "sleep 3600") {
		t.Errorf("it does not see the processes of the copy:\n%s", out)
	}
	admin.gives("", "debug", "file", "--copy-to=other", "--set-image=*="+image, "--container=c", "--profile=general", "--", "sleep", "1000")
	admin.says([][2]string{
		{"get pod copy -o jsonpath={.spec.containers[*].name}", "c tools"},
		{"wait --for=condition=Ready pod/other --timeout=60s", "condition met"},
		{"get pod other -o jsonpath={.spec.containers[0].command}", `["sleep","1000"]`},
		{"delete pod copy other --now", "deleted"},
	})
	if after := in.ready("file"); containerID(after, "c") != containerID(before, "c") {
		t.Error("the original was restarted")
	}

	mark := filepath.Join(in.dir, "mark")
	if err := os.WriteFile(mark, []byte("of the machine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out = admin.talks([][2]string{{"cat /host" + mark, "of the machine"}, {"tr '\\0' ' ' </proc/" + fmt.Sprint(in.cmd.Process.Pid) + "/cmdline", "--config"}, {"exit", ""}},
		"debug", "-it", "node/e2e", "--image="+image, "--", "sh")
	if !strings.Contains(out, "Creating debugging pod node-debugger-e2e-") {
		t.Errorf("a pod on the node: %s", out)
	}
	if _, errs, code := in.client("edit").try("", "debug", "node/e2e", "--image="+image, "--", "true"); code == 0 || !strings.Contains(errs, "baseline") {
		t.Errorf("with the role edit: exit code %d, %s", code, errs)
	}
	admin.says([][2]string{{"delete pods -l app.kubernetes.io/managed-by=kubectl-debug --now", "deleted"}})
}
