//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// others: commands that the other steps do not cover, as docs/kubernetes-api.md documents.
func (k *kubectl) others(in *instance) {
	admin, t := k, k.t
	t.Helper()
	admin.gives(fmt.Sprintf(shop, image), "apply", "-f", "-")
	admin.gives("", "create", "cronjob", "minutely", "--image="+image, "--schedule=* * * * *", "--", "sleep", "3600")
	admin.makes(t)
	admin.changes(t)
	admin.rollsBack(in)
	admin.streamsElse(in)
	admin.isRefused()
	admin.says([][2]string{
		{"drain e2e --force --ignore-daemonsets --timeout=60s", "drained"},
		{"uncordon e2e", "uncordoned"},
	})
	admin.deletes(in)
}

// deletes waits for the end of everything, also of what is made again.
func (k *kubectl) deletes(in *instance) {
	k.t.Helper()
	uid := func(what ...string) string {
		return k.prints(append(append([]string{"get"}, what...), "-o", "jsonpath={.items[*].metadata.uid}")...)
	}
	k.says([][2]string{{"rollout status deployment/shop --timeout=60s", "successfully rolled out"}})
	sets, pods := uid("rs", "-l", "app=shop"), uid("pods", "-l", "app=shop")
	if out, errs, code := k.try("", "annotate", "rs", "-l", "app=shop", "a=b"); code == 0 || !strings.Contains(errs, "it is defined in Deployment shop; change it there") {
		k.t.Errorf("a ReplicaSet is changed: %s%s", out, errs)
	}
	k.says([][2]string{
		{"delete rs -l app=shop --timeout=60s", "deleted"},
		{"rollout status deployment/shop --timeout=60s", "successfully rolled out"},
		{"delete configmaps,serviceaccounts --all --timeout=60s", "deleted"},
		{"delete events --all --timeout=60s", "deleted"},
		{"create namespace team", "created"},
		{"run one -n team --image=" + image + " -- sleep 3600", "created"},
		{"wait -n team --for=condition=Ready pod/one --timeout=60s", "condition met"},
		{"delete namespace team --timeout=120s", "deleted"},
		{"create namespace team", "created"},
	})
	if now := uid("rs", "-l", "app=shop"); now == sets || now == "" {
		k.t.Errorf("the ReplicaSet is %s, before %s", now, sets)
	}
	if now := uid("pods", "-l", "app=shop"); now == "" || strings.Contains(now, strings.Fields(pods)[0]) {
		k.t.Errorf("the pods are %s, before %s", now, pods)
	}
	var run string
	in.eventually("a CronJob has run", func() error {
		for name := range strings.FieldsSeq(k.prints("get", "jobs", "-o", "name")) {
			if strings.Contains(name, "/minutely-") {
				run = name
				return nil
			}
		}
		return fmt.Errorf("no run yet")
	})
	k.says([][2]string{{"delete " + run + " --timeout=60s", "deleted"}})
	if left := k.prints("get", "jobs", "-o", "name"); strings.Contains(left, run+"\n") {
		k.t.Errorf("%s is still there: %s", run, left)
	}
	k.says([][2]string{{"delete all --selector=!file --field-selector=metadata.name!=file --timeout=120s", "deleted"}})
}

func (k *kubectl) makes(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if out := k.gives("hello\n", "run", "once", "-i", "--rm", "--restart=Never", "--image="+image, "--", "sh", "-c", "read word; echo heard $word"); !strings.Contains(out, "heard hello") {
		t.Errorf("run -i --rm: %s", out) // it attaches
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("configMapGenerator: [{name: made, literals: [a=b]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.says([][2]string{
		{"create deployment made --image=" + image + " -- sleep 3600", "created"},
		{"create service clusterip one --tcp=80:8080", "created"},
		{"create service nodeport two --tcp=80:8080", "created"},
		{"create service externalname three --external-name=example.com", "created"},
		{"create cronjob yearly --image=" + image + " --schedule=@yearly -- true", "created"},
		{"create job now --from=cronjob/yearly", "created"},
		{"create secret docker-registry pull --docker-username=u --docker-password=p", "created"},
		{"create priorityclass high --value=1000", "created"},
		{"create token default", "ey"},
		{"expose deployment made --port=80 --target-port=8080", "exposed"},
		{"kustomize " + dir, "name: made-"},
		{"apply -k " + dir, "created"},
		{"describe service made", "8080"},
		{"describe cronjob yearly", "@yearly"},
		{"api-resources --verbs=list -o name", "pods"},
		{"cluster-info dump --output-directory=" + dir, "dumped"},
		{"config get-contexts", "admin@e2e"},
		{"auth can-i --list", "*.*"},
		{"explain deployment.spec --recursive", "replicas"},
	})
	k.prunes(dir)
}

