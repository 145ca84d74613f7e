package discovery_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryclient "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"monopod/node/kubeapi/discovery"
	"monopod/node/kubeapi/kinds"
)

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func serve(w http.ResponseWriter, r *http.Request) { handler(kinds.Served{})(w, r) }

func handler(served kinds.Served) http.HandlerFunc {
	h := discovery.New(served)
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.Serve(w, r) {
			http.NotFound(w, r)
		}
	}
}

// selections returns the default and others with inert kinds.
func selections() map[string]kinds.Served {
	all := map[string]kinds.Served{"default": {}}
	for name, inert := range map[string][]string{"all": kinds.Inert(), "one": {"Role"}, "of the core group": {"LimitRange"}} {
		all[name] = kinds.Serve(inert)
	}
	return all
}

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

func TestClientsFindEachKindInBothForms(t *testing.T) {
	for name, served := range selections() {
		t.Run(name, func(t *testing.T) { findsEachKind(t, served) })
	}
}

func findsEachKind(t *testing.T, served kinds.Served) {
	t.Helper()
	for _, legacy := range []bool{false, true} {
		c := client(t, served)
		c.UseLegacyDiscovery = legacy
		groups, lists, err := c.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		if want := len(served.GroupVersions()); len(lists) != want || len(groups) != want {
			t.Errorf("legacy %v: %d lists, %d groups, want %d", legacy, len(lists), len(groups), want)
		}
		found := map[schema.GroupVersionResource]metav1.APIResource{}
		for _, l := range lists {
			gv, err := schema.ParseGroupVersion(l.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range l.APIResources {
				found[gv.WithResource(r.Name)] = r
			}
		}
		n := 0
		for _, k := range served.All() {
			r := found[k.Resource()]
			if r.Kind != k.Kind || r.Namespaced != k.Namespaced || !slices.Equal(r.Verbs, k.Verbs) || !slices.Equal(r.ShortNames, k.Short) {
				t.Errorf("legacy %v: %s: %+v", legacy, k.Kind, r)
			}
			for _, s := range k.Subresources {
				if r := found[k.GroupVersion().WithResource(k.Plural+"/"+s.Name)]; r.Kind != s.Kind.Kind || r.Namespaced != k.Namespaced {
					t.Errorf("legacy %v: %s/%s: %+v", legacy, k.Kind, s.Name, r)
				}
			}
			n += 1 + len(k.Subresources)
		}
		if len(found) != n {
			t.Errorf("legacy %v: %d resources, want %d", legacy, len(found), n)
		}
		if e := found[schema.GroupVersionResource{Version: "v1", Resource: "pods/eviction"}]; e.Group != "policy" || e.Kind != "Eviction" {
			t.Errorf("kubectl drain needs %+v", e)
		}
		if s := found[schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments/scale"}]; s.Group != "autoscaling" || s.Version != "v1" {
			t.Errorf("kubectl scale needs %+v", s)
		}
	}
}

func get(method, path, accept, etag string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("Accept", accept)
	r.Header.Set("If-None-Match", etag)
	serve(w, r)
	return w
}

func TestTheFormIsTheFirstThatIsAccepted(t *testing.T) {
	for accept, want := range map[string]string{
		"": "APIGroupList", "*/*": "APIGroupList", "application/json": "APIGroupList",
		aggregated: "APIGroupDiscoveryList", aggregated + ";profile=nopeer," + aggregated + ",application/json": "APIGroupDiscoveryList",
		"application/json," + aggregated: "APIGroupList",
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json": "APIGroupList",
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList":                  "Status",
		"application/vnd.kubernetes.protobuf":                                                        "",
	} {
		w := get(http.MethodGet, "/apis", accept, "")
		var got metav1.TypeMeta
		if strings.HasPrefix(w.Body.String(), "k8s\x00") {
			continue
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Kind != want || w.Header().Get("Vary") != "Accept" {
			t.Errorf("%q: %v, %v, want %s; %v", accept, err, got, want, w.Header())
		}
	}
}

func TestAnUnchangedDocumentIsNotSentAgain(t *testing.T) {
	first := get(http.MethodGet, "/apis", aggregated, "")
	tag := first.Header().Get("ETag")
	if again := get(http.MethodGet, "/apis", aggregated, tag); tag == "" || again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("%q: %d", tag, again.Code)
	}
	if other := get(http.MethodGet, "/api", aggregated, tag); other.Code != http.StatusOK || other.Header().Get("ETag") == tag {
		t.Errorf("another document has the same tag: %d", other.Code)
	}
	if plain := get(http.MethodGet, "/apis", "application/json", tag); plain.Code != http.StatusOK {
		t.Errorf("the plain form: %d", plain.Code)
	}
}

func TestPathsThatAreNoDocuments(t *testing.T) {
	for path, want := range map[string]int{
		"/api": 200, "/api/": 200, "/apis": 200, "/apis/apps": 200, "/apis/apps/": 200, "/apis/apps/v1": 200, "/api/v1": 200, "/apis/metrics.k8s.io/v1beta1": 200,
		"/": 404, "/apix": 404, "/api/v2": 404, "/apis/apps/v1/deployments": 404, "/apis/none": 404, "/apis//": 404, "/api/v1/pods": 404,
	} {
		if got := get(http.MethodGet, path, "", "").Code; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got := get(http.MethodPost, "/apis", "", ""); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got.Code)
	}
	if got := get(http.MethodHead, "/apis", aggregated, ""); got.Code != http.StatusOK || got.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d", got.Code)
	}
	body, _ := io.ReadAll(get(http.MethodGet, "/apis/apps", "", "").Body)
	if !strings.Contains(string(body), `"kind":"APIGroup"`) || strings.Contains(get(http.MethodGet, "/apis", "", "").Body.String(), `"kind":"APIGroup"`) {
		t.Errorf("only a group that is asked for alone has its kind: %s", body)
	}
}
