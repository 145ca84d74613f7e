package node

import (
	"net/http"

	"monopod/node/localapi"
)

// agentRoutes adds what monopod costs.
func (s *Server) agentRoutes(mux *http.ServeMux) {
	if s.cfg.Agent != nil {
		mux.HandleFunc("GET "+localapi.Self("costs"), func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Agent()) })
	}
}
