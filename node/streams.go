package node

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	podstream "monopod/node/stream"
)

// Streams serves the kubelet's paths for streams into pods, and the logs of containers; nil without Reach. A caller that mounts it
// elsewhere has to authorize its requests.
func (s *Server) Streams() *podstream.Handler { return s.streams }

// streamRoutes adds them to the socket, whose requests are let through by method: to open a stream by GET changes something too.
func (s *Server) streamRoutes(mux *http.ServeMux) {
	if s.streams == nil {
		return
	}
	for prefix, looks := range podstream.Paths() {
		mux.HandleFunc(prefix, func(w http.ResponseWriter, r *http.Request) {
			if err := mayChange(r.Context()); err != nil && !looks {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			s.streams.ServeHTTP(w, r)
		})
	}
}

// containerLogs is log at the kubelet's path, with its errors: bare texts.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	s.serveLog(w, r, r.PathValue("container"), func(e *apierrors.StatusError) {
		http.Error(w, e.ErrStatus.Message, int(e.ErrStatus.Code))
	})
}
