package openapi_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryclient "k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/openapi"
)

func serve(w http.ResponseWriter, r *http.Request) { handler(kinds.Served{})(w, r) }

func handler(served kinds.Served) http.HandlerFunc {
	h := openapi.New(served)
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.Serve(w, r) {
			http.NotFound(w, r)
		}
	}
}

// with selects inert kinds.
func with(inert ...string) kinds.Served { return kinds.Serve(inert) }

func client(t *testing.T, served kinds.Served) *discoveryclient.DiscoveryClient {
	t.Helper()
	s := httptest.NewServer(handler(served))
	t.Cleanup(s.Close)
	c, err := discoveryclient.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(path string, header ...string) *httptest.ResponseRecorder {
	return getOf(kinds.Served{}, path, header...)
}

func getOf(served kinds.Served, path string, header ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	handler(served)(w, r)
	return w
}

// spec is what kubectl reads in documents of version 3.
type spec struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas map[string]struct {
			Description string
			Kinds       []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			Properties  map[string]struct {
				Description string
				Strategy    string `json:"x-kubernetes-patch-strategy"`
				MergeKey    string `json:"x-kubernetes-patch-merge-key"`
			}
		}
	}
}

type operation struct {
	Kind        schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
	Parameters  []struct{ Name string }
	RequestBody struct{ Content map[string]any }
}

