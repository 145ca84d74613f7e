package runner

import corev1 "k8s.io/api/core/v1"

// Recorder keeps events about pods. eventType is Normal or Warning. It must not block.
type Recorder interface {
	Event(object corev1.ObjectReference, eventType, reason, message string)
}
