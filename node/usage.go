package node

import (
	"context"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Usage returns what the machine, its pods and their containers use of processors and memory.
func (c *Client) Usage(ctx context.Context) (statsapi.Summary, error) {
	var s statsapi.Summary
	return s, c.getJSON(ctx, "/stats/summary?only_cpu_and_memory=true", &s)
}