func document(t *testing.T, served kinds.Served, gv schema.GroupVersion) (s spec) {
	t.Helper()
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	if err := json.Unmarshal(getOf(served, path).Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEachKindHasASchemaWithDescriptions(t *testing.T) {
	for name, served := range map[string]kinds.Served{"default": {}, "inert": with(kinds.Inert()...)} {
		t.Run(name, func(t *testing.T) { describesEachKind(t, served) })
	}
}

func describesEachKind(t *testing.T, served kinds.Served) {
	t.Helper()
	documents := map[schema.GroupVersion]spec{}
	for _, gv := range served.GroupVersions() {
		documents[gv] = document(t, served, gv)
	}
	for _, k := range served.All() {
		found := false
		for _, s := range documents[k.GroupVersion()].Components.Schemas {
			for _, gvk := range s.Kinds {
				if gvk == k.GroupVersionKind {
					found = s.Description != "" && len(s.Properties) > 2
				}
			}
		}
		if !found {
			t.Errorf("%s has no schema", k.GroupVersionKind)
		}
		if !k.Allows("patch") {
			continue
		}
		patched := false
		for path, item := range documents[k.GroupVersion()].Paths {
			var o operation
			if item["patch"] == nil || !strings.HasSuffix(path, "/"+k.Plural+"/{name}") {
				continue
			}
			if err := json.Unmarshal(item["patch"], &o); err != nil {
				t.Fatal(err)
			}
			patched = o.Kind == k.GroupVersionKind && o.RequestBody.Content["application/strategic-merge-patch+json"] != nil
			valid := false
			for _, p := range o.Parameters {
				valid = valid || p.Name == "fieldValidation"
			}
			patched = patched && valid
		}
		if !patched {
			t.Errorf("%s: kubectl finds no PATCH", k.Kind)
		}
	}
	containers := documents[schema.GroupVersion{Version: "v1"}].Components.Schemas["io.k8s.api.core.v1.PodSpec"].Properties["containers"]
	if containers.Strategy != "merge" || containers.MergeKey != "name" || containers.Description == "" {
		t.Errorf("%+v", containers)
	}
	if doc := documents[schema.GroupVersion{Group: "monopod.dev", Version: "v1alpha1"}].Components.Schemas["dev.monopod.v1alpha1.Image"]; !strings.Contains(doc.Description, "image on the disk") {
		t.Errorf("%+v", doc)
	}
}

func TestOnlyWhatIsServedIsDescribed(t *testing.T) {
	core := document(t, kinds.Served{}, schema.GroupVersion{Version: "v1"})
	for path, methods := range map[string]string{
		"/api/v1/namespaces/{namespace}/pods": "delete get post", "/api/v1/namespaces/{namespace}/pods/{name}": "delete get patch put", "/api/v1/pods": "get",
		"/api/v1/nodes": "get", "/api/v1/nodes/{name}": "get patch put", "/api/v1/namespaces": "get post", "/api/v1/namespaces/{name}": "delete get patch put",
		"/api/v1/namespaces/{namespace}/pods/{name}/log": "get", "/api/v1/namespaces/{namespace}/endpoints": "get", "/api/v1/limitranges": "", "/api/v1/watch/pods": "",
		"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token": "post",
	} {
		var got []string
		for _, m := range []string{"delete", "get", "head", "options", "patch", "post", "put"} {
			if core.Paths[path][m] != nil {
				got = append(got, m)
			}
		}
		if strings.Join(got, " ") != methods {
			t.Errorf("%s: %v, want %s", path, got, methods)
		}
	}
	if _, there := core.Components.Schemas["io.k8s.api.core.v1.LimitRange"]; there {
		t.Error("LimitRange is described")
	}
}

func TestInertKindsAreDescribedIfTheyAreServed(t *testing.T) {
	policies := schema.GroupVersion{Group: "policy", Version: "v1"}
	for _, tt := range []struct {
		name         string
		served       kinds.Served
		core, policy bool
	}{
		{"none", kinds.Served{}, false, false},
		{"one of the core group", with("LimitRange"), true, false},
		{"one of another group", with("PodDisruptionBudget"), false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core := document(t, tt.served, schema.GroupVersion{Version: "v1"})
			if _, there := core.Components.Schemas["io.k8s.api.core.v1.LimitRange"]; there != tt.core || (core.Paths["/api/v1/limitranges"] != nil) != tt.core {
				t.Errorf("LimitRange is described: %v", there)
			}
			if got := getOf(tt.served, "/openapi/v3/apis/policy/v1").Code; (got == http.StatusOK) != tt.policy {
				t.Errorf("policy/v1: %d", got)
			}
			if got := getOf(tt.served, "/openapi/v3/api/v1%20inert").Code; got != http.StatusNotFound {
				t.Errorf("the name of a file: %d", got)
			}
			root := openapi3.NewRoot(client(t, tt.served).OpenAPIV3())
			found, err := root.GroupVersions()
			if err != nil || len(found) != len(tt.served.GroupVersions()) || slices.Contains(found, policies) != tt.policy {
				t.Error(found, err)
			}
			d, err := client(t, tt.served).OpenAPISchema()
			if err != nil {
				t.Fatal(err)
			}
			names := map[string]bool{}
			for _, s := range d.GetDefinitions().GetAdditionalProperties() {
				names[s.GetName()] = true
			}
			if some := tt.core || tt.policy; names["io.k8s.api.core.v1.LimitRange"] != some || names["io.k8s.api.policy.v1.PodDisruptionBudget"] != some || !names["io.k8s.api.core.v1.Pod"] {
				t.Errorf("version 2 has %d schemas", len(names))
			}
		})
	}
}

func TestClientsReadVersion3(t *testing.T) {
	root := openapi3.NewRoot(client(t, kinds.Served{}).OpenAPIV3())
	found, err := root.GroupVersions()
	if err != nil || len(found) != len(kinds.Served{}.GroupVersions()) {
		t.Fatal(found, err)
	}
	for _, gv := range []schema.GroupVersion{{Version: "v1"}, {Group: "monopod.dev", Version: "v1alpha1"}} {
		if s, err := root.GVSpec(gv); err != nil || len(s.Components.Schemas) == 0 || len(s.Paths.Paths) == 0 {
			t.Errorf("%s: %v", gv, err)
		}
	}
}

func TestClientsReadVersion2(t *testing.T) {
	d, err := client(t, kinds.Served{}).OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range d.GetDefinitions().GetAdditionalProperties() {
		names[s.GetName()] = true
	}
	if !names["io.k8s.api.core.v1.Pod"] || !names["dev.monopod.v1alpha1.Image"] || names["io.k8s.api.core.v1.LimitRange"] || len(d.GetPaths().GetPath()) < 50 {
		t.Errorf("%d schemas, %d paths", len(names), len(d.GetPaths().GetPath()))
	}
	var text struct{ Definitions, Paths map[string]any }
	if err := json.Unmarshal(get("/openapi/v2").Body.Bytes(), &text); err != nil || len(text.Definitions) != len(names) || len(text.Paths) != len(d.GetPaths().GetPath()) {
		t.Errorf("%v: JSON has %d schemas, %d paths", err, len(text.Definitions), len(text.Paths))
	}
}

func TestAnAddressWithAHashIsKept(t *testing.T) {
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get("/openapi/v3").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	url := index.Paths["apis/apps/v1"].ServerRelativeURL
	w := get(url)
	tag := w.Header().Get("ETag")
	if w.Code != 200 || w.Header().Get("Cache-Control") != "public, immutable" || tag == "" || w.Header().Get("Expires") == "" {
		t.Errorf("%s: %d %v", url, w.Code, w.Header())
	}
	path, _, _ := strings.Cut(url, "?")
	if w := get(path); w.Code != 200 || w.Header().Get("Cache-Control") == "public, immutable" {
		t.Errorf("without a hash: %d %v", w.Code, w.Header())
	}
	if w := get(path + "?hash=0"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != url {
		t.Errorf("with another hash: %d %v", w.Code, w.Header())
	}
	if w := get(path, "If-None-Match", `"x", `+tag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("unchanged: %d", w.Code)
	}
}

func TestDocumentsAreUnpackedForClientsWithoutGzip(t *testing.T) {
	zipped := get("/openapi/v3/api/v1", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(zipped.Body)
	if err != nil || zipped.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal(err, zipped.Header())
	}
	text, err := io.ReadAll(z)
	if plain := get("/openapi/v3/api/v1"); err != nil || plain.Body.String() != string(text) || plain.Header().Get("Content-Encoding") != "" {
		t.Errorf("%v: %d and %d bytes", err, len(text), plain.Body.Len())
	}
}

func TestOtherRequests(t *testing.T) {
	for path, want := range map[string]int{"/openapi": 404, "/openapi/v3/": 200, "/openapi/v3/apis/rbac.authorization.k8s.io/v1": 404, "/openapi/v2": 200, "/openapi/v20": 404} {
		if got := get(path).Code; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	for accept, want := range map[string]int{
		"application/com.github.proto-openapi.spec.v2@v1.0+protobuf": 200, "application/yaml": 406, "application/yaml, */*": 200, "application/json": 200,
	} {
		if got := get("/openapi/v2", "Accept", accept).Code; got != want {
			t.Errorf("%s: %d, want %d", accept, got, want)
		}
	}
	if got := get("/openapi/v3/api/v1", "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf").Code; got != http.StatusNotAcceptable {
		t.Errorf("version 3 as protobuf: %d", got)
	}
	w := httptest.NewRecorder()
	serve(w, httptest.NewRequest(http.MethodPost, "/openapi/v2", http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestTheDocumentsAreSmall(t *testing.T) {
	size := func(served kinds.Served) int {
		total := 0
		for _, gv := range served.GroupVersions() {
			path := "/openapi/v3/apis/" + gv.String()
			if gv.Group == "" {
				path = "/openapi/v3/api/" + gv.Version
			}
			total += getOf(served, path, "Accept-Encoding", "gzip").Body.Len()
		}
		return total + getOf(served, "/openapi/v2", "Accept-Encoding", "gzip").Body.Len()
	}
	if total := size(kinds.Served{}); total > 330_000 {
		t.Errorf("%d bytes", total)
	}
	if total := size(with(kinds.Inert()...)); total > 420_000 {
		t.Errorf("with inert kinds %d bytes", total)
	}
}
