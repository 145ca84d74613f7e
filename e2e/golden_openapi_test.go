//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"monopod/e2e/golden"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/openapi/generate"
)

// goldenOpenAPI compares the schemas of all kinds that both servers serve: those of Kubernetes, pruned to what monopod serves, and those of
// monopod without its own groups.
func goldenOpenAPI(t *testing.T, kube, own *golden.Server) []golden.Difference {
	t.Helper()
	var all []golden.Difference
	compare := func(name string, want, have any) {
		step := golden.Step{Name: "OpenAPI " + name, Do: "GET /openapi"}
		all = append(all, golden.Compare(&step, &golden.Answer{Body: want}, &golden.Answer{Body: have})...)
	}
	index := map[string]any{}
	paths := goldenJSON(t, kube, "/openapi/v3")["paths"].(map[string]any)
	ownPaths := goldenJSON(t, own, "/openapi/v3")["paths"].(map[string]any)
	for _, gv := range (kinds.Served{}).GroupVersions() {
		path := "apis/" + gv.String()
		if gv.Group == "" {
			path = "api/" + gv.Version
		}
		if isOwnGroup(gv.Group) {
			delete(ownPaths, path)
			continue
		}
		index[path] = paths[path]
		want := generate.Prune(goldenJSON(t, kube, "/openapi/v3/"+path), false)
		compare("version 3 of "+path, want, goldenJSON(t, own, "/openapi/v3/"+path))
	}
	compare("index", goldenPaths(index), goldenPaths(ownPaths))
	want := generate.Prune(goldenProtobuf(t, kube), true)
	have := goldenProtobuf(t, own)
	for _, key := range []string{"definitions", "paths"} {
		maps.DeleteFunc(have[key].(map[string]any), func(name string, _ any) bool { return isOwnGroup(name) })
	}
	withoutEmpty(want)
	withoutEmpty(have)
	compare("version 2", want, have)
	return all
}

// withoutEmpty removes empty descriptions, which protobuf does not distinguish from missing ones.
func withoutEmpty(value any) {
	switch v := value.(type) {
	case map[string]any:
		if v["description"] == "" {
			delete(v, "description")
		}
		for _, below := range v {
			withoutEmpty(below)
		}
	case []any:
		for _, below := range v {
			withoutEmpty(below)
		}
	}
}

// isOwnGroup reports whether a group, a path or the name of a schema is not one of kube-apiserver.
func isOwnGroup(name string) bool {
	for _, own := range []string{"monopod.dev", "dev.monopod", "metrics.k8s.io", "io.k8s.metrics"} {
		if strings.Contains(name, own) {
			return true
		}
	}
	return false
}

// goldenPaths returns the paths of an index, without the hashes in the addresses.
func goldenPaths(index map[string]any) any {
	all := map[string]any{}
	for path, entry := range index {
		address, _, _ := strings.Cut(fmt.Sprint(entry), "?hash=")
		all[path] = address
	}
	return all
}

func goldenJSON(t *testing.T, s *golden.Server, path string) map[string]any {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(goldenGet(t, s, path, "application/json"), &document); err != nil {
		t.Fatalf("%s: %s: %v", s.Name, path, err)
	}
	return document
}

// goldenProtobuf returns the document of version 2 that client-go reads.
func goldenProtobuf(t *testing.T, s *golden.Server) map[string]any {
	t.Helper()
	var document openapi_v2.Document
	if err := proto.Unmarshal(goldenGet(t, s, "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"), &document); err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	text, err := document.YAMLValue("")
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := yaml.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

func goldenGet(t *testing.T, s *golden.Server, path, media string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", media)
	res, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || len(body) == 0 {
		t.Fatalf("%s: %s: %s, %v, %s", s.Name, path, res.Status, err, bytes.TrimSpace(body[:min(len(body), 300)]))
	}
	return body
}
