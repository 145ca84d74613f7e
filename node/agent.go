package node

import (
	"net/http"
)

// agentRoutes adds what monopod costs.
func (s *Server) agentRoutes(mux *http.ServeMux) {
	if s.cfg.Agent != nil {
		mux.HandleFunc("GET /v1/agent", func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Agent()) })
	}
}
