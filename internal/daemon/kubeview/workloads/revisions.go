package workloads

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"monopod/runner/workload/revisions"
)

// RevisionData returns the data of a ControllerRevision, and its template with defaults. The data is a strategic merge patch in the form of
// Kubernetes, byte by byte: kubectl compares it with the patch that it makes of the present object.
func RevisionData(r *revisions.Revision) ([]byte, *corev1.PodTemplateSpec, error) {
	t, err := r.PodTemplate()
	if err != nil {
		return nil, nil, fmt.Errorf("revision %d: %w", r.Number, err)
	}
	DefaultTemplate(t)
	text, err := json.Marshal(t)
	if err != nil {
		return nil, nil, err
	}
	template := map[string]any{}
	if err := json.Unmarshal(text, &template); err != nil {
		return nil, nil, err
	}
	template["$patch"] = "replace"
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	return data, t, err
}
