package node

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/budget"
)

// Agent is what monopod itself costs the machine: the answer to GET /v1/agent.
type Agent struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	// Agent is monopod, with the containerd inside it; Shims are the processes that look after containers.
	Agent budget.Cost `json:"agent"`
	Shims budget.Cost `json:"shims"`
	// Cgroup is monopod's own, with the limits of its budget; empty: it has none.
	Cgroup string        `json:"cgroup,omitempty"`
	Budget budget.Limits `json:"budget,omitzero"`
	// MemoryLimitBytes is what the garbage collector tries to do with; 0: no limit is set.
	MemoryLimitBytes int64 `json:"memoryLimitBytes,omitempty"`
	// Conditions say whether the machine has too little of something; none: nobody looks.
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// Warnings are what is wrong with files that are read when something needs them, which then fails.
	Warnings []string `json:"warnings,omitempty"`
}

// agentRoutes adds what monopod costs.
func (s *Server) agentRoutes(mux *http.ServeMux) {
	if s.cfg.Agent != nil {
		mux.HandleFunc("GET /v1/agent", func(w http.ResponseWriter, _ *http.Request) { s.json(w, s.cfg.Agent()) })
	}
}

// Agent returns what the daemon costs the machine.
func (c *Client) Agent(ctx context.Context) (Agent, error) {
	var a Agent
	return a, c.getJSON(ctx, "/v1/agent", &a)
}
