package writes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/kubetest"
)

// do sends a request, and returns the answer as JSON.
func do(t *testing.T, method, url, contentType, body string) (code int, answer map[string]any, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "curl/8")
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return response.StatusCode, answer, response.Header
}

const (
	plain = "application/json"
	merge = "application/merge-patch+json"
	apply = "application/apply-patch+yaml"
)

// bomb is YAML of which aliases make a lot.
func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		last := "*a" + strconv.Itoa(i-1)
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Repeat(last+", ", 9)+last)
	}
	return text
}

func TestAnswersOverHTTP(t *testing.T) {
	t.Parallel()
	maps := "/api/v1/namespaces/default/configmaps"
	for name, c := range map[string]struct {
		method, path, contentType, body string
		code                            int
		reason, text                    string
	}{
		"create":                          {"POST", maps, plain, `{"metadata":{"name":"new"}}`, 201, "", ""},
		"YAML":                            {"POST", maps, "application/yaml", "metadata: {name: new}\ndata: {a: b}\n", 201, "", ""},
		"create with a version":           {"POST", maps, plain, `{"metadata":{"name":"new","resourceVersion":"1"}}`, 400, "BadRequest", "resourceVersion should not be set on objects to be created"},
		"strict":                          {"POST", maps + "?fieldValidation=Strict", plain, `{"metadata":{"name":"new"},"nonsense":1}`, 400, "BadRequest", "nonsense"},
		"create of what is there":         {"POST", maps, plain, `{"metadata":{"name":"x"}}`, 409, "AlreadyExists", `configmaps "x" already exists`},
		"another kind":                    {"POST", maps, plain, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`, 400, "BadRequest", ""},
		"dry run of nonsense":             {"POST", maps + "?dryRun=x", plain, `{"metadata":{"name":"new"}}`, 422, "Invalid", "dryRun"},
		"text":                            {"POST", maps, "text/plain", `x`, 415, "UnsupportedMediaType", ""},
		"read-only kinds":                 {"POST", "/api/v1/namespaces/default/endpoints", plain, `{}`, 405, "MethodNotAllowed", ""},
		"patch of what is missing":        {"PATCH", maps + "/none", merge, `{}`, 404, "NotFound", `configmaps "none" not found`},
		"patch without a type":            {"PATCH", maps + "/x", plain, `{}`, 415, "UnsupportedMediaType", "accepted media types include"},
		"merge patch":                     {"PATCH", maps + "/x", merge, `{"data":{"a":null,"c":"d"}}`, 200, "", ""},
		"apply of many aliases":           {"PATCH", maps + "/x?fieldManager=a", apply, bomb(), 400, "BadRequest", ""},
		"apply that is too deep":          {"PATCH", maps + "/x?fieldManager=a", apply, strings.Repeat("[", 200) + strings.Repeat("]", 200), 400, "BadRequest", ""},
		"patch that does not decode":      {"PATCH", maps + "/x", merge, `{"data":{"a":[]}}`, 422, "Invalid", ""},
		"patch of the name":               {"PATCH", maps + "/x", merge, `{"metadata":{"name":"y"}}`, 400, "BadRequest", "does not match the name on the URL (x)"},
		"patch of an old version":         {"PATCH", maps + "/x", merge, `{"metadata":{"resourceVersion":"1"}}`, 409, "Conflict", "the object has been modified"},
		"patch of the uid":                {"PATCH", maps + "/x", merge, `{"metadata":{"uid":"other"}}`, 422, "Invalid", "metadata.uid: Invalid value: \"other\": field is immutable"},
		"update of the uid":               {"PUT", maps + "/x", plain, `{"metadata":{"name":"x","uid":"other"}}`, 409, "Conflict", "UID in precondition"},
		"JSON patch that fails":           {"PATCH", maps + "/x", "application/json-patch+json", `[{"op":"test","path":"/data/a","value":"z"}]`, 422, "Invalid", "testing value /data/a failed"},
		"force without apply":             {"PATCH", maps + "/x?force=true", merge, `{}`, 422, "Invalid", "force: Forbidden: may not be specified for non-apply patch"},
		"apply without a manager":         {"PATCH", maps + "/x", apply, `{}`, 422, "Invalid", "fieldManager: Required value: is required for apply patch"},
		"apply without a kind":            {"PATCH", maps + "/x?fieldManager=m", apply, `metadata: {name: x}`, 400, "BadRequest", "is missing"},
		"apply of another kind":           {"PATCH", maps + "/x?fieldManager=m", apply, `{apiVersion: v1, kind: Secret}`, 400, "BadRequest", "is not that of the path"},
		"apply of another name":           {"PATCH", maps + "/x?fieldManager=m", apply, `{apiVersion: v1, kind: ConfigMap, metadata: {name: y}}`, 400, "BadRequest", "does not match the name on the URL"},
		"apply in another namespace":      {"PATCH", maps + "/x?fieldManager=m", apply, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: y}}`, 400, "BadRequest", "the namespace of the provided object"},
		"apply of a list":                 {"PATCH", maps + "/x?fieldManager=m", apply, `[]`, 400, "BadRequest", "error decoding YAML"},
		"apply of nothing":                {"PATCH", maps + "/x?fieldManager=m", apply, ``, 400, "BadRequest", "an apply patch is an object"},
		"apply strictly":                  {"PATCH", maps + "/x?fieldManager=m&fieldValidation=Strict", apply, "apiVersion: v1\nkind: ConfigMap\nkind: ConfigMap\n", 400, "BadRequest", "error strict decoding YAML"},
		"apply creates":                   {"PATCH", maps + "/new?fieldManager=m", apply, `{apiVersion: v1, kind: ConfigMap, data: {a: b}}`, 201, "", ""},
		"apply of another uid":            {"PATCH", maps + "/x?fieldManager=m", apply, `{apiVersion: v1, kind: ConfigMap, metadata: {uid: other}}`, 422, "Invalid", "metadata.uid"},
		"apply creates with a version":    {"PATCH", maps + "/new?fieldManager=m", apply, `{apiVersion: v1, kind: ConfigMap, metadata: {resourceVersion: "1"}}`, 201, "", ""},
		"apply creates with a uid":        {"PATCH", maps + "/new?fieldManager=m", apply, `{apiVersion: v1, kind: ConfigMap, metadata: {uid: other}}`, 409, "Conflict", "no existing object was found"},
		"apply of a missing status":       {"PATCH", "/apis/apps/v1/namespaces/default/deployments/none/status?fieldManager=m", apply, `{apiVersion: apps/v1, kind: Deployment}`, 404, "NotFound", ""},
		"scale of what is missing":        {"GET", "/apis/apps/v1/namespaces/default/deployments/none/scale", plain, ``, 404, "NotFound", `deployments.apps "none" not found`},
		"scale by a Deployment":           {"PUT", "/apis/apps/v1/namespaces/default/deployments/none/scale", plain, `{"apiVersion":"apps/v1","kind":"Deployment"}`, 400, "BadRequest", ""},
		"ephemeral containers":            {"PATCH", "/api/v1/namespaces/default/pods/web/ephemeralcontainers", merge, `{"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}`, 200, "", ""},
		"ephemeral containers by a pod":   {"PATCH", "/api/v1/namespaces/default/pods/web", merge, `{"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}`, 422, "Invalid", "can only be added through pods/ephemeralcontainers"},
		"ephemeral containers of none":    {"PATCH", "/api/v1/namespaces/default/pods/none/ephemeralcontainers", merge, `{}`, 404, "NotFound", ""},
		"eviction of another":             {"POST", "/api/v1/namespaces/default/pods/web/eviction", plain, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"y"}}`, 400, "BadRequest", "name in URL does not match name in Eviction object"},
		"eviction":                        {"POST", "/api/v1/namespaces/default/pods/web/eviction", plain, `{"apiVersion":"policy/v1","kind":"Eviction"}`, 201, "", ""},
		"binding of another":              {"POST", "/api/v1/namespaces/default/pods/web/binding", plain, `{"metadata":{"name":"y"},"target":{"name":"node-1"}}`, 400, "BadRequest", "name in URL does not match name in Binding object"},
		"pod with ephemeral containers":   {"POST", "/api/v1/namespaces/default/pods", plain, `{"metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"}],"ephemeralContainers":[{"name":"d","image":"i"}]}}`, 422, "Invalid", "spec.ephemeralContainers: Forbidden: cannot be set on create"},
		"binding of what is missing":      {"POST", "/api/v1/namespaces/default/pods/none/binding", plain, `{"target":{"name":"node-1"}}`, 404, "NotFound", ""},
		"delete":                          {"DELETE", maps + "/x", "", ``, 200, "", ""},
		"delete with options of v1":       {"DELETE", maps + "/x", plain, `{"apiVersion":"v1","kind":"DeleteOptions"}`, 200, "", ""},
		"delete with options of a group":  {"DELETE", "/apis/apps/v1/namespaces/default/deployments/none", plain, `{"apiVersion":"apps/v1","kind":"DeleteOptions"}`, 404, "NotFound", ""},
		"delete with the options of none": {"DELETE", maps + "/x", plain, `{"apiVersion":"v1","kind":"Pod"}`, 400, "BadRequest", ""},
		"delete with broken options":      {"DELETE", maps + "/x", plain, `{`, 400, "BadRequest", ""},
		"delete with a query":             {"DELETE", maps + "/x?propagationPolicy=Orphan", "", ``, 422, "Invalid", "propagationPolicy"},
		"deletecollection":                {"DELETE", maps + "?labelSelector=a%3Db", "", ``, 200, "", ""},
		"deletecollection, wrong":         {"DELETE", maps + "?labelSelector=%21%21", "", ``, 400, "BadRequest", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := listen(t, kubetest.New(configMap("x"), pod("web")))
			code, answer, _ := do(t, c.method, url+c.path, c.contentType, c.body)
			reason, _ := answer["reason"].(string)
			message, _ := answer["message"].(string)
			if code != c.code || reason != c.reason || !strings.Contains(message, c.text) {
				t.Errorf("have %d %s %v, want %d %s %s", code, reason, answer, c.code, c.reason, c.text)
			}
		})
	}
}

func TestWarningsOfUnknownFields(t *testing.T) {
	t.Parallel()
	url := listen(t, kubetest.New(configMap("x")))
	maps := url + "/api/v1/namespaces/default/configmaps"
	if code, _, header := do(t, "POST", maps, plain, `{"metadata":{"name":"new"},"nonsense":1}`); code != 201 || !strings.Contains(header.Get("Warning"), "nonsense") {
		t.Errorf("create: %d, %v", code, header)
	}
	if code, _, header := do(t, "PATCH", maps+"/x", merge, `{"nonsense":1}`); code != 200 || !strings.Contains(header.Get("Warning"), "nonsense") {
		t.Errorf("patch: %d, %v", code, header)
	}
	if code, _, header := do(t, "PATCH", maps+"/y?fieldManager=m", apply, "apiVersion: v1\nkind: ConfigMap\nkind: ConfigMap\n"); code != 201 || !strings.Contains(header.Get("Warning"), "kind") {
		t.Errorf("apply: %d, %v", code, header)
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	store := kubetest.New(configMap("x"))
	url := listen(t, store) + "/api/v1/namespaces/default/configmaps"
	do(t, "POST", url+"?dryRun=All", plain, `{"metadata":{"name":"new"}}`)
	pods := strings.TrimSuffix(url, "configmaps") + "pods?dryRun=All"
	_, answer, _ := do(t, "POST", pods, plain, `{"metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	if status, _ := answer["status"].(map[string]any); status["phase"] != "Pending" || status["qosClass"] != "BestEffort" {
		t.Errorf("the status of a pod that would be created: %v", answer)
	}
	if _, answer, _ := do(t, "PATCH", url+"/x?dryRun=All", merge, `{"data":{"a":"2"}}`); answer["data"].(map[string]any)["a"] != "2" {
		t.Errorf("the answer is what would be stored: %v", answer)
	}
	do(t, "DELETE", url+"/x?dryRun=All", "", "")
	do(t, "DELETE", url+"?dryRun=All", "", "")
	if store.Writes() != 0 {
		t.Errorf("%d writes", store.Writes())
	}
}

