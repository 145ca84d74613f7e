package golden

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestScriptsAreExpanded(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"20-b.yaml":    "- {do: 'POST /b', as: Table}\n",
		"10-a.yaml":    "- {do: 'GET /$each', each: [x, 'y?a&b']}\n- {do: 'PUT /$each', each: [z], name: put, code: 409, body: {name: $each}}\n",
		"allowed.yaml": "[]",
	})
	steps, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	have, _ := json.Marshal(steps)
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, ", "); got != "GET /x, GET /y?a&b, put z, after put z, POST /b Table" || steps[0].Code != 200 || steps[2].Code != 409 || steps[4].Code != 201 ||
		string(steps[2].Body) != `{"name":"z"}` {
		t.Errorf("%s: %s", got, have)
	}
	for _, wrong := range []string{"- {do: GET /, each: [a]}", "[{do: GET /}, {do: GET /}]", "- {nothing: a}"} {
		if _, err := Load(write(t, map[string]string{"1.yaml": wrong})); err == nil {
			t.Errorf("%s is no error", wrong)
		}
	}
}

func body(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	const same = ""
	for _, c := range []struct{ want, have, paths string }{
		{`{"a": 1}`, `{"a": 1}`, same},
		{`{"a": 1, "b": 1}`, `{"a": 2, "c": 1}`, "a b c"},
		{
			`{"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}`,
			`{"metadata": {"uid": "11111111-0000-0000-0000-000000000000", "resourceVersion": "2", "creationTimestamp": "2026-01-02T00:00:00Z"}}`, same,
		},
		{`{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}`, `{"items": [{"metadata": {"name": "b"}}, {"metadata": {"name": "c"}}]}`, "items[a] items[c]"},
		{`{"name": "x-12345", "generateName": "x-"}`, `{"name": "x-abcde", "generateName": "x-"}`, same},
		{`{"message": "the pod web is not there"}`, `{"message": "the pod web was not found"}`, same},
		{`{"message": "the pod web is not there"}`, `{"message": "no"}`, "message"},
		{`{"token": "eyJh.eyJi._-c"}`, `{"token": "eyJh.eyJi.other"}`, same},
		{`{"token": "eyJh.eyJi._-c"}`, `{"token": ""}`, "token"},
		{`{"cells": ["80:30375/TCP"]}`, `{"cells": ["80:31110/TCP"]}`, same},
		{`{"jwks_uri": "https://127.0.0.1:41/x"}`, `{"jwks_uri": "https://127.0.0.1:42/x"}`, same},
		{`{"jwks_uri": "https://127.0.0.1:41/x"}`, `{"jwks_uri": "https://127.0.0.1:41/y"}`, "jwks_uri"},
		{`{"cells": ["80:30375/TCP"]}`, `{"cells": ["81:31110/TCP"]}`, "cells[0]"},
		{`{"cells": ["a", "1s"]}`, `{"cells": ["a", "2m3s"]}`, same},
		{`[{"type": "ADDED"}, {"type": "MODIFIED"}]`, `[{"type": "ADDED"}, {"type": "DELETED"}]`, "[1].type"},
		{`{"l": ["a", "b"]}`, `{"l": ["a"]}`, "l[1]"},
		{`{"a/b": 1}`, `{"a/b": 2}`, "'a/b'"},
	} {
		found := Compare(&Step{Name: "x"}, &Answer{Code: 200, Body: body(t, c.want)}, &Answer{Code: 200, Body: body(t, c.have)})
		var paths []string
		for _, d := range found {
			paths = append(paths, d.Path)
		}
		if got := strings.Join(paths, " "); got != c.paths {
			t.Errorf("%s and %s differ in %q, want %q", c.want, c.have, got, c.paths)
		}
	}
	d := Compare(&Step{}, &Answer{Code: 200}, &Answer{Code: 404, Body: body(t, `{"message": "none"}`)})
	if len(d) != 2 || d[0].Path != "code" || d[1].Have != "none" {
		t.Errorf("%v", d)
	}
}

