// Package discovery serves the discovery documents of the Kubernetes API: /api, /apis and the paths of groups and versions, each plain and
// aggregated.
//
// Everything is derived from the served kinds, on the first request. It must not know about authorization.
//
// Goroutines: none.
package discovery

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
)

// aggregatedType is the media type of aggregated discovery. Clients compare its parameters.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// documents holds all responses.
type documents struct {
	plain      map[string]runtime.Object
	aggregated map[string]document
}

// document is an encoded response.
type document struct {
	body []byte
	etag string
}

// Handler serves discovery requests. Create it with New.
type Handler struct{ all func() documents }

// New returns a handler of an API that serves these kinds.
func New(served kinds.Served) *Handler {
	return &Handler{sync.OnceValue(func() documents { return makeDocuments(served) })}
}

// Serve serves discovery requests; it returns false for other paths.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path != "/api" && path != "/apis" && !strings.HasPrefix(path, "/api/") && !strings.HasPrefix(path, "/apis/") {
		return false
	}
	plain, known := h.all().plain[path]
	if !known {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		codec.Fail(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: path}, r.Method))
		return true
	}
	w.Header().Set("Vary", "Accept")
	if d, ok := h.all().aggregated[path]; ok && wantsAggregated(r.Header) {
		d.serve(w, r)
		return true
	}
	if v, ok := plain.(*metav1.APIVersions); ok {
		plain = withAddress(v, r)
	}
	f, err := codec.Negotiate(r, nil)
	if err == nil {
		err = f.Object(w, http.StatusOK, plain)
	}
	if err != nil {
		codec.Fail(w, r, err)
	}
	return true
}

// wantsAggregated reports whether the client prefers the aggregated form to the plain one.
func wantsAggregated(h http.Header) bool {
	for media, params := range codec.Accepts(h) {
		json := media == "application/json" || media == "application/*" || media == "*/*"
		switch {
		case json && params["as"] == "APIGroupDiscoveryList" && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2":
			return true
		case params["as"] == "" && params["g"] == "" && params["v"] == "":
			return false
		}
	}
	return false
}

func (d document) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", d.etag)
	h.Set("Cache-Control", "public")
	for have := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimSpace(have) == d.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", aggregatedType)
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(d.body) // errors mean that the client is gone
	}
}

// withAddress returns the versions of /api with the address that the client connected to.
func withAddress(v *metav1.APIVersions, r *http.Request) *metav1.APIVersions {
	c := *v
	address := ""
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		address = local.String()
	}
	c.ServerAddressByClientCIDRs = []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}
	return &c
}

func makeDocuments(served kinds.Served) documents {
	d := documents{plain: map[string]runtime.Object{}, aggregated: map[string]document{}}
	groups := metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList"), Groups: []metav1.APIGroup{}}
	d.plain["/api"] = &metav1.APIVersions{TypeMeta: typeMeta("APIVersions"), Versions: []string{"v1"}}
	d.plain["/apis"] = &groups
	core, others := groupList{}, groupList{}
	for _, gv := range served.GroupVersions() {
		resources, discovered := resourcesOf(served, gv)
		list := &metav1.APIResourceList{TypeMeta: typeMeta("APIResourceList"), GroupVersion: gv.String(), APIResources: resources}
		if gv.Group == "" {
			d.plain["/api/"+gv.Version] = list
			core.add(gv, discovered)
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		group := metav1.APIGroup{TypeMeta: typeMeta("APIGroup"), Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
		d.plain["/apis/"+gv.String()], d.plain["/apis/"+gv.Group] = list, &group
		group.TypeMeta = metav1.TypeMeta{}
		groups.Groups = append(groups.Groups, group)
		group.TypeMeta = typeMeta("APIGroup")
		others.add(gv, discovered)
	}
	d.aggregated["/api"], d.aggregated["/apis"] = core.document(), others.document()
	return d
}

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }

// document encodes a list and computes its ETag.
func (l groupList) document() document {
	l.APIVersion, l.Kind = "apidiscovery.k8s.io/v2", "APIGroupDiscoveryList"
	body, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings only
	}
	return document{body: append(body, '\n'), etag: fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(body)))}
}
