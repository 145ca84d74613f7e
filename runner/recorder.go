package runner

import corev1 "k8s.io/api/core/v1"

// Recorder records events about pods. eventType is Normal or Warning. Event must not block.
type Recorder interface {
	Event(object corev1.ObjectReference, eventType, reason, message string)
}
