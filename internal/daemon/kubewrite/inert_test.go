package kubewrite

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/kubeview"
	"monopod/manifests"
	"monopod/node/apiserver"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/watcher/applied"
)

// inertClient is a client of an API that serves inert kinds.
func inertClient(t *testing.T, d *daemon, names ...string) *client {
	t.Helper()
	view := kubeview.New(kubeview.Config{Node: "machine", State: d.state, Facts: func() apiserver.Facts { return apiserver.Facts{} }, Kept: d.cfg.Memory})
	d.cfg.Shown = view
	api := kubeapi.New(kubeapi.Config{
		State: view, Writer: d.Writer, Policy: access.NewPolicy(nil), Served: kinds.Serve(names), Epoch: 1, Node: "machine", Version: "v1",
	})
	return &client{t: t, api: api.Handler()}
}

// sendText sends a request with a media type, and returns the answer, whose code must be the wanted one, and its warnings.
func (c *client) sendText(want int, method, path, media, body string) (answer map[string]any, warnings []string) {
	c.t.Helper()
	r := httptest.NewRequestWithContext(access.WithUser(context.WithoutCancel(c.t.Context()), access.Root()), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", media)
	r.Header.Set("Accept", "application/json")
	if method == "TABLE" {
		r.Method = http.MethodGet
		r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	}
	w := httptest.NewRecorder()
	c.api.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != want {
		c.t.Fatalf("%s %s: %d, want %d: %s", method, path, w.Code, want, w.Body)
	}
	return answer, w.Header().Values("Warning")
}

// pathOf returns the path of the objects of a kind, in the namespace team.
func pathOf(k *kinds.Kind) string {
	path := "/apis/" + k.GroupVersion().String()
	if k.Group == "" {
		path = "/api/" + k.Version
	}
	if k.Namespaced {
		path += "/namespaces/team"
	}
	return path + "/" + k.Plural
}

func team() *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "team"}}
}

