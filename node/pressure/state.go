package pressure

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Level is how much there is of something.
type Level struct{ Available, Capacity int64 }

// Observations are levels by signal. What could not be read is not in it, and counts as it was.
type Observations map[Signal]Level

// State is what has to be remembered between two looks. The zero State remembers nothing.
type State struct {
	// first is since when thresholds are met, by index; met are those that pods are evicted for.
	first map[int]time.Time
	met   map[int]bool
	// last is when a threshold of a condition was met last.
	last map[corev1.NodeConditionType]time.Time
}

// Verdict is what follows from a look.
type Verdict struct {
	// Conditions of the node that are true.
	Conditions []corev1.NodeConditionType
	// Reclaim is the threshold to be seen to first; nil: there is none.
	Reclaim *Threshold
	// Level is what was observed of it.
	Level Level
}

// short reports whether less is available than a threshold allows; reclaiming adds the minimum to reclaim.
func (t *Threshold) short(l Level, reclaiming bool) bool {
	want := t.Amount.Of(l.Capacity)
	if reclaiming {
		want += t.MinReclaim.Of(l.Capacity)
	}
	return l.Available < want
}

// missing is how much has to be given back.
func (t *Threshold) missing(l Level) int64 {
	return max(t.Amount.Of(l.Capacity)+t.MinReclaim.Of(l.Capacity)-l.Available, 0)
}

// Next is what follows from the state before and a look. A threshold that was met is met until its minimum is reclaimed; a condition is true
// until the transition period is over.
func Next(now time.Time, was State, cfg *Config, seen Observations) (State, Verdict) {
	s := State{first: map[int]time.Time{}, met: map[int]bool{}, last: map[corev1.NodeConditionType]time.Time{}}
	for condition, at := range was.last {
		if !at.After(now) { // else the clock was set back
			s.last[condition] = at
		}
	}
	v := Verdict{}
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		level, ok := seen[t.Signal]
		since, before := was.first[i]
		if ok && !t.short(level, was.met[i]) || !ok && !before {
			continue
		}
		if !before || since.After(now) {
			since = now
		}
		s.first[i] = since
		s.last[t.Signal.Condition()] = now
		if now.Sub(since) < t.Grace {
			continue
		}
		s.met[i] = true
		if ok && (v.Reclaim == nil || rank(t.Signal) < rank(v.Reclaim.Signal)) {
			v.Reclaim, v.Level = t, level
		}
	}
	for _, condition := range conditions() {
		at, was := s.last[condition]
		if was && (at.Equal(now) || now.Sub(at) < cfg.Transition) {
			v.Conditions = append(v.Conditions, condition)
		} else {
			delete(s.last, condition)
		}
	}
	return s, v
}

func rank(s Signal) int { return slices.Index(signals(), s) }

func conditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}
}

// words are kubelet's for a condition: reason and message when it is true, and when it is not.
func words(c corev1.NodeConditionType) (yes, no [2]string) {
	switch c {
	case corev1.NodeMemoryPressure:
		return [2]string{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
			[2]string{"KubeletHasSufficientMemory", "kubelet has sufficient memory available"}
	case corev1.NodeDiskPressure:
		return [2]string{"KubeletHasDiskPressure", "kubelet has disk pressure"}, [2]string{"KubeletHasNoDiskPressure", "kubelet has no disk pressure"}
	}
	return [2]string{"KubeletHasInsufficientPID", "kubelet has insufficient PID available"},
		[2]string{"KubeletHasSufficientPID", "kubelet has sufficient PID available"}
}

// eventOf is kubelet's reason of the event that a condition has become true, or not.
func eventOf(c corev1.NodeConditionType, now bool) string {
	yes, no := words(c)
	reason := no[0]
	if now {
		reason = yes[0]
	}
	return "Node" + reason[len("Kubelet"):]
}