// prunes: `kubectl apply --prune` removes what is no longer written. Its default list of kinds has Ingress, which is not served.
func (k *kubectl) prunes(dir string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("configMapGenerator: [{name: made, literals: [a=c]}]\n"), 0o600); err != nil {
		k.t.Fatal(err)
	}
	if out, errs, code := k.try("", "apply", "-k", dir, "--prune", "--all"); code == 0 || !strings.Contains(errs, "Kind=Ingress") {
		k.t.Errorf("apply --prune: exit code %d, %s%s", code, out, errs)
	}
	k.says([][2]string{{"apply -k " + dir + " --prune --all --prune-allowlist=core/v1/ConfigMap", "pruned"}})
}

func (k *kubectl) changes(t *testing.T) {
	t.Helper()
	k.says([][2]string{
		{"set image deployment/shop c=" + image, ""},
		{"set resources deployment/made --limits=cpu=100m,memory=64Mi", "updated"},
		{"set serviceaccount deployment/made default", "updated"},
		{"set selector service/one app=made", "updated"},
		{"rollout history deployment/made", "REVISION"},
		{"rollout pause deployment/made", "paused"},
		{"rollout resume deployment/made", "resumed"},
		{"apply view-last-applied deployment/shop", "replicas: 2"},
		{"patch deployment shop --subresource=scale --type=merge -p {\"spec\":{\"replicas\":1}}", "patched"},
		{"wait --for=jsonpath={.status.replicas}=1 deployment/shop --timeout=60s", "condition met"},
		{"get pods --watch-only --request-timeout=1s", ""},
	})
	k.env = append(k.env, "EDITOR=sed -i s/replicas:.1/replicas:\\ 2/")
	k.says([][2]string{
		{"edit deployment shop", "edited"},
		{"rollout status deployment/shop --timeout=60s", "successfully rolled out"}, // then its status does not change while it is replaced
		{"get deployment shop -o jsonpath={.spec.replicas}", "2"},
	})
	shop := k.prints("get", "deployment", "shop", "-o", "yaml")
	k.gives(shop, "replace", "-f", "-")
	k.gives(shop, "diff", "-f", "-") // no difference: exit code 0
	k.gives(shop, "replace", "--force", "-f", "-")
	k.says([][2]string{{"rollout status deployment/shop --timeout=60s", "successfully rolled out"}})
}

// past is a workload with revisions.
const past = `
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[4]s, annotations: {kubernetes.io/change-cause: first, team: a}}
spec:
  selector: {matchLabels: {app: past-%[1]s}}%[2]s
  template:
    metadata: {labels: {app: past-%[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: %[3]s, command: [sleep, "3600"]}]
`

