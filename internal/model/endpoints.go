package model

import corev1 "k8s.io/api/core/v1"

// Endpoints are the pods that exist, with their status, and the desired Services.
type Endpoints struct {
	Pods     []*corev1.Pod
	Services []*corev1.Service
	// Origins are the sources of both; nil: there are no boundaries.
	Origins *Origins
}