func TestTheListOnlyShrinks(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"a.yaml": `
- {request: 'get *', path: [spec.a, 'spec.b[*]'], reason: r}
- {request: [list, get y], path: spec, reason: r}
- {request: put, path: code, want: 500, have: 400, reason: r}
`})
	list, err := LoadAllowed(filepath.Join(dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wrong, unused := Judge([]Difference{
		{Step: "get x", Path: "spec.a"},
		{Step: "get x", Path: "spec.a.b"},
		{Step: "get x", Path: "spec.b[c]"},
		{Step: "list", Path: "spec"},
		{Step: "lists", Path: "spec"},
		{Step: "put", Path: "code", Want: 500, Have: 200},
	}, list)
	if got := fmt.Sprint(wrong); got != "[{get x spec.a.b  <nil> <nil>} {lists spec  <nil> <nil>} {put code  500 200}]" {
		t.Errorf("not allowed: %s", got)
	}
	if got := fmt.Sprint(unused); got != "[[get y spec] [put code]]" { // each pair is used on its own
		t.Errorf("unused: %s", got)
	}
	if wrong, _ := Judge([]Difference{{Step: "put", Path: "code", Want: 500, Have: 400}}, list); len(wrong) != 0 {
		t.Errorf("not allowed: %v", wrong)
	}
	if n := Pairs(list); n != 5 {
		t.Errorf("%d pairs", n)
	}
}

// TestNoMoreDifferencesAreAllowed: who removes one lowers the limit. One more needs a reason in the change that raises it.
func TestNoMoreDifferencesAreAllowed(t *testing.T) {
	t.Parallel()
	list, err := LoadAllowed(filepath.Join("..", "testdata", "golden", "allowed.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const most = 523
	if n := Pairs(list); n > most {
		t.Errorf("%d pairs of a request or resource and a path may differ from Kubernetes, at most %d", n, most)
	}
}

func TestDifferencesOfAResource(t *testing.T) {
	t.Parallel()
	list, err := LoadAllowed(filepath.Join(write(t, map[string]string{"a.yaml": `
- {resource: [pods, pods/status], path: 'status.*', lacks: kubernetes, reason: r}
- {resource: nodes, path: a, lacks: monopod, reason: r}
`}), "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const none = ""
	for _, c := range []struct{ do, want, have, wrong string }{
		{"GET /api/v1/namespaces/x/pods/y", `{}`, `{"status": {"a": 1}}`, "status"},
		{"GET /api/v1/namespaces/x/pods/y", `{"status": {}}`, `{"status": {"a": 1}}`, none},
		{"GET /api/v1/pods?a=b", `{"items": [{"status": {}}]}`, `{"items": [{"status": {"a": 1}}]}`, none},
		{"GET /api/v1/pods", `{"rows": [{"object": {"status": {}}}]}`, `{"rows": [{"object": {"status": {"a": 1}}}]}`, none},
		{"GET /api/v1/pods", `[{"object": {"status": {}}}]`, `[{"object": {"status": {"a": 1}}}]`, none},
		{"GET /api/v1/pods/y/status", `{"status": {"a": 2}}`, `{"status": {"a": 1}}`, "status.a"},
		{"GET /apis/apps/v1/namespaces/x/nodes/y", `{"a": 1}`, `{}`, none},
		{"GET /api", `{"a": 1}`, `{}`, "a"},
	} {
		wrong, _ := Judge(Compare(&Step{Do: c.do}, &Answer{Body: body(t, c.want)}, &Answer{Body: body(t, c.have)}), list)
		paths := ""
		for _, d := range wrong {
			paths += d.Path
		}
		if paths != c.wrong {
			t.Errorf("%s: %s and %s differ in %q, want %q", c.do, c.want, c.have, paths, c.wrong)
		}
	}
}

func TestBroadEntriesAreErrors(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{
		"[{request: a, path: b}]",
		"[{request: [], path: b, reason: r}]",
		"[{request: a, path: b, reason: r}, {request: [c, a], path: b, reason: other}]",
		"[{request: '*', path: status, reason: r}]",
		"[{request: a, path: '*', reason: r}]",
		"[{request: a, path: code, reason: r}]",
		"[{request: a, path: code, want: 500, reason: r}]",
		"[{request: 'a*', path: code, want: 500, have: 400, reason: r}]",
		"[{resource: pods, path: code, want: 500, have: 400, reason: r}]",
		"[{resource: pods, request: a, path: b, reason: r}]",
		"[{resource: '*s', path: status.phase, reason: r}]",
		"[{resource: pods, path: 'status.*', reason: r}]",
		"[{resource: pods, path: status.phase, lacks: nothing, reason: r}]",
		"[{request: a, path: 'c*', want: 500, have: 400, reason: r}]",
		"[{request: a, path: '*e', reason: r}]",
	} {
		if _, err := LoadAllowed(filepath.Join(write(t, map[string]string{"a.yaml": wrong}), "a.yaml")); err == nil {
			t.Errorf("%s is no error", wrong)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "ab", true},
		{"*b", "ab", true},
		{"*b", "ba", false},
		{"a*c", "abc", true},
		{"a*b*d", "abcd", true},
		{"a*x*d", "abcd", false},
		{"ab*ba", "aba", false},
		{"a.b", "axb", false},
		{"a[*].b", "a[0].b", true},
	} {
		if matches(c.pattern, c.text) != c.want {
			t.Errorf("%q matches %q: want %v", c.pattern, c.text, c.want)
		}
	}
}

func TestWritesAreReadBack(t *testing.T) {
	t.Parallel()
	steps, err := Load(write(t, map[string]string{"1.yaml": `
- {do: 'PATCH /a/scale?force=true', name: patch}
- {do: PUT /a, code: 409, only: kube}
- {do: PATCH /b, code: 404}
- {do: 'PATCH /c?dryRun=All', code: 201}
- {do: POST /d}
`}))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range steps {
		all = append(all, fmt.Sprintf("%s (%s) %d %s", s.Name, s.Do, s.Code, s.Only))
	}
	if got := strings.Join(all, "\n"); got != `patch (PATCH /a/scale?force=true) 200 
after patch (GET /a) 200 
PUT /a (PUT /a) 409 kube
after PUT /a (GET /a) 200 kube
PATCH /b (PATCH /b) 404 
PATCH /c?dryRun=All (PATCH /c?dryRun=All) 201 
after PATCH /c?dryRun=All (GET /c) 404 
POST /d (POST /d) 201 ` {
		t.Error(got)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	s := &Server{saved: map[string]any{"pod": map[string]any{"metadata": map[string]any{"uid": "u"}, "items": []any{map[string]any{"a": "b"}}}}}
	if got, err := s.fill("${pod:metadata.uid} ${pod:items[0].a}"); err != nil || got != "u b" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.fill("${pod:metadata.name}"); err == nil {
		t.Error("what is not there is no error")
	}
}