// rollsBack: rollout history, undo, pause and resume of all kinds that have them.
func (k *kubectl) rollsBack(in *instance) {
	k.t.Helper()
	for kind, spec := range map[string]string{"deployment": "\n  replicas: 2", "statefulset": "\n  serviceName: past", "daemonset": ""} {
		camel := map[string]string{"deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet"}[kind]
		name := kind + "/" + kind // pods of workloads with one name would have one name
		rolled := [2]string{"rollout status " + name + " --timeout=60s", ""}
		word := [2]string{"get pods -l app=past-" + camel + " -o jsonpath={.items[0].spec.containers[0].env[?(@.name=='WORD')].value}", ""}
		k.gives(fmt.Sprintf(past, camel, spec, image, kind), "apply", "-f", "-")
		k.says([][2]string{
			rolled,
			{"set env " + name + " WORD=two", "env updated"},
			rolled,
			{"rollout history " + name, "\n2 "},
			{"rollout history " + name + " --revision=2", "two"},
			{"rollout undo " + name, "rolled back"},
			rolled,
			{"rollout history " + name, "\n3 "},
			{"get " + name + " -o jsonpath={.metadata.annotations.team}", "a"},
			{"rollout undo " + name + " --to-revision=3", "skipped rollback"},
		})
		if got := k.prints(strings.Fields(word[0])...); got != "" {
			k.t.Errorf("%s after a rollback: WORD is %q", kind, got)
		}
		k.says([][2]string{
			{"rollout undo " + name + " --to-revision=2", "rolled back"},
			rolled,
			{word[0], "two"},
		})
		if out := k.prints("rollout", "history", name); strings.Contains(out, "\n1 ") || strings.Contains(out, "\n2 ") || !strings.Contains(out, "\n4 ") {
			k.t.Errorf("history of %s: %s", kind, out)
		}
	}
	k.says([][2]string{
		{"get controllerrevisions", "statefulset.apps/statefulset"},
		{"describe deployment deployment", "OldReplicaSets:  deployment-"},
		{"rollout pause deployment/deployment", "paused"},
		{"set env deployment/deployment WORD=five", "env updated"},
		{"scale deployment/deployment --replicas=3", "scaled"},
		{"wait --for=jsonpath={.status.availableReplicas}=3 deployment/deployment --timeout=60s", "condition met"},
	})
	in.kill9()
	in.start()
	in.eventually("the paused Deployment runs as before", func() error {
		out, errs, _ := k.try("", "get", "deployment", "deployment", "-o", "jsonpath={.status.availableReplicas} {.status.updatedReplicas} {.status.conditions[?(@.type=='Progressing')].reason} {.metadata.annotations.deployment\\.kubernetes\\.io/revision}")
		if out != "3  DeploymentPaused 4" {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	words := "get pods -l app=past-Deployment -o jsonpath={.items[*].spec.containers[0].env[0].value}"
	k.says([][2]string{
		{words, "two two two"},
		{"rollout resume deployment/deployment", "resumed"},
		{"rollout status deployment/deployment --timeout=60s", "successfully rolled out"},
		{words, "five five five"},
		{"rollout history deployment/deployment", "\n5 "},
	})
	in.put("defined", fmt.Sprintf(past, "Deployment", "", image, "defined, labels: {file: ''}"))
	in.eventually("the Deployment of a file has a history", func() error {
		if out, errs, _ := k.try("", "rollout", "history", "deployment/defined"); !strings.Contains(out, "\n1 ") {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	in.put("defined", strings.Replace(fmt.Sprintf(past, "Deployment", "", image, "defined, labels: {file: ''}"), "3600", "3601", 1))
	in.eventually("and then two revisions", func() error {
		if out, errs, _ := k.try("", "rollout", "history", "deployment/defined"); !strings.Contains(out, "\n2 ") {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
}

// streamsElse: attach to what runs, logs with options, cp from a container, and kubectl's own proxy.
func (k *kubectl) streamsElse(in *instance) {
	k.t.Helper()
	k.gives("", "run", "talks", "--image="+image, "--stdin", "--leave-stdin-open", "--attach=false", "--", "sh", "-c", "echo started; while read word; do echo heard $word; done; sleep 3600")
	k.says([][2]string{
		{"wait --for=condition=Ready pod/talks --timeout=60s", "condition met"},
		{"logs -l run=talks --all-containers --prefix --timestamps", "[pod/talks/talks]"},
	})
	c := k.command("attach", "-i", "talks")
	typed, err := c.StdinPipe() // attach ends with it, as with containerd's CRI
	if err != nil {
		k.t.Fatal(err)
	}
	var out syncBuffer
	c.Stdout, c.Stderr = &out, &out
	k.runs(c)
	if _, err := io.WriteString(typed, "hello\n"); err != nil {
		k.t.Fatal(err)
	}
	in.eventually("attach prints the answer", func() error {
		if !out.contains("heard hello") {
			return fmt.Errorf("%s", out.String())
		}
		return nil
	})
	file := filepath.Join(k.t.TempDir(), "passwd")
	k.prints("cp", "talks:/etc/hostname", file)
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "talks") {
		k.t.Errorf("cp from a container: %q %v", b, err)
	}
	port := freePort(k.t)
	k.runs(k.command("proxy", fmt.Sprintf("--port=%d", port)))
	in.eventually("kubectl proxy answers", func() error {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/namespaces/default/pods/talks", port))
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", res.Status, body)
		}
		return nil
	})
	k.says([][2]string{{"delete pod talks --now", "deleted"}})
}

// isRefused: commands that need missing kinds, or would have no effect.
func (k *kubectl) isRefused() {
	k.t.Helper()
	for _, line := range [][2]string{
		{"autoscale deployment shop --max=3", "failed to create"},
		{"create role r --verb=get --resource=pods", "could not find the requested resource"},
		{"create quota q --hard=pods=1", "could not find the requested resource"},
		{"create poddisruptionbudget p --selector=a=b --min-available=1", "could not find the requested resource"},
		{"create ingress i --rule=a/b=c:80", "could not find the requested resource"},
		{"certificate approve x", "doesn't have a resource type"},
		{"set subject rolebinding x --user=a", "doesn't have a resource type"},
		{"rollout undo deployment/defined", "change it there"},
		{"taint node e2e a=b:NoSchedule", "node taints are not supported"},
		{"label node e2e kubernetes.io/arch=other --overwrite", "Forbidden"},
		{"label pods -l app=shop a=b", "change it there"},
	} {
		out, errs, code := k.try("", strings.Fields(line[0])...)
		if code == 0 || !strings.Contains(errs, line[1]) {
			k.t.Errorf("%s: exit code %d, no %q in\n%s%s", line[0], code, line[1], out, errs)
		}
	}
}
