package kubewrite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/daemon/kubeview"
	"monopod/internal/model"
	"monopod/node/apiserver"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/kubetest"
	"monopod/runner/runtimetest"
)

// client speaks to the API over a daemon, with all of its real parts.
type client struct {
	t   *testing.T
	api http.Handler
}

func newClient(t *testing.T, d *daemon) *client {
	view := kubeview.New(kubeview.Config{
		Node: "machine", State: d.state, Facts: d.facts, Kept: d.cfg.Memory, Labels: d.cfg.NodeLabels,
	})
	d.cfg.Shown = view
	d.cfg.Node = func() *corev1.Node {
		objects, _ := view.Objects(t.Context())
		for _, o := range objects[kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Node"))] {
			return o.(*corev1.Node)
		}
		return nil
	}
	api := kubeapi.New(kubeapi.Config{State: view, Writer: d.Writer, Policy: access.NewPolicy(nil), Epoch: 1, Node: "machine", Version: "v1"})
	return &client{t: t, api: api.Handler()}
}

// do sends a request, and returns the answer, whose code must be the wanted one.
func (c *client) do(want int, method, path string, body any) *unstructured.Unstructured {
	c.t.Helper()
	if method == http.MethodPatch {
		return c.send(want, method, path, "application/merge-patch+json", body)
	}
	return c.send(want, method, path, "application/json", body)
}

// send is do with a body of a type.
func (c *client) send(want int, method, path, contentType string, body any) *unstructured.Unstructured {
	c.t.Helper()
	var data bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&data).Encode(body); err != nil {
			c.t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(access.WithUser(context.WithoutCancel(c.t.Context()), access.Root()), method, path, &data)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	c.api.ServeHTTP(w, r)
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(w.Body.Bytes(), &o.Object); err != nil || w.Code != want {
		c.t.Fatalf("%s %s: %d, want %d: %s", method, path, w.Code, want, w.Body)
	}
	return o
}

func TestAClientReadsWhatItHasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDaemon(t, dir, staticManifests)
	d.open()
	c := newClient(t, d)
	const maps = "/api/v1/namespaces/default/configmaps"
	made := c.do(http.StatusCreated, "POST", maps, configMap("app", "1"))
	got := c.do(http.StatusOK, "GET", maps+"/app", nil)
	if made.GetUID() == "" || made.GetUID() != got.GetUID() || made.GetResourceVersion() != got.GetResourceVersion() || got.GetCreationTimestamp().Time.IsZero() {
		t.Errorf("made %v\nread %v", made, got)
	}
	c.do(http.StatusConflict, "POST", maps, configMap("app", "1"))
	changed := c.do(http.StatusOK, "PATCH", maps+"/app", map[string]any{"data": map[string]any{"a": "2"}})
	if changed.GetUID() != made.GetUID() || changed.GetResourceVersion() == made.GetResourceVersion() {
		t.Errorf("changed: %v", changed)
	}
	stale := map[string]any{"metadata": map[string]any{"resourceVersion": made.GetResourceVersion()}, "data": map[string]any{"a": "3"}}
	c.do(http.StatusConflict, "PATCH", maps+"/app", stale)
	c.do(http.StatusForbidden, "PATCH", maps+"/settings", map[string]any{"data": map[string]any{"a": "2"}})
	c.do(http.StatusForbidden, "DELETE", maps+"/settings", nil)
	c.do(http.StatusNotFound, "POST", "/api/v1/namespaces/team/configmaps", configMapIn("team", "x"))
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces", &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces/team/configmaps", configMapIn("team", "x"))
	c.do(http.StatusOK, "DELETE", "/api/v1/namespaces/team", nil)
	c.do(http.StatusNotFound, "GET", "/api/v1/namespaces/team/configmaps/x", nil)
	c.do(http.StatusNotFound, "GET", "/api/v1/namespaces/team", nil)
	c.do(http.StatusOK, "DELETE", maps+"/app", nil)
	c.do(http.StatusNotFound, "GET", maps+"/app", nil)
	again := c.do(http.StatusCreated, "POST", maps, configMap("app", "1"))
	if again.GetUID() == made.GetUID() {
		t.Error("another object has the same uid")
	}
}

