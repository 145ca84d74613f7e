package node

import (
	"context"
	"errors"
	"net/http"

	"monopod/node/why"
)

// Whys explains why pods are as they are.
type Whys interface {
	// Why answers about one pod, or with an empty name about everything that is not fine, of one namespace or, if that is
	// empty, of all. The error is ErrStarting when more will be known in a moment.
	Why(ctx context.Context, namespace, name string) (why.Answer, error)
}

// why serves explanations for a pod, or for all pods of a namespace, also while containers cannot be observed.
func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if name == "" {
		namespace = r.URL.Query().Get("namespace")
	}
	var answer why.Answer
	err := s.patient(r.Context(), func() (err error) {
		answer, err = s.cfg.Whys.Why(r.Context(), namespace, name)
		return err
	})
	if err != nil && !errors.Is(err, ErrStarting) {
		s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
		return
	}
	s.json(w, answer)
}
