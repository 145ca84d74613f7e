// Package admit decides which desired pods may start: host ports, uids, node selectors, resources, priority and preemption.
//
// It is pure. It must not stop or start anything: the pool carries out the decision.
package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// Reasons for holding a pod. Those for a lack of resources are OutOfcpu, OutOfmemory and so on, as in the kubelet.
const (
	// ReasonOutOfPods is spelled as in the kubelet's admission.
	ReasonOutOfPods = "OutOfpods"
	// ReasonStarting means that the pods that hold host ports or resources are not known yet, shortly after the start of the agent.
	ReasonStarting = "Starting"
)

// starting holds a pod until more is known.
func starting(format string, args ...any) *runner.Held {
	return &runner.Held{Reason: ReasonStarting, Message: fmt.Sprintf(format, args...), Cause: cause.Cause{Kind: cause.InProgress}}
}

// Holding describes a pod that may occupy host ports, a place and resources.
type Holding struct {
	// Seen reports that its state has been observed in this run.
	Seen bool
	// Pod is the manifest of its sandbox, nil if it has none.
	Pod *manifests.Pod
	// Place is the manifest that the place is reserved for while the pod is being recreated and has no sandbox; it keeps what it was admitted
	// with.
	Place *manifests.Pod
	// UID is the uid of its sandbox.
	UID types.UID
	// Priority is the priority of the pod.
	Priority manifests.Priority
	// Idle reports that no container runs, or will run without being admitted: the pod occupies ports only.
	Idle bool
	// Leaving reports that it is being stopped: what it occupies will be free.
	Leaving bool
}

// active reports whether the pod occupies a place and resources.
func (h Holding) active() bool { return h.Pod != nil && !h.Idle || h.Pod == nil && h.Place != nil }

// has returns the manifest that determines what the pod occupies; nil if it occupies nothing.
func (h Holding) has() *manifests.Pod {
	if h.Pod != nil {
		return h.Pod
	}
	return h.Place
}

// Input is the input of Decide.
type Input struct {
	// Desired are the pods to decide on, by precedence.
	Desired []*manifests.Pod
	// Known contains all desired pods, those being removed, and those that are kept.
	Known map[manifests.Key]Holding
	// Listed reports that Known contains every pod of the runtime.
	Listed bool
	// Blind reports that the usage of some pods is unknown.
	Blind bool
	// AnyClass reports that the PriorityClasses of the machine are not known: no pod waits for one.
	AnyClass bool
	// MaxPods is the maximum number of pods; 0 means no limit.
	MaxPods int
	// Room is the limit of the sum of requests of all pods; nil means no limit.
	Room Requests
	// Node is the name of this machine, Labels are its labels. Without labels, all pods for its Platform match.
	Node   string
	Labels map[string]string
	// LabelsLost reports that the machine may have more labels than Labels: pods that select by others wait.
	LabelsLost bool
	// Spaces are the boundaries between sources; nil means that there are none.
	Spaces *manifests.Spaces
	// Platform is the platform of the machine. Labels may contain a different one set by the operator.
	Platform manifests.Platform
}

// Decision is the result of Decide.
type Decision struct {
	// Held are the pods that must wait.
	Held map[manifests.Key]runner.Held
	// Preempted are the pods that have to make room, with the pod that needs it.
	Preempted map[manifests.Key]manifests.Key
}

// Decide returns the desired pods that must wait for a host port in use by another pod, for a place or for resources, and the pods to be
// stopped for one of higher priority. Running pods come first, because neither an edit of one pod nor a restart of the agent may stop
// another; then come those of the local space, then those of a higher priority, then the order of Desired counts. The kubelet decides once for
// each pod; monopod decides again whenever something changes.
func Decide(a Input) Decision {
	d := newAdmitter(a)
	for _, pod := range ordered(a.Desired, a.Spaces) {
		if h := d.admit(pod); h != nil {
			d.Held[pod.Key()] = *h
		}
	}
	return d.Decision
}

// ordered sorts pods: those of the local space first, since other sources choose the priorities of their pods themselves; then highest priority
// first, then oldest first, then in the original order.
func ordered(pods []*manifests.Pod, within *manifests.Spaces) []*manifests.Pod {
	sorted := slices.Clone(pods)
	others := func(p *manifests.Pod) int {
		if within.Of(p.Origin.Source) == manifests.LocalSpace {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b *manifests.Pod) int {
		if c := others(a) - others(b); c != 0 {
			return c
		}
		if c := cmp.Compare(manifests.PriorityOf(b).Value, manifests.PriorityOf(a).Value); c != 0 {
			return c
		}
		x, y := a.Object.CreationTimestamp, b.Object.CreationTimestamp
		if x.IsZero() || y.IsZero() {
			return 0
		}
		return x.Compare(y.Time)
	})
	return sorted
}

// admitter decides on one pod after the other.
type admitter struct {
	Input
	Decision
	ports *portDirectory
	// uids are requested by admitted pods.
	uids map[types.UID]manifests.Key
	// room is Room with MaxPods; resources that are missing in it are unlimited. used is the usage of running and admitted pods; leaving is
	// the part of it that will be free.
	room, used, leaving Requests
	// requests are those of the active pods.
	requests map[manifests.Key]Requests
}

