//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"monopod/node/apiserver/apitest"
)

// kubectlRow is what a kubectl command must do.
type kubectlRow struct {
	// command is its name, as `kubectl --help` lists it.
	command string
	// step is the one of kubectlSteps that runs it and checks its effect. Otherwise this table does, with the words of args; DIR and IMAGE
	// are replaced.
	step, args string
	// fate is what must happen.
	fate kubectlFate
	// want is a part of its output.
	want string
	// effect is a command that prints exactly shows afterwards.
	effect, shows string
	// env is added to its environment.
	env string
}

// kubectlFate is what must happen to a command.
type kubectlFate int

const (
	mustWork kubectlFate = iota
	mustFail             // by monopod, or because it does not serve a kind
	needsNoServer
)

// kubectlSteps run commands, each on an instance of its own. Each checks effects.
var kubectlSteps = map[string]func(k *kubectl, in *instance){
	"reads":   func(k *kubectl, _ *instance) { k.reads() },
	"writes":  (*kubectl).writes,
	"streams": (*kubectl).streams,
	"others":  (*kubectl).others,
	"running": (*kubectl).changesRunningPods,
	"debugs":  (*kubectl).debugs,
	"copies":  (*kubectl).debugsCopiesAndTheNode,
}

// kubectlTable has every command, in the order in which they run.
var kubectlTable = slices.Concat([]kubectlRow{
	{command: "version", args: "version", want: "Server Version: v1."},
	{command: "api-resources", args: "api-resources --verbs=list -o name", want: "deployments.apps"},
	{command: "api-versions", args: "api-versions", want: "monopod.dev/v1alpha1"},
	{command: "cluster-info", args: "cluster-info", want: "is running at"},
	{command: "auth", fate: needsNoServer, args: "auth --help", want: "Available Commands"},
	{command: "auth can-i", args: "auth can-i create pods", want: "yes"},
	{command: "auth whoami", args: "auth whoami", want: "admin"},
	{command: "auth reconcile", fate: mustFail, args: "auth reconcile -f DIR/rbac.yaml", want: noSuchKind},
	{command: "explain", args: "explain deployment.spec.replicas", want: "FIELD: replicas"},
	{command: "get", args: "get pods file", want: "Running"},

	{command: "apply", args: "apply -f DIR/shop.yaml", want: "created", effect: "get deployment shop -o jsonpath={.spec.replicas}", shows: "2"},
	{command: "apply view-last-applied", args: "apply view-last-applied deployment/shop", want: "replicas: 2"},
	{command: "apply edit-last-applied", args: "apply edit-last-applied deployment/shop", want: "edited", env: "EDITOR=sed -i s/replicas:.2/replicas:\\ 5/"},
	{command: "apply view-last-applied", args: "apply view-last-applied deployment/shop", want: "replicas: 5"},
	{command: "apply set-last-applied", args: "apply set-last-applied -f DIR/shop.yaml", want: "configured"},
	{command: "apply view-last-applied", args: "apply view-last-applied deployment/shop", want: "replicas: 2"},
	{command: "scale", args: "scale deployment shop --replicas=1", want: "scaled", effect: "get deployment shop -o jsonpath={.spec.replicas}", shows: "1"},
	{command: "rollout status", args: "rollout status deployment/shop --timeout=60s", want: "successfully rolled out", effect: "get deployment shop -o jsonpath={.status.updatedReplicas}{.status.readyReplicas}", shows: "11"},
	{command: "label", args: "label deployment shop team=a", want: "labeled", effect: "get deployments -l team=a -o name", shows: "deployment.apps/shop"},
	{command: "label", args: "label node e2e disk=ssd", want: "labeled", effect: "get nodes -l disk=ssd -o name", shows: "node/e2e"},
	{command: "label", args: "label node e2e disk-", want: "unlabeled", effect: "get nodes -l disk -o name", shows: ""},
	{command: "annotate", args: "annotate node e2e note=b", want: "annotated", effect: "get node e2e -o jsonpath={.metadata.annotations.note}", shows: "b"},
	{command: "annotate", args: "annotate deployment shop note=b", want: "annotated", effect: "get deployment shop -o jsonpath={.metadata.annotations.note}", shows: "b"},
	{command: "describe", args: "describe deployment shop", want: "1 desired"},
	{command: "events", args: "events --for=pod/file", want: "Started"},
	{command: "logs", args: "logs file", want: "from a file"},
	{command: "exec", args: "exec file -- echo inside", want: "inside"},
	{command: "expose", args: "expose deployment shop --name=exposed --port=81 --target-port=8080", want: "exposed", effect: "get service exposed -o jsonpath={.spec.ports[0].targetPort}", shows: "8080"},
	{command: "wait", args: "wait --for=condition=Ready pod/file --timeout=10s", want: "condition met"},
	{command: "cluster-info dump", args: "cluster-info dump", want: `"kind": "PodList"`},
	{command: "run", args: "run ran --image=IMAGE --restart=Never -- sleep 3600", want: "created", effect: "get pod ran -o jsonpath={.spec.containers[0].args}", shows: `["sleep","3600"]`},
	{command: "patch", args: "patch deployment shop --type=merge -p {\"spec\":{\"minReadySeconds\":1}}", want: "patched", effect: "get deployment shop -o jsonpath={.spec.minReadySeconds}", shows: "1"},
	{command: "edit", args: "edit deployment shop", want: "edited", env: "EDITOR=sed -i s/minReadySeconds:.1/minReadySeconds:\\ 0/", effect: "get deployment shop -o jsonpath={.spec.minReadySeconds}", shows: ""},
	{command: "set", fate: needsNoServer, args: "set --help", want: "Available Commands"},
	{command: "set env", args: "set env deployment/shop WORD=new", want: "env updated", effect: "get deployment shop -o jsonpath={.spec.template.spec.containers[0].env[0].value}", shows: "new"},
	{command: "set image", args: "set image deployment/shop c=docker.io/IMAGE", want: "image updated", effect: "get deployment shop -o jsonpath={.spec.template.spec.containers[0].image}", shows: "docker.io/IMAGE"},
	{command: "set resources", args: "set resources deployment/shop --limits=cpu=100m", want: "updated", effect: "get deployment shop -o jsonpath={.spec.template.spec.containers[0].resources.limits.cpu}", shows: "100m"},
	{command: "set serviceaccount", args: "set serviceaccount deployment/shop default", want: "updated", effect: "get deployment shop -o jsonpath={.spec.template.spec.serviceAccountName}", shows: "default"},
	{command: "set selector", args: "set selector service/exposed app=other", want: "updated", effect: "get service exposed -o jsonpath={.spec.selector}", shows: `{"app":"other"}`},
	{command: "set subject", fate: mustFail, args: "set subject rolebinding x --user=a", want: "doesn't have a resource type"},
	{command: "autoscale", fate: mustFail, args: "autoscale deployment shop --max=3", want: "failed to create"},
	{command: "certificate", fate: needsNoServer, args: "certificate --help", want: "Available Commands"},
	{command: "certificate approve", fate: mustFail, args: "certificate approve x", want: "doesn't have a resource type"},
	{command: "certificate deny", fate: mustFail, args: "certificate deny x", want: "doesn't have a resource type"},
	{command: "taint", fate: mustFail, args: "taint node e2e a=b:NoSchedule", want: "node taints are not supported"},
	{command: "cordon", args: "cordon e2e", want: "cordoned", effect: "get node e2e -o jsonpath={.spec.unschedulable}", shows: "true"},
	{command: "drain", args: "drain e2e --force --pod-selector=run=ran --grace-period=1 --timeout=60s", want: "evicting pod default/ran", effect: "get pod ran --ignore-not-found -o name", shows: ""},
	{command: "uncordon", args: "uncordon e2e", want: "uncordoned", effect: "get node e2e -o jsonpath={.spec.unschedulable}", shows: ""},
}, createRows, localRows, []kubectlRow{
	{command: "attach", step: "others"},
	{command: "cp", step: "streams"},
	{command: "debug", step: "debugs"},
	{command: "debug", step: "copies"},
	{command: "delete", step: "others"},
	{command: "diff", step: "others"},
	{command: "port-forward", step: "streams"},
	{command: "proxy", step: "others"},
	{command: "replace", step: "others"},
	{command: "rollout", fate: needsNoServer, args: "rollout --help", want: "Available Commands"},
	{command: "rollout history", step: "others"},
	{command: "rollout pause", step: "others"},
	{command: "rollout restart", step: "writes"},
	{command: "rollout resume", step: "others"},
	{command: "rollout undo", step: "others"},
	{command: "top", fate: needsNoServer, args: "top --help", want: "Available Commands"},
	{command: "top node", step: "writes"},
	{command: "top pod", step: "writes"},
	{command: "logs", step: "running"},
	{command: "get", step: "reads"},
})