// TestAServiceThatTakesFromAnotherIsRefused: as kube-apiserver does, with a cause for each field.
func TestAServiceThatTakesFromAnotherIsRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	c := newClient(t, d)
	d.cfg.Refused = func(s *corev1.Service) field.ErrorList {
		if s.Spec.ClusterIP == "10.96.0.10" {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), []string{s.Spec.ClusterIP}, "provided IP is already allocated")}
		}
		return nil
	}
	service := func(ip string) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web"},
			"spec": map[string]any{"clusterIP": ip, "ports": []any{map[string]any{"port": 80}}},
		}
	}
	const path = "/api/v1/namespaces/default/services"
	for _, at := range []string{path, path + "?dryRun=All"} {
		refused := c.do(http.StatusUnprocessableEntity, "POST", at, service("10.96.0.10"))
		causes, _, _ := unstructured.NestedSlice(refused.Object, "details", "causes")
		if text := fmt.Sprint(refused.Object["reason"], causes); !strings.HasPrefix(text, "Invalid") || !strings.Contains(text, "spec.clusterIPs") || !strings.Contains(text, "provided IP is already allocated") {
			t.Error(text)
		}
	}
	c.do(http.StatusNotFound, "GET", path+"/web", nil)
	c.do(http.StatusCreated, "POST", path, service("10.96.0.11"))
}

func configMapIn(namespace, name string) *corev1.ConfigMap {
	o := configMap(name, "1")
	o.Namespace, o.UID = namespace, ""
	return o
}

// TestConcurrentPatchesAreAllCarriedOut: each adds a key.
func TestConcurrentPatchesAreAllCarriedOut(t *testing.T) {
	t.Parallel()
	c := newClient(t, newDaemon(t, t.TempDir(), ""))
	const path = "/api/v1/namespaces/default/configmaps"
	c.do(http.StatusCreated, "POST", path, configMap("app", "1"))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			c.do(http.StatusOK, "PATCH", path+"/app", map[string]any{"data": map[string]any{fmt.Sprint("key", i): "x"}})
		})
	}
	all.Wait()
	data, _, _ := unstructured.NestedStringMap(c.do(http.StatusOK, "GET", path+"/app", nil).Object, "data")
	if len(data) != 9 {
		t.Errorf("%v", data)
	}
}

func TestAPodIsCreatedChangedAndDeletedThroughTheAPI(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		c := newClient(t, d)
		const pods = "/api/v1/namespaces/default/pods"
		container := map[string]any{"name": "c", "image": "busybox:1", "command": []any{"sh", "-c", runtimetest.ScriptStubborn}}
		made := c.do(http.StatusCreated, "POST", pods, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"},
			"spec": map[string]any{"containers": []any{container}, "readinessGates": []any{map[string]any{"conditionType": "example.com/g"}}},
		})
		c.do(http.StatusUnprocessableEntity, "POST", pods, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "wrong"}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i", "imagePullPolicy": "Now"}}},
		})
		time.Sleep(10 * time.Second)
		running := c.do(http.StatusOK, "GET", pods+"/web", nil)
		if phase, _, _ := unstructured.NestedString(running.Object, "status", "phase"); phase != "Running" || running.GetUID() != made.GetUID() {
			t.Fatalf("%v", running)
		}
		c.do(http.StatusOK, "PATCH", pods+"/web", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
		condition := map[string]any{"type": "example.com/g", "status": "True"}
		c.do(http.StatusOK, "PATCH", pods+"/web/status", map[string]any{"status": map[string]any{"conditions": []any{condition}}})
		time.Sleep(10 * time.Second)
		now := c.do(http.StatusOK, "GET", pods+"/web", nil)
		text, err := json.Marshal(now.Object["status"])
		if err != nil || !strings.Contains(string(text), `"example.com/g"`) || strings.Contains(string(text), "ReadinessGatesNotReady") || now.GetUID() != made.GetUID() || now.GetLabels()["a"] != "b" {
			t.Errorf("%s %v", text, err)
		}
		gone := c.do(http.StatusOK, "DELETE", pods+"/web?gracePeriodSeconds=4", nil)
		if gone.GetDeletionTimestamp() == nil {
			t.Errorf("%v", gone)
		}
		if ending := c.do(http.StatusOK, "GET", pods+"/web", nil); ending.GetDeletionTimestamp() == nil || ending.GetUID() != made.GetUID() {
			t.Errorf("%v", ending)
		}
		time.Sleep(6 * time.Second)
		c.do(http.StatusNotFound, "GET", pods+"/web", nil)
	})
}

// TestContract: the API gets from this Writer what it relies on.
func TestContract(t *testing.T) {
	t.Parallel()
	kubetest.Contract(t, func(t *testing.T) kubetest.Subject {
		d := newDaemon(t, t.TempDir(), "")
		view := kubeview.New(kubeview.Config{
			Node: "machine", State: d.state, Facts: func() apiserver.Facts { return apiserver.Facts{} }, Kept: d.cfg.Memory,
		})
		d.cfg.Shown = view
		return kubetest.Subject{Writer: d.Writer, State: view}
	})
}
