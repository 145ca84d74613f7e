package nodemeta

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Selection are the labels of a node that clients do not set. A nil *Selection means that pods select no nodes.
type Selection struct {
	// Name is the name of the node, Platform its labels for operating system and architecture.
	Name     string
	Platform map[string]string
	// Configured are the labels of the configuration, which have precedence over all others.
	Configured map[string]string
}

// Labels returns the labels by which pods select the node, with those that clients have set; nil if none are configured, set or lost: then
// only the platform counts. Those that are lost are missing.
func (s *Selection) Labels(set Metadata) map[string]string {
	if s == nil || len(s.Configured)+len(set.Labels) == 0 && !set.LabelsLost {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, set.Labels)
	maps.Copy(all, s.Platform)
	all[corev1.LabelHostname] = s.Name
	maps.Copy(all, s.Configured)
	return all
}