// createRows are `kubectl create` and all below it.
var createRows = []kubectlRow{
	{command: "create", args: "create -f DIR/words.yaml", want: "created", effect: "get configmap words -o jsonpath={.data.a}", shows: "b"},
	{command: "create clusterrole", fate: mustFail, args: "create clusterrole r --verb=get --resource=pods", want: noSuchKind},
	{command: "create clusterrolebinding", fate: mustFail, args: "create clusterrolebinding b --clusterrole=r --user=u", want: noSuchKind},
	{command: "create role", fate: mustFail, args: "create role r --verb=get --resource=pods", want: noSuchKind},
	{command: "create rolebinding", fate: mustFail, args: "create rolebinding b --role=r --user=u", want: noSuchKind},
	{command: "create ingress", fate: mustFail, args: "create ingress i --rule=a/b=c:80", want: noSuchKind},
	{command: "create poddisruptionbudget", fate: mustFail, args: "create poddisruptionbudget p --selector=a=b --min-available=1", want: noSuchKind},
	{command: "create quota", fate: mustFail, args: "create quota q --hard=pods=1", want: noSuchKind},
	{command: "create configmap", args: "create configmap made --from-literal=a=b", want: "created", effect: "get configmap made -o jsonpath={.data.a}", shows: "b"},
	{command: "create namespace", args: "create namespace team", want: "created", effect: "get namespace team -o jsonpath={.status.phase}", shows: "Active"},
	{command: "create cronjob", args: "create cronjob yearly --image=IMAGE --schedule=@yearly -- true", want: "created", effect: "get cronjob yearly -o jsonpath={.spec.schedule}", shows: "@yearly"},
	{command: "create job", args: "create job once --from=cronjob/yearly", want: "created", effect: "wait --for=condition=Complete job/once --timeout=60s", shows: "job.batch/once condition met"},
	{command: "create deployment", args: "create deployment made --image=IMAGE -- sleep 3600", want: "created", effect: "wait --for=condition=Available deployment/made --timeout=60s", shows: "deployment.apps/made condition met"},
	{command: "create priorityclass", args: "create priorityclass high --value=1000", want: "created", effect: "get priorityclass high -o jsonpath={.value}", shows: "1000"},
	{command: "create serviceaccount", args: "create serviceaccount robot", want: "created", effect: "get serviceaccount robot -o name", shows: "serviceaccount/robot"},
	{command: "create token", args: "create token robot", want: "ey"},
	{command: "create secret", fate: needsNoServer, args: "create secret --help", want: "Available Commands"},
	{command: "create secret generic", args: "create secret generic safe --from-literal=k=v", want: "created", effect: "get secret safe -o jsonpath={.data.k}", shows: "dg=="},
	{command: "create secret docker-registry", args: "create secret docker-registry pull --docker-username=u --docker-password=p", want: "created", effect: "get secret pull -o jsonpath={.type}", shows: "kubernetes.io/dockerconfigjson"},
	{command: "create secret tls", args: "create secret tls pair --cert=DIR/tls.crt --key=DIR/tls.key", want: "created", effect: "get secret pair -o jsonpath={.type}", shows: "kubernetes.io/tls"},
	{command: "create service", fate: needsNoServer, args: "create service --help", want: "Available Commands"},
	{command: "create service clusterip", args: "create service clusterip one --tcp=80:8080", want: "created", effect: "get service one -o jsonpath={.spec.type}{.spec.ports[0].targetPort}", shows: "ClusterIP8080"},
	{command: "create service nodeport", args: "create service nodeport two --tcp=80:8080", want: "created", effect: "get service two -o jsonpath={.spec.type}", shows: "NodePort"},
	{command: "create service loadbalancer", args: "create service loadbalancer three --tcp=82:8080", want: "created", effect: "get service three -o jsonpath={.spec.type}", shows: "LoadBalancer"},
	{command: "create service externalname", args: "create service externalname four --external-name=example.com", want: "created", effect: "get service four -o jsonpath={.spec.externalName}", shows: "example.com"},
}

