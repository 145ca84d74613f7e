package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/internal/testfiles"
	"monopod/node/kubeapi/access"
)

func TestValuesAboutTheServedAPI(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		// want are the key and a part of the message of each problem.
		want []string
	}{
		{"off", "{}", nil},
		{"everything", "address: 127.0.0.1:6443\n  maxConnections: 10\n  names: [edge.example, 192.0.2.1, '2001:db8::1', '*.edge.example']\n  tokenFile: /t\n  anonymous: true\n  rules: {'user:ci': [edit@team-a, 'get:/metrics'], 'group:ops': ['*']}", nil},
		{"all addresses", "address: '[::]:6443'", nil},
		{"no port", "address: 127.0.0.1", []string{`apiServer.address: "127.0.0.1" is not IP:PORT`}},
		{"no address", "address: ':6443'", []string{`apiServer.address: ":6443" is not IP:PORT`}},
		{"a name", "address: 'edge:6443'", []string{`apiServer.address: "edge:6443" is not IP:PORT`}},
		{"port 0", "address: '127.0.0.1:0'", []string{`apiServer.address: "127.0.0.1:0" is not IP:PORT`}},
		{"pods of Kubernetes", "podUpdates: Kubernetes", nil},
		{"pods of others", "podUpdates: never", []string{`apiServer.podUpdates: "never" is none of InPlace, Kubernetes`}},
		{"one connection", "maxConnections: 1", []string{"apiServer.maxConnections"}},
		{"names", "names: ['a b', 'edge:6443', UP]", []string{`"a b" is neither`, `"edge:6443" is neither`, `"UP" is neither`}},
		{"what namespaces give", "namespaceAccess: {monitoring: view, ops: rules}", nil},
		{"unknown rights", "namespaceAccess: {monitoring: root, Up: view}", []string{`; monitoring: "root" is none of view, edit`}},
		{"inert kinds", "inertKinds: [Role, PodDisruptionBudget]", nil},
		{"kinds that cannot be inert", "inertKinds: [Role, Pod, ingress]", []string{`apiServer.inertKinds: "Pod" is none of ClusterRole, `, `"ingress" is none of ClusterRole, `}},
		{"rules", "rules: {'user:ci': [views], ci: [view]}", []string{`apiServer.rules: "ci" is neither user:<name> nor group:<name>; user:ci: "views": "views" is neither a role`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), "apiServer:\n  "+tt.text+"\n")
			_, err := loadIn(dir, nil, nil)
			all, _ := errors.AsType[Problems](err)
			if len(all) != len(tt.want) {
				t.Fatalf("%d problems, want %d: %v", len(all), len(tt.want), err)
			}
			for i, p := range all {
				if got := p.Key + ": " + p.Msg; !strings.Contains(got, tt.want[i]) {
					t.Errorf("%s, want %s", got, tt.want[i])
				}
			}
		})
	}
}

func TestTheKindsThatAreServed(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "apiServer:\n  maxConnections: 9\n  inertKinds: [Role]\n")
	c, err := loadIn(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	role := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}
	if c.ServedKinds().ByKind(role) == nil || (&Config{}).ServedKinds().ByKind(role) != nil {
		t.Error("roles are served if they are named, and only then")
	}
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "apiServer:\n  maxConnections: 9\n  inertKinds: [Role, Roles]\n")
	_, err = loadIn(dir, nil, nil)
	if all, _ := errors.AsType[Problems](err); len(all) != 1 || !strings.HasSuffix(all[0].Where, "config.yaml:3") || !strings.Contains(err.Error(), `"Roles" is none of ClusterRole, `) {
		t.Errorf("%v", err)
	}
}

func TestTheRightsOfNamespacesAreThoseOfEachSource(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "apiServer: {namespaceAccess: {monitoring: view}}\n")
	c, err := loadIn(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[string]string{"": "view", "privileged": "view", "baseline": "", "restricted": ""} {
		c.StaticPodPathSecurity, c.RemoteSources = level, []RemoteSource{{Name: "fleet", PodSecurity: level}}
		for _, source := range []string{SourceFile, "fleet"} {
			if got := c.Policy(source).AccessIn("monitoring"); got != want {
				t.Errorf("%q of %s: %q, want %q", level, source, got, want)
			}
		}
	}
}

func TestRulesOfTheServedAPIApply(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "apiServer: {rules: {'user:ci': ['create:pods@team-a']}}\n")
	c, err := loadIn(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := access.NewPolicy(c.AccessRules())
	for namespace, want := range map[string]bool{"team-a": true, "team-b": false} {
		if got, _ := p.Allows(access.Attributes{User: access.User{Name: "ci"}, Verb: "create", Resource: "pods", Namespace: namespace}); got != want {
			t.Errorf("%s: %v", namespace, got)
		}
	}
	if c.APIServer.Address != "" || c.APIServer.MaxConnections != 256 || c.APIServer.Anonymous {
		t.Errorf("defaults: %+v", c.APIServer)
	}
}
