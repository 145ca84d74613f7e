package kubeapi

import (
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
)

// Permit returns an error if a request is invalid or its user may not make it. It is for handlers that serve API paths outside of a Server.
func Permit(p access.Policy, r *http.Request) error {
	req, err := request.Parse(r, kinds.Served{})
	if err != nil {
		return err
	}
	return permit(p, attributes(r, req))
}

// authorize returns a 403 error if the user may not make the request.
func (s *Server) authorize(r *http.Request, req *request.Request) error {
	a := attributes(r, req)
	if req.Kind == nil && s.Serves(a.Path) && slices.Contains(a.User.Groups, access.GroupAuthenticated) {
		return nil // version, health, discovery and schemas: they reveal nothing about this machine
	}
	return permit(s.cfg.Policy, a)
}

func permit(p access.Policy, a access.Attributes) error {
	allowed, reason := p.Allows(a)
	if allowed {
		return nil
	}
	return access.Denied(a, reason)
}

// attributes returns the attributes by which a request is authorized.
func attributes(r *http.Request, req *request.Request) access.Attributes {
	a := access.Attributes{User: access.UserOf(r.Context()), Verb: req.Verb}
	if req.Kind == nil {
		a.Path = r.URL.Path
		return a
	}
	a.Group, a.Resource, a.Subresource = req.Kind.Group, req.Kind.Plural, req.Subresource
	a.Namespace, a.Name = req.Namespace, req.Name
	switch req.Verb {
	case "list", "watch", "deletecollection":
		// As in Kubernetes, listing a single name does not require permission to see other objects.
		if selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err == nil {
			a.Name, _ = selector.RequiresExactMatch("metadata.name")
		}
	}
	if req.Kind.Group == "" && req.Kind.Plural == "namespaces" {
		a.Namespace = a.Name // permissions in a namespace may include the Namespace object
	}
	return a
}