const noSuchKind = "could not find the requested resource"

// localRows need no server: those of `kubectl config` change a file.
var localRows = []kubectlRow{
	{command: "help", fate: needsNoServer, args: "help", want: "kubectl controls"},
	{command: "options", fate: needsNoServer, args: "options", want: "--kubeconfig"},
	{command: "completion", fate: needsNoServer, args: "completion bash", want: "bash completion"},
	{command: "kustomize", fate: needsNoServer, args: "kustomize DIR/kustom", want: "name: made-"},
	{command: "plugin", fate: needsNoServer, args: "plugin --help", want: "Available Commands"},
	{command: "plugin list", fate: needsNoServer, args: "plugin list", want: "kubectl-hello", env: "PATH=DIR/bin"},
	{command: "kuberc", fate: needsNoServer, args: "kuberc --help", want: "Available Commands"},
	{command: "kuberc set", fate: needsNoServer, args: "kuberc set --kuberc=DIR/kuberc --section=defaults --command=get --option=output=wide"},
	{command: "kuberc view", fate: needsNoServer, args: "kuberc view --kuberc=DIR/kuberc", want: "wide"},
	{command: "config", fate: needsNoServer, args: "config --help", want: "Available Commands"},
	{command: "config set-cluster", fate: needsNoServer, args: "config set-cluster c --server=https://127.0.0.1:1", want: "set"},
	{command: "config set-credentials", fate: needsNoServer, args: "config set-credentials u --token=t", want: "set"},
	{command: "config set-context", fate: needsNoServer, args: "config set-context x --cluster=c --user=u", want: "created"},
	{command: "config use-context", fate: needsNoServer, args: "config use-context x", want: "Switched", effect: "config current-context", shows: "x"},
	{command: "config current-context", fate: needsNoServer, args: "config current-context", want: "x"},
	{command: "config rename-context", fate: needsNoServer, args: "config rename-context x y", want: "renamed", effect: "config current-context", shows: "y"},
	{command: "config get-contexts", fate: needsNoServer, args: "config get-contexts -o name", want: "y"},
	{command: "config get-clusters", fate: needsNoServer, args: "config get-clusters", want: "c"},
	{command: "config get-users", fate: needsNoServer, args: "config get-users", want: "u"},
	{command: "config set", fate: needsNoServer, args: "config set contexts.y.namespace team", want: "set", effect: "config view -o jsonpath={.contexts[0].context.namespace}", shows: "team"},
	{command: "config unset", fate: needsNoServer, args: "config unset contexts.y.namespace", want: "unset", effect: "config view -o jsonpath={.contexts[0].context.namespace}", shows: ""},
	{command: "config view", fate: needsNoServer, args: "config view", want: "https://127.0.0.1:1"},
	{command: "config delete-context", fate: needsNoServer, args: "config delete-context y", want: "deleted", effect: "config view -o jsonpath={.contexts[*].name}", shows: ""},
	{command: "config delete-user", fate: needsNoServer, args: "config delete-user u", want: "deleted", effect: "config view -o jsonpath={.users[*].name}", shows: ""},
	{command: "config delete-cluster", fate: needsNoServer, args: "config delete-cluster c", want: "deleted", effect: "config view -o jsonpath={.clusters[*].name}", shows: ""},
}

