package request

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/kinds"
)

func parse(t testing.TB, method, target string) (*Request, error) {
	t.Helper()
	return Parse(httptest.NewRequest(method, target, http.NoBody), kinds.Served{})
}

// words returns a request as VERB RESOURCE.GROUP NAMESPACE/NAME SUBRESOURCE REST.
func words(r *Request) string {
	if r.Kind == nil {
		return r.Verb
	}
	text := r.Verb + " " + r.Kind.Resource().GroupResource().String() + " " + r.Namespace + "/" + r.Name
	if r.Subresource != "" {
		text += " " + r.Subresource
	}
	if r.Rest != "" {
		text += " " + r.Rest
	}
	return text
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/api/v1/pods", "list pods /"},
		{"GET", "/api/v1/pods/", "list pods /"},
		{"HEAD", "/api/v1/pods?watch=true", "list pods /"},
		{"GET", "/api/v1/pods?watch=true", "watch pods /"},
		{"GET", "/api/v1/pods?watch=1", "watch pods /"},
		{"GET", "/api/v1/pods?watch", "watch pods /"},
		{"GET", "/api/v1/pods?watch=false", "list pods /"},
		{"GET", "/api/v1/pods?watch=False", "list pods /"},
		{"GET", "/api/v1/pods?watch=0", "list pods /"},
		{"GET", "/api/v1/namespaces/shop/pods", "list pods shop/"},
		{"GET", "/api/v1/namespaces/shop/pods/web", "get pods shop/web"},
		{"GET", "/api/v1/namespaces/shop/pods/web/", "get pods shop/web"},
		{"GET", "/api/v1/namespaces/shop/pods/web?watch=true", "get pods shop/web"},
		{"HEAD", "/api/v1/namespaces/shop/pods/web", "get pods shop/web"},
		{"POST", "/api/v1/namespaces/shop/pods", "create pods shop/"},
		{"PUT", "/api/v1/namespaces/shop/pods/web", "update pods shop/web"},
		{"PATCH", "/api/v1/namespaces/shop/pods/web", "patch pods shop/web"},
		{"DELETE", "/api/v1/namespaces/shop/pods/web", "delete pods shop/web"},
		{"DELETE", "/api/v1/namespaces/shop/pods", "deletecollection pods shop/"},
		{"GET", "/api/v1/namespaces/shop/pods/web/status", "get pods shop/web status"},
		{"PATCH", "/api/v1/namespaces/shop/pods/web/status", "patch pods shop/web status"},
		{"GET", "/api/v1/namespaces/shop/pods/web/log?follow=true", "get pods shop/web log"},
		{"GET", "/api/v1/namespaces/shop/pods/web/exec?command=sh", "create pods shop/web exec"},
		{"POST", "/api/v1/namespaces/shop/pods/web/exec?command=sh", "create pods shop/web exec"},
		{"GET", "/api/v1/namespaces/shop/pods/web/attach", "create pods shop/web attach"},
		{"POST", "/api/v1/namespaces/shop/pods/web/portforward", "create pods shop/web portforward"},
		{"POST", "/api/v1/namespaces/shop/pods/web/eviction", "create pods shop/web eviction"},
		{"GET", "/api/v1/namespaces/shop/pods/web:80/proxy", "get pods shop/web:80 proxy"},
		{"GET", "/api/v1/namespaces/shop/pods/https:web:443/proxy/", "get pods shop/https:web:443 proxy /"},
		{"POST", "/api/v1/namespaces/shop/pods/web/proxy/a/b/", "create pods shop/web proxy /a/b/"},
		{"DELETE", "/api/v1/namespaces/shop/services/web/proxy/a//b", "delete services shop/web proxy /a//b"},
		{"PUT", "/api/v1/namespaces/shop/services/web/proxy/../%2e%2e/x%2Fy%3Fz", "update services shop/web proxy /../../x/y?z"},
		{"GET", "/api/v1/namespaces", "list namespaces /"},
		{"GET", "/api/v1/namespaces/shop", "get namespaces /shop"},
		{"GET", "/api/v1/namespaces/shop/", "get namespaces /shop"},
		{"PUT", "/api/v1/namespaces/shop/status", "update namespaces /shop status"},
		{"GET", "/api/v1/nodes/here", "get nodes /here"},
		{"GET", "/api/v1/nodes/here/proxy/metrics", "get nodes /here proxy /metrics"},
		{"GET", "/apis/apps/v1/deployments", "list deployments.apps /"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale", "patch deployments.apps shop/web scale"},
		{"GET", "/apis/metrics.k8s.io/v1beta1/nodes", "list nodes.metrics.k8s.io /"},
		{"GET", "/apis/monopod.dev/v1alpha1/sources/x", "get sources.monopod.dev /x"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "create selfsubjectaccessreviews.authorization.k8s.io /"},
		{"POST", "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews", "create localsubjectaccessreviews.authorization.k8s.io shop/"},
		{"GET", "/api/v1/namespaces/shop/pods/%C3%A4", "get pods shop/ä"},

		// Paths without a resource.
		{"GET", "/", "get"},
		{"GET", "/api", "get"},
		{"GET", "/api/", "get"},
		{"GET", "/api/v1", "get"},
		{"GET", "/api/v1/", "get"},
		{"GET", "/apis/apps/v1", "get"},
		{"GET", "/apis/apps/v1/", "get"},
		{"POST", "/version", "post"},
		{"GET", "//api/v1/pods", "get"},
		{"GET", "/other/v1/pods", "get"},
	} {
		got, err := parse(t, c.method, c.target)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.target, err)
		} else if words(got) != c.want {
			t.Errorf("%s %s is %q, want %q", c.method, c.target, words(got), c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		method, target string
		code           int32
	}{
		{"GET", "/api/v2/pods", 404},
		{"GET", "/api/v1/widgets", 404},
		{"GET", "/apis/apps/v1beta1/deployments", 404},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/roles", 404},
		{"GET", "/api/v1/watch/pods", 404},
		{"GET", "/api/v1/proxy/namespaces/shop/pods/web", 404},
		{"GET", "/api/v1/pods/web", 404},
		{"GET", "/api/v1/namespaces/shop/nodes", 404},
		{"GET", "/api/v1/namespaces//pods", 404},
		{"GET", "/api/v1/namespaces/shop/pods//log", 404},
		{"GET", "/api/v1/namespaces/shop/pods/web/log/more", 404},
		{"GET", "/api/v1/namespaces/shop/pods/web/unknown", 404},
		{"GET", "/api/v1/namespaces/shop/configmaps/web/status", 404},
		{"PUT", "/api/v1/namespaces/shop/finalize", 404},
		{"GET", "/apis/apps/v1/namespaces/shop", 404},
		{"GET", "/api/v1/namespaces/shop/pods/a%2Fb", 400},
		{"GET", "/api/v1/namespaces/a%2Fb/pods", 400},
		{"GET", "/api/v1/namespaces/shop/pods/%2e%2e", 400},
		{"GET", "/api/v1/namespaces/../pods", 400},
		{"GET", "/api/v1/namespaces/shop/pods/.", 400},
		{"GET", "/api/v1/namespaces/shop/pods/a%25b", 400},
		{"GET", "/api/v1/namespaces/shop/pods/%FF", 400},
		{"GET", "/api/v1/namespaces/shop/pods/" + strings.Repeat("x", 513), 400},
		{"POST", "/api/v1/pods", 405},
		{"DELETE", "/api/v1/pods", 405},
		{"PUT", "/api/v1/namespaces/shop/pods", 405},
		{"PATCH", "/api/v1/namespaces/shop/pods", 405},
		{"POST", "/api/v1/namespaces/shop/pods/web", 405},
		{"OPTIONS", "/api/v1/namespaces/shop/pods/web", 405},
		{"DELETE", "/api/v1/namespaces", 405},
		{"POST", "/api/v1/nodes", 405},
		{"DELETE", "/api/v1/namespaces/shop/pods/web/status", 405},
		{"PUT", "/api/v1/namespaces/shop/pods/web/exec", 405},
		{"HEAD", "/api/v1/namespaces/shop/pods/web/exec", 405},
		{"GET", "/api/v1/namespaces/shop/pods/web/eviction", 405},
		{"POST", "/api/v1/namespaces/shop/pods/web/log", 405},
		{"GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405},
		{"GET", "/apis/metrics.k8s.io/v1beta1/pods?watch=true", 405},
		{"POST", "/api/v1/namespaces/shop/replicationcontrollers", 405},
	} {
		_, err := parse(t, c.method, c.target)
		status, ok := err.(apierrors.APIStatus)
		if !ok {
			t.Errorf("%s %s: %v", c.method, c.target, err)
		} else if status.Status().Code != c.code {
			t.Errorf("%s %s: %d %v, want %d", c.method, c.target, status.Status().Code, err, c.code)
		}
	}
	_, err := parse(t, "GET", "/api/v1/widgets")
	if !apierrors.IsNotFound(err) || err.Error() != "the server could not find the requested resource" {
		t.Errorf("kubectl would not understand %v", err)
	}
	_, err = parse(t, "POST", "/api/v1/namespaces/shop/pods/web/log")
	if !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "pods/log") {
		t.Errorf("it does not name the subresource: %v", err)
	}
}

