package mirror

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// Local is a pod of this machine as its mirror is to be.
type Local struct {
	// Pod is what the mirror shows.
	Pod *corev1.Pod
	// Of is the pod that it was made of.
	Of *corev1.Pod
	// Hash is of what does not change in the life of a mirror.
	Hash string
	// Digest is of the status without conditions.
	Digest string
	// Refused is why there can be no mirror; nil: there can.
	Refused error
}

// ActionKind is what a request does.
type ActionKind string

// Kinds of actions.
const (
	CreateMirror ActionKind = "create"
	DeleteMirror ActionKind = "delete"
	PatchStatus  ActionKind = "status"
)

// Action is one request.
type Action struct {
	Kind ActionKind
	// Key is of the mirror.
	Key manifests.Key
	// UID is of the mirror that is meant; empty to create one.
	UID types.UID
}

func (a Action) String() string { return fmt.Sprintf("%s %s", a.Kind, a.Key) }

// Try is what became of the last request for a mirror.
type Try struct {
	// At is when to try again, zero when it went well.
	At time.Time
	// Refused is the status that the server did not accept, and will not.
	Refused string
	// Sent and Got are the status that was accepted, and how it looked then: the server may not keep all of it.
	Sent, Got string
	// Remade is when the mirror was last deleted because it had been edited.
	Remade time.Time
}

// RemakeEvery is how long an edited mirror stays when the one before was edited, too: who edits may be a program.
const RemakeEvery = time.Minute

// View is all that a plan follows from.
type View struct {
	Now time.Time
	// Node is the uid of the Node; empty: there is none, and without it no mirror.
	Node types.UID
	// Pods are the pods of this machine, by the name of their mirror. Complete reports that there are no others.
	Pods     map[manifests.Key]Local
	Complete bool
	// Bound are the pods of this machine that the server has bound to it: they have no mirrors. Nil: bound pods are ignored.
	Bound map[types.UID]Local
	// Refused are the pods that the server has bound to it and that do not exist here.
	Refused map[types.UID]Local
	// Ended are the pods that the server wants deleted and that no longer exist here, with their final status. Empty unless Complete.
	Ended map[types.UID]Local
	// Mirrors are all pods that the server has for this machine.
	Mirrors map[manifests.Key]Mirror
	Tries   map[manifests.Key]Try
}

// Plan says which requests make the mirrors what they should be, one for each mirror at most, and when to look again
// although nothing has changed; zero: never. It never asks for anything on this machine.
func Plan(v View) (actions []Action, next time.Time) {
	if v.Node == "" {
		return nil, time.Time{}
	}
	take := func(a Action, wanted bool, at time.Time) {
		switch {
		case !wanted:
		case !at.After(v.Now):
			actions = append(actions, a)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	for key, local := range v.Pods {
		a, ok := v.stepTo(key, local)
		at := v.Tries[key].At
		if m := v.Mirrors[key]; !ok && m.Edited && !m.Other {
			a, ok = Action{DeleteMirror, key, m.UID}, true
			if again := v.Tries[key].Remade.Add(RemakeEvery); again.After(at) {
				at = again
			}
		}
		take(a, ok, at)
	}
	for key, m := range v.Mirrors {
		a, ok := v.stepOf(key, m)
		take(a, ok, v.Tries[key].At)
	}
	slices.SortFunc(actions, func(a, b Action) int {
		return a.Key.Compare(b.Key)
	})
	return actions, next
}

// stepOf is the next request for a pod there that is no mirror of a pod of this machine, or that was one.
func (v *View) stepOf(key manifests.Key, m Mirror) (Action, bool) {
	if !m.Other {
		_, wanted := v.Pods[key]
		return Action{DeleteMirror, key, m.UID}, !wanted && (v.Complete || m.Leaving)
	}
	local, here := v.Bound[m.UID]
	switch {
	case v.Bound == nil:
		return Action{}, false
	case here:
		return v.statusOf(key, local, m)
	case m.Leaving: // it has stopped here, or has never run: how it ended is said before it is gone
		if last, ok := v.Ended[m.UID]; ok && v.Tries[key].Refused != last.Sent() {
			if a, send := v.statusOf(key, last, m); send {
				return a, v.Complete
			}
		}
		return Action{DeleteMirror, key, m.UID}, v.Complete
	}
	if refused, ok := v.Refused[m.UID]; ok {
		return v.statusOf(key, refused, m)
	}
	return Action{}, false
}

// stepTo is the next request for the mirror of a pod.
func (v *View) stepTo(key manifests.Key, local Local) (Action, bool) {
	m, there := v.Mirrors[key]
	switch {
	case there && m.Other: // it is somebody's, and stays
		return Action{}, false
	case local.Refused != nil:
		return Action{DeleteMirror, key, m.UID}, there
	case !there:
		return Action{Kind: CreateMirror, Key: key}, true
	case m.Leaving || m.Hash != local.Hash || m.Owner != v.Node:
		return Action{DeleteMirror, key, m.UID}, true
	}
	return v.statusOf(key, local, m)
}

// statusOf sends the status of a pod, unless it is shown, or as much of it as the server keeps.
func (v *View) statusOf(key manifests.Key, local Local, m Mirror) (Action, bool) {
	if SameStatus(local, m) {
		return Action{}, false
	}
	t := v.Tries[key]
	accepted := t.Sent != "" && t.Sent == local.Sent() && t.Got == m.Got()
	return Action{PatchStatus, key, m.UID}, !accepted
}

// Sent identifies the status that was sent.
func (l *Local) Sent() string { return l.Digest + hashOf(l.Pod.Status.Conditions) }

// Got identifies the status that the server has.
func (m *Mirror) Got() string { return string(m.UID) + m.Digest + hashOf(m.Conditions) }

// passing are conditions that only a kubelet sets, and that a pod has only for some time.
var passing = []corev1.PodConditionType{ //nolint:gochecknoglobals // a table
	corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting,
}

// SameStatus reports whether a mirror shows the status of its pod. It may have further conditions, set by others.
func SameStatus(local Local, m Mirror) bool {
	if local.Digest != m.Digest {
		return false
	}
	for _, c := range m.Conditions {
		if slices.Contains(passing, c.Type) && !hasCondition(local.Pod.Status.Conditions, c.Type) {
			return false
		}
	}
	for _, c := range local.Pod.Status.Conditions {
		at := slices.IndexFunc(m.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		if at < 0 || !sameCondition(c, m.Conditions[at]) {
			return false
		}
	}
	return true
}

func hasCondition(all []corev1.PodCondition, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(all, func(c corev1.PodCondition) bool { return c.Type == kind })
}

func sameCondition(ours, theirs corev1.PodCondition) bool {
	return ours.Status == theirs.Status && ours.Reason == theirs.Reason && ours.Message == theirs.Message && ours.ObservedGeneration == theirs.ObservedGeneration &&
		ours.LastTransitionTime.Unix() == theirs.LastTransitionTime.Unix()
}

// StatusFor is the status to send: that of the pod, with the conditions that others have set.
func StatusFor(local Local, m Mirror) corev1.PodStatus {
	s := local.Pod.Status
	s.QOSClass = "" // the server computes it, from what the mirror is allowed to show
	s.Conditions = slices.Clone(s.Conditions)
	for _, c := range m.Conditions {
		if !slices.Contains(passing, c.Type) && !hasCondition(s.Conditions, c.Type) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	return s
}
