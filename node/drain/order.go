package drain

import "monopod/manifests"

// Pod is what a drain has to know about a pod.
type Pod struct {
	Key      manifests.Key
	Priority int32
	// Stopped reports that nothing of the pod runs.
	Stopped bool
}

// NextLevel returns the lowest priority above a level that one of the pods that s stops has; nil: none. A nil level is below all priorities.
func (s *State) NextLevel(pods []Pod, above *int32) *int32 {
	var next *int32
	for _, p := range pods {
		if s.Stops(p.Key, p.Priority) && (above == nil || p.Priority > *above) && (next == nil || p.Priority < *next) {
			next = &p.Priority
		}
	}
	return next
}

// Advance returns the level at which a drain stops pods now, given the level at which it stopped them before: the next one once all pods up to
// the present one have stopped. nil: no pod has to be waited for any longer, and pods of every priority stop.
func (s *State) Advance(pods []Pod, level *int32) *int32 {
	if s.Drain == nil {
		return nil
	}
	for level != nil && !s.waits(pods, *level) {
		level = s.NextLevel(pods, level)
	}
	return level
}

// waits reports whether a pod up to a level is still to stop.
func (s *State) waits(pods []Pod, level int32) bool {
	for _, p := range pods {
		if !p.Stopped && p.Priority <= level && s.Stops(p.Key, p.Priority) {
			return true
		}
	}
	return false
}