// TestEachInertKindCanBeWritten: all verbs work, objects survive a restart, and each write that changes one warns.
func TestEachInertKindCanBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t, dir, "")
	d.open()
	c := inertClient(t, d, kinds.Inert()...)
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces", team())
	const plain, apply = "application/json", "application/apply-patch+yaml"
	for _, name := range kinds.Inert() {
		k := kindNamed(name)
		path := pathOf(k)
		warned := func(want bool, warnings []string) {
			t.Helper()
			if text := fmt.Sprint(warnings); strings.Contains(text, fmt.Sprintf(`[299 - "%s has no effect: monopod stores it`, name)) != want {
				t.Errorf("%s: warnings %s, want one: %v", name, text, want)
			}
		}
		object := func(label string) string {
			return fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "x", "labels": {"a": %q}}}`, k.GroupVersion(), name, label)
		}
		_, warnings := c.sendText(http.StatusCreated, "POST", path+"?dryRun=All", plain, object("0"))
		warned(true, warnings)
		c.sendText(http.StatusNotFound, "GET", path+"/x", plain, "")
		made, warnings := c.sendText(http.StatusCreated, "POST", path, plain, object("1"))
		warned(true, warnings)
		_, warnings = c.sendText(http.StatusOK, "PUT", path+"/x", plain, object("1"))
		warned(false, warnings)
		_, warnings = c.sendText(http.StatusOK, "PUT", path+"/x", plain, object("2"))
		warned(true, warnings)
		_, warnings = c.sendText(http.StatusOK, "PATCH", path+"/x", "application/merge-patch+json", `{"metadata": {"labels": {"a": "3"}}}`)
		warned(true, warnings)
		_, warnings = c.sendText(http.StatusOK, "PATCH", path+"/x", "application/strategic-merge-patch+json", `{"metadata": {"labels": {"a": "3"}}}`)
		warned(false, warnings)
		_, warnings = c.sendText(http.StatusOK, "PATCH", path+"/x?fieldManager=me&force=true", apply, object("4"))
		warned(true, warnings)
		_, warnings = c.sendText(http.StatusCreated, "PATCH", path+"/y?fieldManager=me", apply, strings.Replace(object("1"), `"x"`, `"y"`, 1))
		warned(true, warnings)
		got, warnings := c.sendText(http.StatusOK, "GET", path+"/x", plain, "")
		warned(false, warnings)
		meta, before := got["metadata"].(map[string]any), made["metadata"].(map[string]any)
		if meta["uid"] != before["uid"] || meta["labels"].(map[string]any)["a"] != "4" || len(meta["managedFields"].([]any)) != 2 {
			t.Errorf("%s: %v", name, meta)
		}
		list, _ := c.sendText(http.StatusOK, "GET", path+"?labelSelector=a%3D4", plain, "")
		table, _ := c.sendText(http.StatusOK, "TABLE", path, plain, "")
		if len(list["items"].([]any)) != 1 || list["kind"] != name+"List" || len(table["rows"].([]any)) != 2 {
			t.Errorf("%s: %v\n%v", name, list, table)
		}
	}

	d = newDaemon(t, dir, "")
	d.open()
	c = inertClient(t, d, kinds.Inert()...)
	for _, name := range kinds.Inert() {
		path := pathOf(kindNamed(name))
		got, _ := c.sendText(http.StatusOK, "GET", path+"/x", plain, "")
		if meta := got["metadata"].(map[string]any); got["kind"] != name || meta["labels"].(map[string]any)["a"] != "4" || meta["uid"] == "" || meta["managedFields"] == nil {
			t.Errorf("%s after a restart: %v", name, got)
		}
		if _, warnings := c.sendText(http.StatusOK, "DELETE", path+"/x", plain, ""); len(warnings) > 0 {
			t.Errorf("delete of %s: %v", name, warnings)
		}
		c.sendText(http.StatusNotFound, "GET", path+"/x", plain, "")
		c.sendText(http.StatusOK, "DELETE", path, plain, "")
		c.sendText(http.StatusNotFound, "GET", path+"/y", plain, "")
	}
	if names := d.store.Documents(); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func kindNamed(name string) *kinds.Kind { return ref(name, "", "").Kind }

// TestObjectsOfInertKindsGoWithTheirNamespaceAndOwners also while their kind is hidden, which does not remove them.
func TestObjectsOfInertKindsGoWithTheirNamespaceAndOwners(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.open()
	c := inertClient(t, d, "NetworkPolicy", "Role")
	policies, roles := pathOf(kindNamed("NetworkPolicy")), pathOf(kindNamed("Role"))
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces", team())
	policy := &networkingv1.NetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}}
	policy.Name = "owner"
	owner := c.do(http.StatusCreated, "POST", policies, policy)
	policy.Name = "owned"
	policy.OwnerReferences = []metav1.OwnerReference{{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Name: "owner", UID: owner.GetUID()}}
	c.do(http.StatusCreated, "POST", policies, policy)
	policy.Name, policy.OwnerReferences = "waits", nil
	policy.Finalizers = []string{"example.com/x"}
	c.do(http.StatusCreated, "POST", policies, policy)
	policy.Name, policy.Finalizers = "hidden", []string{"example.com/x"}
	c.do(http.StatusCreated, "POST", policies, policy)
	role := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": "team:reader"}}
	c.do(http.StatusCreated, "POST", roles, role)

	c.do(http.StatusOK, "DELETE", policies+"/owner", nil)
	c.do(http.StatusNotFound, "GET", policies+"/owned", nil)
	c.do(http.StatusOK, "DELETE", policies+"/waits", nil)
	if o := c.do(http.StatusOK, "GET", policies+"/waits", nil); o.GetDeletionTimestamp() == nil {
		t.Errorf("it does not wait for its finalizer: %v", o)
	}
	c.do(http.StatusOK, "PATCH", policies+"/waits", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	c.do(http.StatusNotFound, "GET", policies+"/waits", nil)

	hidden := inertClient(t, d)
	hidden.do(http.StatusNotFound, "GET", roles+"/team:reader", nil)
	c = inertClient(t, d, "Role")
	c.do(http.StatusOK, "GET", roles+"/team:reader", nil)
	c.do(http.StatusNotFound, "GET", policies, nil)
	hidden = inertClient(t, d)
	hidden.do(http.StatusOK, "DELETE", "/api/v1/namespaces/team", nil)
	hidden.do(http.StatusNotFound, "GET", "/api/v1/namespaces/team", nil)
	if names := d.store.Documents(); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestInvalidObjectsOfInertKinds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	c := inertClient(t, d, kinds.Inert()...)
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces", team())
	for _, tt := range []struct{ kind, name string }{{"Role", "a/b"}, {"ClusterRole", ".."}, {"Role", "a\nb"}, {"Role", "a\u0085b"}, {"Ingress", "A"}, {"PodDisruptionBudget", "a:b"}} {
		k := kindNamed(tt.kind)
		c.do(http.StatusUnprocessableEntity, "POST", pathOf(k), map[string]any{
			"apiVersion": k.GroupVersion().String(), "kind": tt.kind, "metadata": map[string]any{"name": tt.name},
		})
	}
	c.do(http.StatusBadRequest, "POST", pathOf(kindNamed("Ingress"))+"?fieldValidation=Strict", map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"rule": 1},
	})
	c.do(http.StatusNotFound, "POST", "/apis/networking.k8s.io/v1/namespaces/none/ingresses", map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"name": "x"},
	})
	binding := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "x"},
		"roleRef": map[string]any{"kind": "Role", "name": "a"}, "subjects": []any{map[string]any{"kind": "User", "name": "u"}},
	}
	bindings := pathOf(kindNamed("RoleBinding"))
	made := c.do(http.StatusCreated, "POST", bindings, binding)
	if group := made.Object["roleRef"].(map[string]any)["apiGroup"]; group != "rbac.authorization.k8s.io" {
		t.Errorf("no defaults: %v", made.Object)
	}
	c.do(http.StatusUnprocessableEntity, "PATCH", bindings+"/x", map[string]any{"roleRef": map[string]any{"name": "b"}})
}

// TestLongNamesAreReadAgain: generated names are cut between characters, and no name is that of another object's file.
func TestLongNamesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t, dir, "")
	d.open()
	c := inertClient(t, d, "Role")
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces", team())
	role := func(meta map[string]any) string {
		made := c.do(http.StatusCreated, "POST", pathOf(kindNamed("Role")), map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta})
		return made.GetName()
	}
	names := []string{role(map[string]any{"generateName": "a" + strings.Repeat("é", 60)}), role(map[string]any{"name": strings.Repeat("é", 150)})}
	file := strings.TrimSuffix(applied.FileName(manifests.ObjectID{Kind: "Role", Namespace: "team", Name: names[1]}), ".yaml")
	names = append(names, role(map[string]any{"name": strings.TrimPrefix(file, ".kept-role.team.")}))
	d = newDaemon(t, dir, "")
	d.open()
	c = inertClient(t, d, "Role")
	for _, name := range names {
		if !utf8.ValidString(name) || c.do(http.StatusOK, "GET", pathOf(kindNamed("Role"))+"/"+url.PathEscape(name), nil).GetName() != name {
			t.Errorf("%q", name)
		}
	}
}