func TestEachVerbOfEachKindHasAPath(t *testing.T) {
	methods := map[string]string{"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
	for _, k := range kinds.All() {
		base := "/apis/" + k.Group + "/" + k.Version
		if k.Group == "" {
			base = "/api/" + k.Version
		}
		if k.Namespaced {
			base += "/namespaces/ns"
		}
		base += "/" + k.Plural
		for verb, method := range methods {
			target := base
			switch verb {
			case "get", "update", "patch", "delete":
				target += "/name"
			case "watch":
				target += "?watch=true"
			}
			req, err := Parse(httptest.NewRequest(method, target, http.NoBody), kinds.Serve(kinds.Inert()))
			if (err == nil) != k.Allows(verb) {
				t.Errorf("%s %s: %v, verbs %v", method, target, err, k.Verbs)
			}
			if err == nil && (req.Verb != verb || req.Kind != k) {
				t.Errorf("%s %s is %s", method, target, words(req))
			}
		}
		for _, sub := range k.Subresources {
			for _, verb := range sub.Verbs {
				req, err := Parse(httptest.NewRequest(methods[verb], base+"/name/"+sub.Name, http.NoBody), kinds.Serve(kinds.Inert()))
				if err != nil || req.Kind != k || req.Subresource != sub.Name {
					t.Errorf("%s of %s/%s: %v", verb, k.Plural, sub.Name, err)
				}
			}
		}
	}
}

func TestInertKindsAreServedOnlyIfTheyAreNamed(t *testing.T) {
	some := kinds.Serve([]string{"Role", "LimitRange"})
	rbac := "/apis/rbac.authorization.k8s.io/v1/"
	for _, tt := range []struct {
		path        string
		before, now bool
	}{
		{rbac + "namespaces/a/roles/x", false, true},
		{rbac + "roles", false, true},
		{rbac + "clusterroles", false, false},
		{"/api/v1/namespaces/a/limitranges", false, true},
		{"/api/v1/resourcequotas", false, false},
		{"/api/v1/pods", true, true},
	} {
		for _, c := range []struct {
			served kinds.Served
			want   bool
		}{{kinds.Served{}, tt.before}, {some, tt.now}} {
			_, err := Parse(httptest.NewRequest(http.MethodGet, tt.path, http.NoBody), c.served)
			if (err == nil) != c.want || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v, want served %v", tt.path, err, c.want)
			}
		}
		if _, err := Parse(httptest.NewRequest(http.MethodPatch, tt.path, http.NoBody), kinds.Served{}); !tt.before && !apierrors.IsNotFound(err) {
			t.Errorf("PATCH %s: %v", tt.path, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, path := range []string{
		"/api/v1/namespaces/shop/pods/web/proxy/a", "/apis/apps/v1/deployments", "/api/v1/namespaces/a%2Fb", "/api/v1/namespaces/%2e%2e/pods/%00", "/%", "*",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "BREW"} {
			f.Add(method, path, "watch=true")
		}
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Method, r.URL.Path, r.URL.RawQuery = method, path, query
		if unescaped, raw, ok := strings.Cut(path, "\x00"); ok {
			r.URL.Path, r.URL.RawPath = unescaped, raw
		}
		req, err := Parse(r, kinds.Serve(kinds.Inert()))
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Fatalf("%v is no status", err)
			}
			return
		}
		for _, name := range []string{req.Namespace, req.Name} {
			if strings.ContainsAny(name, "/%") || name == "." || name == ".." || len(name) > maxName {
				t.Fatalf("accepted %q", name)
			}
		}
		if req.Kind != nil && req.Verb == "" {
			t.Fatal("no verb")
		}
	})
}