func TestLostRacesAreTriedAgain(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("a race"))
	for path, patch := range map[string]string{
		"/api/v1/namespaces/default/configmaps/x":              `{"data":{"a":"2"}}`,
		"/apis/apps/v1/namespaces/default/deployments/x/scale": `{"spec":{"replicas":2}}`,
	} {
		for failures, code := range map[int]int{1: 200, 4: 200, 5: 409} {
			store := kubetest.New(configMap("x"), deployment("x"))
			for range failures {
				store.Fail = append(store.Fail, conflict)
			}
			if have, _, _ := do(t, "PATCH", listen(t, store)+path, merge, patch); have != code {
				t.Errorf("%s: %d lost races: %d, want %d", path, failures, have, code)
			}
		}
	}
}

func TestInvalidObjects(t *testing.T) {
	t.Parallel()
	store := kubetest.New()
	store.Validate = func(o kinds.Object) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, o.GetName(), nil)
	}
	code, answer, _ := do(t, "POST", listen(t, store)+"/api/v1/namespaces/default/configmaps", plain, `{"metadata":{"name":"new"}}`)
	if code != 422 || answer["reason"] != "Invalid" {
		t.Errorf("have %d %v", code, answer)
	}
}

func TestNamespaceThatEnds(t *testing.T) {
	t.Parallel()
	store := kubetest.New(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
	code, answer, _ := do(t, "POST", listen(t, store)+"/api/v1/namespaces/going/configmaps", plain, `{"metadata":{"name":"new"}}`)
	if code != 403 || !strings.Contains(answer["message"].(string), "because it is being terminated") {
		t.Errorf("have %d %v", code, answer)
	}
}

// TestPodsThatEnd checks that a write does not recreate a terminating pod.
func TestPodsThatEnd(t *testing.T) {
	t.Parallel()
	going := pod("web")
	going.DeletionTimestamp, going.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(30))
	store := kubetest.New(going)
	url := listen(t, store) + "/api/v1/namespaces/default/pods"
	if code, answer, _ := do(t, "PATCH", url+"/web", merge, `{"spec":{"activeDeadlineSeconds":5}}`); code != 403 || store.Writes() > 0 {
		t.Errorf("have %d %v", code, answer)
	}
	if code, answer, _ := do(t, "PATCH", url+"/web", merge, `{"metadata":{"finalizers":["a/b"]}}`); code != 422 || store.Writes() > 0 {
		t.Errorf("have %d %v", code, answer)
	}
	if code, answer, _ := do(t, "PATCH", url+"/web", merge, `{"metadata":{"labels":{"a":"b"}}}`); code != 200 || store.Get(kubetest.RefOf(going)).GetLabels()["a"] != "b" {
		t.Errorf("have %d %v", code, answer)
	}
	body := `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	if code, answer, _ := do(t, "POST", url, plain, body); code != 409 || !strings.Contains(answer["message"].(string), "object is being deleted: ") {
		t.Errorf("have %d %v", code, answer)
	}
}

// TestNamespaceWaitsForFinalizers deletes a namespace with an object that has a finalizer.
func TestNamespaceWaitsForFinalizers(t *testing.T) {
	t.Parallel()
	held := configMap("held")
	held.Namespace, held.Finalizers = "x", []string{"a/b"}
	free := configMap("free")
	free.Namespace = "x"
	store := kubetest.New(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u"}}, held, free)
	url := listen(t, store) + "/api/v1/namespaces/x"
	if code, answer, _ := do(t, "DELETE", url, "", ""); code != 200 || answer["status"].(map[string]any)["phase"] != "Terminating" {
		t.Errorf("delete: %d %v", code, answer)
	}
	if store.Get(kubetest.RefOf(free)) != nil || store.Get(kubetest.RefOf(held)) == nil {
		t.Error("only the held object stays")
	}
	if code, answer, _ := do(t, "PATCH", url+"/configmaps/held", merge, `{"metadata":{"finalizers":null}}`); code != 200 {
		t.Errorf("patch: %d %v", code, answer)
	}
	if code, _, _ := do(t, "GET", url, "", ""); code != 404 {
		t.Errorf("the namespace goes with the last object: %d", code)
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	url := listen(t, kubetest.New(configMap("x"))) + "/api/v1/namespaces/default/configmaps"
	large := fmt.Sprintf(`{"metadata":{"name":"y"},"data":{"a":%q}}`, strings.Repeat("x", 4<<20))
	for _, c := range [][3]string{{"POST", url, plain}, {"PATCH", url + "/x", merge}, {"PATCH", url + "/x?fieldManager=m", apply}, {"DELETE", url + "/x", plain}} {
		if code, answer, _ := do(t, c[0], c[1], c[2], large); code != 413 {
			t.Errorf("%s %s: %d %v", c[0], c[1], code, answer["message"])
		}
	}
}

// TestAnApplyThatCreatesNeedsTheRightToCreate: a user who may only patch gets 403 for a missing object.
func TestAnApplyThatCreatesNeedsTheRightToCreate(t *testing.T) {
	t.Parallel()
	store := kubetest.New(configMap("x"))
	policy := access.NewPolicy([]access.Rule{{Users: []string{"ann"}, Verbs: []string{"patch"}, Resources: []string{"configmaps"}}})
	api := kubeapi.New(kubeapi.Config{State: store, Writer: store, Policy: policy, Epoch: 1})
	for name, want := range map[string]int{"x": http.StatusOK, "new": http.StatusForbidden} {
		body := strings.NewReader("apiVersion: v1\nkind: ConfigMap\n")
		r := httptest.NewRequestWithContext(access.WithUser(t.Context(), access.User{Name: "ann"}), http.MethodPatch,
			"/api/v1/namespaces/default/configmaps/"+name+"?fieldManager=ann", body)
		r.Header.Set("Content-Type", apply)
		w := httptest.NewRecorder()
		api.Handler().ServeHTTP(w, r)
		if w.Code != want || want == http.StatusForbidden && !strings.Contains(w.Body.String(), `cannot create resource`) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestPodsCanBeImmutable: in all three kinds of updates, and only outside of the subresources.
func TestPodsCanBeImmutable(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/default/pods/web"
	env := `{"spec":{"containers":[{"name":"c","image":"example.com/image:1","env":[{"name":"A","value":"b"}]}]}}`
	for name, c := range map[string]struct {
		method, path, contentType, body string
		code                            int
	}{
		"patch":   {"PATCH", path, "application/strategic-merge-patch+json", env, 422},
		"apply":   {"PATCH", path + "?fieldManager=m&force=true", apply, `{"apiVersion":"v1","kind":"Pod",` + env[1:], 422},
		"update":  {"PUT", path, plain, `{"metadata":{"name":"web"},` + env[1:], 422},
		"dry run": {"PATCH", path + "?dryRun=All", "application/strategic-merge-patch+json", env, 422},
		"image":   {"PATCH", path, "application/strategic-merge-patch+json", `{"spec":{"containers":[{"name":"c","image":"example.com/image:2"}]}}`, 200},
		"label":   {"PATCH", path, merge, `{"metadata":{"labels":{"a":"b"}}}`, 200},
		"resize":  {"PATCH", path + "/resize", "application/strategic-merge-patch+json", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"3"}}}]}}`, 200},
		"debug":   {"PATCH", path + "/ephemeralcontainers", merge, `{"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}`, 200},
		"others":  {"PATCH", "/api/v1/namespaces/default/configmaps/x", merge, `{"data":{"a":"2"}}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, immutable := range []bool{true, false} {
				web := pod("web")
				web.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *quantity("2")}
				store := kubetest.New(configMap("x"), web)
				api := kubeapi.New(kubeapi.Config{State: store, Writer: store, Policy: access.NewPolicy(nil), Epoch: 1, ImmutablePods: immutable})
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					api.Handler().ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), access.Root())))
				}))
				defer server.Close()
				code, answer, _ := do(t, c.method, server.URL+c.path, c.contentType, c.body)
				want := c.code
				if !immutable {
					want = 200
				}
				if code != want || want == 422 && !strings.Contains(fmt.Sprint(answer["message"]), "pod updates may not change fields other than") {
					t.Errorf("immutable %t: %d %v, want %d", immutable, code, answer, want)
				}
			}
		})
	}
}
