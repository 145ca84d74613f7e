package kinds_test

import (
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"monopod/manifests/document"
	"monopod/manifests/kinds"
)

// parsed decodes one document, of a file of that name.
func parsed(t *testing.T, file, text string) (map[string]any, document.Item) {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m, document.Item{Source: &document.Source{File: file, Doc: document.Document{Data: []byte(text), Line: 1}}}
}

func TestRefuseSaysWhatIsWrongWithTheKind(t *testing.T) {
	const (
		compose   = "this looks like a file of Docker Compose: write a Pod for each service, or have kompose convert it"
		chart     = "this looks like the Chart.yaml of a Helm chart: render the chart with `helm template` and use its output"
		values    = "this looks like the values of a Helm chart: render the chart with `helm template` and use its output"
		kustomize = "this looks like a kustomization: use the output of `kubectl kustomize DIR`"
	)
	for _, tt := range []struct {
		name, file, text string
		path, msg, hint  string
	}{
		{
			"no kind", "f.yaml", "metadata: {name: a}\n",
			"kind", "the kind is missing", "write apiVersion: v1 and kind: Pod",
		},
		{
			"a misspelled kind field", "f.yaml", "knd: Pod\n",
			"knd", "unknown field, and the kind is missing", `did you mean "kind"?`,
		},
		{
			"a number for a kind", "f.yaml", "kind: 1\n",
			"kind", "expected a string, found the number 1", "",
		},
		{
			"a number for a version", "f.yaml", "kind: Pod\napiVersion: 1\n",
			"apiVersion", "expected a string, found the number 1", "write apiVersion: v1",
		},
		{
			"a Pod without version", "f.yaml", "kind: Pod\n",
			"apiVersion", "the apiVersion is missing", "write apiVersion: v1",
		},
		{
			"a Pod of old", "f.yaml", "kind: Pod\napiVersion: v1beta3\n",
			"apiVersion", "apiVersion v1beta3 was removed in Kubernetes 1.0, and its fields differ from those of v1", "write apiVersion: v1",
		},
		{
			"a Deployment of another group", "f.yaml", "kind: Deployment\napiVersion: extensions/v1beta1\n",
			"apiVersion", "there is no Deployment in apiVersion extensions/v1beta1", "write apiVersion: apps/v1",
		},
		{
			"a list of another version", "f.yaml", "kind: JobList\napiVersion: v1\n",
			"apiVersion", "there is no JobList in apiVersion v1", "write apiVersion: batch/v1",
		},
		{
			"a misspelled kind", "f.yaml", "kind: Deploymnet\napiVersion: apps/v1\n",
			"", "there is no kind Deploymnet in apiVersion apps/v1", `did you mean "Deployment"?`,
		},
		{
			"an unknown kind", "f.yaml", "kind: Zebra\n",
			"", "kind Zebra without an apiVersion", "remove this document from the file",
		},
		{
			"Compose", "f.yaml", "services: {web: {image: nginx}}\n",
			"kind", "the kind is missing", compose,
		},
		{
			"a Helm chart by its fields", "f.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n",
			"kind", "the kind is missing", chart,
		},
		{
			"a Helm chart by its name", "dir/Chart.yaml", "description: a\n",
			"kind", "the kind is missing", chart,
		},
		{
			"values by their name", `dir\values-prod.yml`, "replicas: 2\n",
			"kind", "the kind is missing", values,
		},
		{
			"a kustomization by its fields", "f.yaml", "resources: [a.yaml]\n",
			"kind", "the kind is missing", kustomize,
		},
		{
			"a kustomization by its version", "f.yaml", "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\n",
			"kind", "a Component is not a manifest", kustomize,
		},
	} {
		m, it := parsed(t, tt.file, tt.text)
		p := kinds.Refuse(m, it)
		if p.Path != tt.path || p.Msg != tt.msg || p.Hint != tt.hint {
			t.Errorf("%s: at %q: %s; %s", tt.name, p.Path, p.Msg, p.Hint)
		}
	}
}

func TestIgnoredKindsAndWhy(t *testing.T) {
	const stored = "; the Kubernetes API can store it without effect: apiServer.inertKinds"
	for _, tt := range []struct {
		kind, version string
		note          string
		ignored       bool
	}{
		{"Ingress", "networking.k8s.io/v1", "monopod does not route HTTP to pods; publish a port with hostPort" + stored, true},
		{"ClusterRole", "rbac.authorization.k8s.io/v1", "apiServer.rules grants permissions" + stored, true},
		{"LimitRange", "v1", "it has no effect on a single machine" + stored, true},
		{"ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", "it configures an API server, and there is none", true},
		{"Namespace", "v1", "namespaces need not exist", true},
		{"Lease", "coordination.k8s.io/v1", "it has no effect on a single machine", true},
		{"Certificate", "cert-manager.io/v1", "no controller for it runs here", true},
		{"Lease", "v1", "", false},
		{"Kustomization", "kustomize.config.k8s.io/v1beta1", "", false},
		{"ConfigMap", "v1", "", false},
	} {
		note, ignored := kinds.Known().Ignores(tt.kind, tt.version)
		if ignored != tt.ignored || ignored && note != tt.note {
			t.Errorf("%s %s: %v, %s", tt.version, tt.kind, ignored, note)
		}
	}
}

func TestListElements(t *testing.T) {
	for _, tt := range []struct {
		kind, version, element string
		ok                     bool
	}{
		{"List", "v1", "", true},
		{"List", "v2", "", false},
		{"PodList", "v1", "Pod", true},
		{"DeploymentList", "apps/v1", "Deployment", true},
		{"DeploymentList", "v1", "Deployment", false},
		{"IngressList", "networking.k8s.io/v1", "Ingress", true},
		{"ZebraList", "v1", "Zebra", false},
		{"Pod", "v1", "", false},
	} {
		element, ok := kinds.ListElement(tt.kind, tt.version)
		if ok != tt.ok || element.Kind != tt.element {
			t.Errorf("%s %s: %v, %v", tt.version, tt.kind, element, ok)
		}
	}
}

func TestEveryKindCanBeMade(t *testing.T) {
	all := kinds.All()
	if !slices.IsSorted(all) || !slices.Contains(all, "Pod") || len(all) != len(kinds.Known().ByKind)+1 {
		t.Errorf("the kinds are %v", all)
	}
	for kind, info := range kinds.Known().ByKind {
		if info.New() == nil || info.Role == 0 || info.Version == "" {
			t.Errorf("%s: %+v", kind, info)
		}
		if !slices.Contains(kinds.Known().Names, kind) {
			t.Errorf("%s is not among the names that can be meant", kind)
		}
	}
}
