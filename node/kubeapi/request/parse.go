package request

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/kinds"
)

// maxName is the size limit of names in paths, in bytes. Names in proxy paths also have a scheme and a port.
const maxName = 512

// DefinitionsPath is where kubectl lists custom resources before it validates an object whose kind has no PATCH, such as a review. The group is
// not served, but this list must exist: it is empty.
const DefinitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Parse parses the path and query of a request to an API that serves these kinds. The error is a *apierrors.StatusError: 404 for resources that are not served, 400 for
// invalid names, 405 for methods that a resource does not have. Paths without a resource are not checked.
func Parse(r *http.Request, served kinds.Served) (*Request, error) {
	version, parts, ok := split(r.URL.EscapedPath())
	definitions := r.URL.Path == DefinitionsPath && r.Method == http.MethodGet && !IsTrue(r.URL.Query(), "watch")
	if !ok || definitions {
		return &Request{Verb: strings.ToLower(r.Method)}, nil
	}
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 && !ofNamespace(version, parts[2]) {
		namespace, parts = parts[1], parts[2:]
		if namespace == "" {
			return nil, NotServed()
		}
	}
	req := &Request{Kind: served.ByResource(version.WithResource(parts[0])), Namespace: namespace}
	if req.Kind == nil {
		return nil, NotServed()
	}
	if err := req.below(parts[1:]); err != nil {
		return nil, err
	}
	if err := validName("namespace", req.Namespace); err != nil {
		return nil, err
	}
	if err := validName("name", req.Name); err != nil {
		return nil, err
	}
	req.Verb = req.verb(r)
	return req, req.check(r.Method)
}

// split returns the group and version of a path, and the unescaped segments after them; ok is false if the path has no resource.
func split(escaped string) (version schema.GroupVersion, parts []string, ok bool) {
	path, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return version, nil, false
	}
	parts = strings.Split(path, "/")
	for i, part := range parts {
		unescaped, err := url.PathUnescape(part)
		if err != nil {
			return version, nil, false
		}
		parts[i] = unescaped
	}
	switch {
	case parts[0] == "api" && len(parts) > 2:
		version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 3 && parts[1] != "":
		version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return version, nil, false
	}
	return version, parts, parts[0] != ""
}

// ofNamespace reports whether the segment after a namespace name is a subresource of the namespace, not a resource in it.
func ofNamespace(version schema.GroupVersion, segment string) bool {
	if version.Group != "" {
		return false
	}
	k := kinds.ByResource(version.WithResource("namespaces"))
	// A trailing slash, and a subresource that only cluster controllers need.
	return segment == "" || segment == "finalize" || k != nil && k.Subresource(segment) != nil
}

// below parses the segments after the resource: name, subresource, and the rest after proxy. A trailing slash is ignored, except in the
// rest.
func (r *Request) below(parts []string) error {
	if len(parts) > 2 && parts[1] == "proxy" {
		r.Rest = "/" + strings.Join(parts[2:], "/")
		parts = parts[:2]
	} else if n := len(parts); n > 0 && parts[n-1] == "" {
		parts = parts[:n-1]
	}
	if len(parts) > 2 || slices.Contains(parts, "") {
		return NotServed()
	}
	if len(parts) > 0 {
		r.Name = parts[0]
	}
	if len(parts) > 1 {
		if r.Subresource = parts[1]; r.Kind.Subresource(r.Subresource) == nil {
			return NotServed()
		}
	}
	return nil
}

// verb returns the verb for authorization; empty if the method is not supported.
func (r *Request) verb(from *http.Request) string {
	read := from.Method == http.MethodGet || from.Method == http.MethodHead
	if r.Subresource == "proxy" && from.Method == http.MethodOptions {
		return "get"
	}
	switch {
	case r.connects():
		// The required permission is the same for GET, which WebSockets need, and POST.
		if from.Method == http.MethodGet || from.Method == http.MethodPost {
			return "create"
		}
		return ""
	case read && r.Name != "":
		return "get"
	case from.Method == http.MethodGet && IsTrue(from.URL.Query(), "watch"):
		return "watch"
	case read:
		return "list"
	case from.Method == http.MethodDelete && r.Name == "":
		return "deletecollection"
	}
	switch from.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

func (r *Request) connects() bool {
	return r.Subresource == "exec" || r.Subresource == "attach" || r.Subresource == "portforward"
}

// check rejects resources, subresources and verbs that are not in the table of kinds.
func (r *Request) check(method string) error {
	collection := r.Name == ""
	if r.Namespace != "" && !r.Kind.Namespaced || r.Namespace == "" && r.Kind.Namespaced && !collection {
		return NotServed()
	}
	allowed := r.Kind.Allows(r.Verb)
	if r.Subresource != "" {
		allowed = slices.Contains(r.Kind.Subresource(r.Subresource).Verbs, r.Verb)
	} else {
		switch r.Verb {
		case "create":
			allowed = allowed && collection
		case "update", "patch":
			allowed = allowed && !collection
		}
	}
	if r.Kind.Namespaced && r.Namespace == "" && r.Verb != "list" && r.Verb != "watch" {
		allowed = false // writes require a namespace
	}
	if allowed {
		return nil
	}
	resource := r.Kind.Resource().GroupResource()
	if r.Subresource != "" {
		resource.Resource += "/" + r.Subresource
	}
	action := r.Verb
	if action == "" {
		action = fmt.Sprintf("method %.20q", method)
	}
	return apierrors.NewMethodNotSupported(resource, action)
}

func validName(what, name string) error {
	if name == "" {
		return nil
	}
	if len(name) > maxName {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s in the path: longer than %d bytes", what, maxName))
	}
	if !utf8.ValidString(name) {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s in the path: not UTF-8", what))
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s in the path: %q: %s", what, name, strings.Join(problems, "; ")))
	}
	return nil
}

// NotServed returns the error for paths and resources that are not served: 404, without an object name.
func NotServed() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
}

// IsTrue parses a boolean parameter like Kubernetes: true if present and neither false nor 0.
func IsTrue(q url.Values, name string) bool {
	values := q[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