// commandsRun are the commands that steps have run with success, or started.
type commandsRun struct {
	mu    sync.Mutex
	found map[string]bool
	// passed are the steps that have passed.
	passed map[string]bool
}

// add records that a step has run a command with arguments; nil records nothing.
func (c *commandsRun) add(step string, args []string) {
	if c == nil {
		return
	}
	for len(args) > 2 && args[0] == "-n" {
		args = args[2:]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range args {
		c.found[step+": "+strings.Join(args[:n+1], " ")] = true
	}
}

// TestKubectlDoesEachCommand: every command of kubectl does what kubectlTable says.
func TestKubectlDoesEachCommand(t *testing.T) {
	if stale := testEachCommand(t, func(_ *testing.T, k *kubectl) *kubectl { return k }); len(stale) > 0 {
		t.Errorf("kubectl has no commands %v", stale)
	}
}

// testEachCommand tests all commands of the kubectl that use returns, and returns those of kubectlTable that it does not have.
func testEachCommand(t *testing.T, use func(t *testing.T, k *kubectl) *kubectl) (stale []string) {
	ran := &commandsRun{found: map[string]bool{}, passed: map[string]bool{}}
	listed := map[string]bool{}
	t.Run("steps", func(t *testing.T) {
		for name, step := range kubectlSteps {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				in, admin := servesKubernetes(t)
				k := use(t, admin)
				k.ran, k.step = ran, name
				step(k, in)
				ran.pass(name)
			})
		}
		t.Run("table", func(t *testing.T) {
			t.Parallel()
			in, admin := servesKubernetes(t)
			k := use(t, admin)
			for _, command := range k.commands() {
				listed[command] = true
			}
			k.doesRows(in, listed)
		})
	})
	known := map[string]bool{}
	for _, row := range kubectlTable {
		known[row.command] = true
		if ran.passed[row.step] && !ran.found[row.step+": "+row.command] {
			t.Errorf("%s: step %s does not run it", row.command, row.step)
		}
		if len(listed) > 0 && !listed[row.command] {
			stale = append(stale, row.command)
		}
	}
	// Below "alpha" is what has its own name in a later version: "alpha kuberc" in 1.35.
	maps.DeleteFunc(listed, func(command string, _ bool) bool {
		return command == "alpha" || known[strings.TrimPrefix(command, "alpha ")]
	})
	if len(listed) > 0 {
		t.Errorf("kubectlTable does not say what these commands do: %v", slices.Sorted(maps.Keys(listed)))
	}
	return stale
}

