//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"monopod/node/kubeapi/kinds"
)

// inertAPI starts an instance that stores kinds without effect, and returns its admin client.
func inertAPI(t *testing.T, names []string) (*instance, *kubectl) {
	t.Helper()
	in := newInstance(t, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d', inertKinds: [%s]}", freePort(t), strings.Join(names, ", ")))
	in.start()
	return in, in.client("admin")
}

// resources returns the names of the inert resources, for kubectl.
func resources() string {
	var all []string
	for _, k := range kinds.All() {
		if k.Inert {
			all = append(all, k.Plural)
		}
	}
	return strings.Join(all, ",")
}

// TestClientHelmInstallsInertKinds: a chart with all of them is installed, upgraded, rolled back and removed, or fails before it changes
// anything.
func TestClientHelmInstallsInertKinds(t *testing.T) {
	t.Parallel()
	const chart = "app testdata/charts/inert"
	for _, program := range []string{"helm3", "helm4"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			in, admin := inertAPI(t, kinds.Inert())
			helm := admin.with(t, program)
			helm.says([][2]string{
				{"install " + chart + " --wait --timeout=60s", "NetworkPolicy has no effect: monopod stores it but does not act on it"},
				{"upgrade " + chart + " --set verb=list,replicas=2 --wait --timeout=60s", "Role has no effect"},
				{"status app", "STATUS: deployed"},
			})
			read := func(verb, least string) {
				t.Helper()
				admin.says([][2]string{
					{"get role app -o jsonpath={.rules[0].verbs[0]}", verb},
					{"get clusterrole app:reader -o jsonpath={.rules[0].verbs[0]}", verb},
					{"get ingress app", verb + ".example"},
					{"get pdb app", least},
					{"get rolebinding,clusterrolebinding -o wide", "default/app"},
					{"get netpol app -o jsonpath={.spec.policyTypes}", "Ingress"},
					{"get hpa app", "Deployment/app"},
					{"get quota app -o yaml", `pods: "` + least + `"`},
				})
			}
			read("list", "2")
			in.kill9()
			in.start()
			helm.says([][2]string{{"rollback app 1 --wait --timeout=60s", "Rollback was a success"}})
			read("get", "1")
			helm.says([][2]string{{"uninstall app --wait --timeout=60s", "uninstalled"}})
			if out := admin.prints("get", resources(), "-A", "-o", "name"); out != "" {
				t.Errorf("left behind: %s", out)
			}
			_, plain := inertAPI(t, nil)
			helm = plain.with(t, program)
			out, errs, code := helm.try("", strings.Fields("install "+chart)...)
			if code == 0 || !strings.Contains(errs, "no matches for kind") {
				t.Errorf("exit code %d\n%s%s", code, out, errs)
			}
			if out := plain.prints("get", "configmaps,secrets,serviceaccounts", "-o", "name"); strings.Contains(out, "app") {
				t.Errorf("it was installed in part: %s", out)
			}
		})
	}
}

// TestKubectlWritesInertKinds with the commands that only these kinds have, which send protobuf, and with apply and explain.
func TestKubectlWritesInertKinds(t *testing.T) {
	t.Parallel()
	in, admin := inertAPI(t, kinds.Inert())
	admin.says([][2]string{
		{"create namespace team", "created"},
		{"create role reader --verb=get --resource=pods -n team", "role.rbac.authorization.k8s.io/reader created"},
		{"create rolebinding reader --role=reader --user=ci -n team", "grants permissions"},
		{"create clusterrole reader --verb=get --resource=nodes", "created"},
		{"create clusterrolebinding reader --clusterrole=reader --user=ci", "created"},
		{"create quota small --hard=pods=1 -n team", "ResourceQuota has no effect"},
		{"create ingress web --rule=a.example/=web:80 -n team", "created"},
		{"create poddisruptionbudget web --selector=app=web --min-available=1 -n team", "created"},
		{"set subject rolebinding reader --group=ops -n team", "subjects updated"},
		{"label role reader a=b -n team", "labeled"},
		{"explain networkpolicy.spec.ingress", "ports"},
		{"explain role.rules.verbs", "<[]string>"},
		{"api-resources --api-group=rbac.authorization.k8s.io", "rolebindings"},
		{"describe role reader -n team", "pods"},
		{"get roles,ingresses,pdb -n team", "reader"},
	})
	review := `{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: ci, resourceAttributes: {namespace: team, verb: get, resource: pods}}}`
	if out := admin.gives(review, "create", "-f", "-", "-o", "jsonpath={.status.allowed}"); out != "false" {
		t.Errorf("a Role grants something: %s", out)
	}
	manifest := "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: team}, spec: {podSelector: {}}}"
	for _, way := range []string{"apply -f -", "apply --server-side --force-conflicts -f -", "diff -f -", "replace -f -"} {
		if out := admin.gives(manifest, strings.Fields(way)...); way != "diff -f -" && !strings.Contains(out, "networkpolicy.networking.k8s.io/deny") {
			t.Errorf("%s: %s", way, out)
		}
	}
	if _, errs, code := admin.try(strings.Replace(manifest, "podSelector", "podSelektor", 1), "apply", "-f", "-"); code == 0 || !strings.Contains(errs, "podSelektor") {
		t.Errorf("an unknown field: %d %s", code, errs)
	}
	for role, want := range map[string][2]int{"view": {1, 1}, "edit": {0, 1}} {
		k := in.client(role)
		k.says([][2]string{{"get role reader -n team", "reader"}, {"get clusterrole reader", "reader"}})
		for i, command := range []string{"create role x --verb=get --resource=pods -n team", "create clusterrole x --verb=get --resource=pods"} {
			if out, errs, code := k.try("", strings.Fields(command)...); min(code, 1) != want[i] {
				t.Errorf("%s as %s: %d %s%s", command, role, code, out, errs)
			}
		}
	}
	admin.says([][2]string{{"delete namespace team --timeout=60s", "deleted"}, {"delete clusterrole,clusterrolebinding --all", "deleted"}})
	if out := admin.prints("get", resources(), "-A", "-o", "name"); out != "" {
		t.Errorf("left behind: %s", out)
	}
}
