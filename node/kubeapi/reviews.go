package kubeapi

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/request"
)

// review serves reviews: objects of virtual kinds, which are created but never stored.
func (s *Server) review(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if req.Verb != "create" {
		s.fail(w, r, apierrors.NewMethodNotSupported(req.Kind.Resource().GroupResource(), req.Verb))
		return
	}
	format, err := codec.Negotiate(r, req.Kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	options, err := request.ParseWriteOptions(r.URL.Query())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	o, warnings, err := codec.Decode(w, r, req.Kind.GroupVersionKind, options.Validation)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	for _, text := range warnings {
		codec.Warn(w, text)
	}
	reviewer := access.Reviewer{Policy: s.cfg.Policy, Tokens: s.cfg.Tokens}
	answer, err := reviewer.Review(r.Context(), req.Kind, req.Namespace, o, access.UserOf(r.Context()))
	if err == nil {
		err = format.Object(w, http.StatusCreated, answer)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}
