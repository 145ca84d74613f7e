package kubeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/health"
	"monopod/node/kubeapi/request"
)

// path serves paths that are not about objects.
func (s *Server) path(w http.ResponseWriter, r *http.Request) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case !s.Serves(r.URL.Path):
		s.fail(w, r, request.NotServed())
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		s.fail(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "", "", 0, false))
	case first == "version" && rest == "":
		health.Version(w, s.cfg.Version)
	case s.probe(w, r, first, rest):
	case s.discovery.Serve(w, r):
	case s.schemas.Serve(w, r):
	case s.openID(w, r):
	case r.URL.Path == request.DefinitionsPath:
		noDefinitions(w)
	default:
		s.fail(w, r, request.NotServed())
	}
}

// noDefinitions responds with an empty list of custom resources.
func noDefinitions(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	const list = `{"kind":"CustomResourceDefinitionList","apiVersion":"apiextensions.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`
	_, _ = io.WriteString(w, list+"\n")
}

// probe serves health checks; it returns false for other paths.
func (s *Server) probe(w http.ResponseWriter, r *http.Request, probe, one string) bool {
	checks := []health.Check{{Name: "ping"}}
	switch probe {
	case "healthz", "livez":
	case "readyz":
		checks = append(checks, health.Check{Name: "state", Run: s.blind})
	default:
		return false
	}
	return health.Serve(w, r, probe, one, checks)
}

// blind returns an error that names the kinds that cannot be read: their lists show the last state, and watches pause.
func (s *Server) blind(ctx context.Context) error {
	unseen, err := s.log.Unseen(ctx)
	if err != nil || len(unseen) == 0 {
		return err
	}
	var names []string
	for k := range unseen {
		names = append(names, k.Plural)
	}
	slices.Sort(names)
	return fmt.Errorf("%s unavailable; see the monopod log", strings.Join(slices.Compact(names), ", "))
}