func newAdmitter(a Input) *admitter {
	d := &admitter{
		Input: a, Decision: Decision{Held: map[manifests.Key]runner.Held{}, Preempted: map[manifests.Key]manifests.Key{}}, ports: newPortDirectory(a),
		uids: map[types.UID]manifests.Key{},
		room: Requests{}, used: Requests{}, leaving: Requests{}, requests: map[manifests.Key]Requests{},
	}
	maps.Copy(d.room, a.Room)
	if a.MaxPods > 0 {
		d.room[corev1.ResourcePods] = int64(a.MaxPods)
	}
	for key, h := range a.Known {
		if !h.active() {
			continue
		}
		d.requests[key] = d.limited(h.has())
		d.used.Add(d.requests[key], nil)
		if h.Leaving {
			d.leaving.Add(d.requests[key], nil)
		}
	}
	return d
}

// limited returns the requests of a pod for limited resources.
func (d *admitter) limited(pod *manifests.Pod) Requests {
	out := Requests{}
	if d.Room != nil {
		maps.Copy(out, PodRequests(pod))
	}
	if d.MaxPods > 0 {
		out[corev1.ResourcePods] = 1
	}
	return out
}

// admit admits a pod, or returns what it waits for.
func (d *admitter) admit(pod *manifests.Pod) *runner.Held {
	key := pod.Key()
	if h := d.twin(pod); h != nil {
		return h
	}
	if h := d.ports.conflict(pod); h != nil {
		if h.Reason == ReasonStarting {
			enter(d.ports.unseen, pod) // it may get its ports later: pods after it must not take them
		}
		return h
	}
	known := d.Known[key]
	if h := d.unclassed(pod, known); h != nil {
		if h.Reason == ReasonStarting { // it may have its ports and resources already
			enter(d.ports.unseen, pod)
			d.used.Add(d.limited(pod), d.requests[key])
		}
		return h
	}
	if !known.active() || !selectsAlike(&known.has().Object.Spec, &pod.Object.Spec) {
		if h := (Node{d.Node, d.Labels, d.LabelsLost, d.Platform}).mismatch(&pod.Object.Spec); h != nil {
			return h
		}
	}
	want, has := d.limited(pod), d.requests[key]
	missing := lacks(want, has, d.used, d.room)
	if len(missing) == 0 {
		d.used.Add(want, has)
		d.ports.reserve(pod)
		if d.Blind && d.Room != nil && !known.active() && asks(want) {
			return starting("the usage of other pods is not known yet")
		}
		return nil
	}
	if !known.Seen { // it may own all of this already: do not refuse it, and do not preempt pods for it
		d.used.Add(want, has)
		return starting("whether it is already running is not known yet")
	}
	held := d.refused(missing)
	switch {
	case d.Blind:
	case d.makeRoom(pod, missing, &held):
		d.used.Add(want, has) // resources that become free are reserved for this pod
		d.ports.reserve(pod)
	default:
		held.Final = true
	}
	return &held
}

// asks reports whether anything besides a place is requested.
func asks(want Requests) bool {
	_, place := want[corev1.ResourcePods]
	return len(want) > 1 || len(want) == 1 && !place
}

// refused returns why a pod that lacks resources waits.
func (d *admitter) refused(missing []lack) runner.Held {
	texts := make([]string, len(missing))
	for i, l := range missing {
		texts[i] = l.String()
		if l.name == corev1.ResourcePods {
			texts[i] = fmt.Sprintf("maxPods (%d) is reached", d.MaxPods)
		}
	}
	h := runner.Held{Reason: "OutOf" + string(missing[0].name), Message: strings.Join(texts, "; "), Cause: cause.Cause{Kind: cause.OutOfResource, Resource: string(missing[0].name)}}
	if missing[0].name == corev1.ResourcePods {
		h.Cause.Kind = cause.TooManyPods
	}
	if i := slices.IndexFunc(missing, lack.always); i >= 0 {
		h.Cause = cause.Cause{Kind: cause.OutOfResource, Fault: cause.TooLarge, Resource: string(missing[i].name)}
	}
	return h
}

// makeRoom reports whether the pod will have the missing resources once the pods that are being stopped are gone. If needed, it preempts
// further pods.
func (d *admitter) makeRoom(pod *manifests.Pod, missing []lack, held *runner.Held) bool {
	needs := Requests{}
	for _, l := range missing {
		if n := l.missing() - d.leaving[l.name]; n > 0 {
			needs[l.name] = n
		}
	}
	if len(needs) == 0 {
		held.Message += "; it fits once the pods being stopped are gone"
		return true
	}
	chosen := victims(needs, d.candidates(pod))
	if len(chosen) == 0 {
		return false
	}
	names := make([]string, len(chosen))
	for i, v := range chosen {
		d.Preempted[v.key] = pod.Key()
		d.leaving.Add(v.requests, nil)
		names[i] = v.key.String()
	}
	slices.Sort(names)
	held.Message += "; preempted: " + strings.Join(names, ", ")
	return true
}

// candidates returns the pods that a pod may preempt: those of its space; for a pod of the local space those of others, too.
func (d *admitter) candidates(pod *manifests.Pod) []candidate {
	by := manifests.PriorityOf(pod)
	var all []candidate
	for key, h := range d.Known {
		if _, chosen := d.Preempted[key]; chosen || h.Pod == nil || !h.active() || h.Leaving || key == pod.Key() || manifests.Protected(h.Pod.Object) || !preemptable(by, h.Priority) {
			continue
		}
		if !d.Spaces.Takes(pod.Origin.Source, h.Pod.Origin.Source) {
			continue
		}
		all = append(all, candidate{key, manifests.QOSClass(h.Pod.Object), d.requests[key]})
	}
	slices.SortFunc(all, func(a, b candidate) int { return a.key.Compare(b.key) })
	return all
}