func (c *commandsRun) pass(step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed[step] = true
}

// commands lists all commands, as kubectl itself does.
func (k *kubectl) commands() []string {
	k.t.Helper()
	var all []string
	for name := range strings.FieldsSeq(k.prints("__completeNoDesc", "")) {
		if !strings.HasPrefix(name, ":") { // how the shell completes it
			all = append(all, k.below(name)...)
		}
	}
	if len(all) < 80 {
		k.t.Fatalf("kubectl lists only %v", all)
	}
	return all
}

// below returns a command and its subcommands.
func (k *kubectl) below(command string) []string {
	k.t.Helper()
	all, listing := []string{command}, false
	for line := range strings.Lines(k.prints(append(strings.Fields(command), "--help")...)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasSuffix(line, "Commands:"):
			listing = true
		case line == "":
			listing = false
		case listing && command != "help": // which repeats all
			all = append(all, k.below(command+" "+strings.Fields(line)[0])...)
		}
	}
	return all
}

// doesRows runs the rows of kubectlTable that no step runs.
func (k *kubectl) doesRows(in *instance, listed map[string]bool) {
	k.t.Helper()
	dir := k.t.TempDir()
	pair := apitest.NewAuthority(k.t).Issue(k.t, apitest.Request{Name: "pair"})
	for name, text := range map[string]string{
		"shop.yaml": fmt.Sprintf(shop, image), "words.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words}\ndata: {a: b}\n",
		"rbac.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: default}\nrules: []\n",
		"tls.crt":   string(pair.Cert), "tls.key": string(pair.Key), "bin/kubectl-hello": "#!/bin/sh\n",
		"kustom/kustomization.yaml": "configMapGenerator: [{name: made, literals: [a=b]}]\n", "local": "apiVersion: v1\nkind: Config\n", "kuberc": "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			k.t.Fatal(err)
		}
		in.write(path, text)
	}
	if err := os.Chmod(filepath.Join(dir, "bin", "kubectl-hello"), 0o755); err != nil {
		k.t.Fatal(err)
	}
	words := strings.NewReplacer("DIR", dir, "IMAGE", image)
	for _, row := range kubectlTable {
		if row.step != "" || !listed[row.command] { // two minor versions ago had fewer commands
			continue
		}
		user := *k
		if row.env != "" {
			user.env = append(slices.Clone(k.env), words.Replace(row.env))
		}
		if row.fate == needsNoServer {
			user.kubeconfig = filepath.Join(dir, "local")
		}
		out, errs, code := user.try("", strings.Fields(words.Replace(row.args))...)
		if (code != 0) != (row.fate == mustFail) || !strings.Contains(out+errs, row.want) {
			k.t.Errorf("kubectl %s: exit code %d, no %q in\n%s%s", row.args, code, row.want, out, errs)
		}
		if row.effect == "" {
			continue
		}
		if out, errs, code := user.try("", strings.Fields(words.Replace(row.effect))...); code != 0 || strings.TrimSpace(out) != words.Replace(row.shows) {
			k.t.Errorf("after kubectl %s, %s prints %q, not %q: exit code %d %s", row.args, row.effect, out, row.shows, code, errs)
		}
	}
}
