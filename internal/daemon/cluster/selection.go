package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/host"
	"monopod/node/nodemeta"
	"monopod/runner/admit"
)

// Selection returns the labels of the node that clients do not set.
func Selection(cfg *config.Loaded) *nodemeta.Selection {
	return &nodemeta.Selection{Name: cfg.NodeName, Platform: host.Platform().Labels(), Configured: cfg.NodeLabels}
}

// Matches returns a function that reports whether pods match the node now, as when they are admitted. Pods of which this is unknown count as
// matching: they wait. set returns what clients have set.
func Matches(s *nodemeta.Selection, set func() nodemeta.Metadata) func(*corev1.PodSpec) bool {
	return func(spec *corev1.PodSpec) bool {
		now := set()
		n := admit.Node{Labels: s.Labels(now), LabelsLost: now.LabelsLost, Platform: host.Platform()}
		if s != nil {
			n.Name = s.Name
		}
		return n.Matches(spec)
	}
}
