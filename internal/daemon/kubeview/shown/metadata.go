package shown

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
)

// GroupVersionOf returns the group and version of a kind of workloads.
func GroupVersionOf(kind string) string {
	switch kind {
	case "Job", "CronJob":
		return batchv1.SchemeGroupVersion.String()
	case "ReplicationController":
		return "v1"
	}
	return appsv1.SchemeGroupVersion.String()
}

// WithLabel returns a copy of labels with one more.
func WithLabel(all map[string]string, key, value string) map[string]string {
	out := maps.Clone(all)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
