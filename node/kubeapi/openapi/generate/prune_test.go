package generate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monopod/node/kubeapi/kinds"
)

func parse(t *testing.T, text string) (o object) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPathsAreThoseOfKinds(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods": "Pod", "/api/v1/namespaces/{namespace}/pods": "Pod", "/api/v1/namespaces/{namespace}/pods/{name}": "Pod name",
		"/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}": "Pod name proxy", "/api/v1/namespaces": "Namespace", "/api/v1/namespaces/{name}": "Namespace name",
		"/api/v1/namespaces/{name}/status": "Namespace name status", "/apis/apps/v1/deployments": "Deployment", "/apis/apps/v1/watch/deployments": "",
		"/apis/apps/v1/": "", "/api/v1/": "", "/version/": "", "/apis/rbac.authorization.k8s.io/v1/roles": "",
	} {
		k, sub, named := resourceOf(kinds.Served{}, path)
		got := ""
		if k != nil {
			got = k.Kind
			if named {
				got += " name"
			}
			got = strings.TrimSpace(got + " " + sub)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestADocumentIsPruned(t *testing.T) {
	got := prune(parse(t, `{
		"paths": {
			"/api/v1/endpoints": {"get": {"tags": ["x"], "responses": {"200": {"description": "OK", "content": {"application/cbor": {}, "application/json": {"schema": {"$ref": "#/components/schemas/List"}}}}, "401": {}}}, "delete": {}},
			"/api/v1/watch/endpoints": {"get": {}}, "/api/v1/limitranges": {"get": {}}, "/api/v1/": {"get": {}}
		},
		"components": {"securitySchemes": {}, "schemas": {
			"List": {"properties": {"items": {"items": {"$ref": "#/components/schemas/One"}}}}, "One": {"description": "one"}, "Other": {},
			"Pod": {"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}], "properties": {"x": {"allOf": [{"$ref": "#/components/schemas/Deep"}]}}},
			"Deep": {"type": "object"}, "Role": {"x-kubernetes-group-version-kind": [{"group": "rbac", "version": "v1", "kind": "Role"}]}
		}}
	}`), kinds.Served{}, false)
	want := parse(t, `{
		"paths": {"/api/v1/endpoints": {"get": {"responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/List"}}}}}}}},
		"components": {"schemas": {
			"List": {"properties": {"items": {"items": {"$ref": "#/components/schemas/One"}}}}, "One": {"description": "one"},
			"Pod": {"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}], "properties": {"x": {"allOf": [{"$ref": "#/components/schemas/Deep"}]}}},
			"Deep": {"type": "object"}
		}}
	}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVersion2HasNoDescriptions(t *testing.T) {
	got := prune(parse(t, `{
		"security": [], "parameters": {"a": {"in": "query", "name": "a", "description": "long"}, "b": {"in": "query"}},
		"paths": {"/api/v1/pods": {"get": {"description": "list", "produces": ["application/json", "application/cbor"], "parameters": [{"$ref": "#/parameters/a"}],
			"responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Pod"}}}}}},
		"definitions": {"Pod": {"description": "a pod", "properties": {"description": {"description": "a field", "type": "string"}}}}
	}`), kinds.Served{}, true)
	want := parse(t, `{
		"parameters": {"a": {"in": "query", "name": "a"}},
		"paths": {"/api/v1/pods": {"get": {"description": "", "produces": ["application/json"], "parameters": [{"$ref": "#/parameters/a"}],
			"responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/Pod"}}}}}},
		"definitions": {"Pod": {"properties": {"description": {"type": "string"}}}}
	}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOwnKindsAreDescribedByTheirTypes(t *testing.T) {
	d, err := Sources{Module: "../.."}.ownDocument(ownVersions()[1])
	if err != nil {
		t.Fatal(err)
	}
	schemas := d["components"].(object)["schemas"].(object)
	image := schemas["dev.monopod.v1alpha1.Image"].(object)
	size := image["properties"].(object)["sizeBytes"].(object)
	if size["type"] != "integer" || size["description"] != "SizeBytes is its size on disk, OwnBytes the part not shared with other images." {
		t.Errorf("%v", size)
	}
	status := schemas["dev.monopod.v1alpha1.Source"].(object)["properties"].(object)["status"].(object)
	if diff := cmp.Diff(object{"$ref": "#/components/schemas/dev.monopod.v1alpha1.SourceStatus"}, status); diff != "" {
		t.Error(diff)
	}
	if d["paths"].(object)["/apis/monopod.dev/v1alpha1/namespaces/{namespace}/revisions/{name}"] == nil {
		t.Error("no path of revisions")
	}
	v2 := object{"definitions": object{}}
	addVersion2(v2, d)
	if text, _ := json.Marshal(v2); strings.Contains(string(text), "allOf") || strings.Contains(string(text), "/components/") || strings.Contains(string(text), "on the disk") {
		t.Errorf("%s", text)
	}
}
