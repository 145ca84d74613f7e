package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner/rollout/packed"
)

// Options are the settings that annotations of pods override.
type Options struct {
	// AutoRollback puts each changed pod on trial.
	AutoRollback bool
	// ReadyDeadline is the time within which a pod on trial must be Ready. Soak is how long it must then stay Ready.
	ReadyDeadline, Soak time.Duration
	// Spaces are the boundaries between sources, and so between update groups; nil means that there are none.
	Spaces *manifests.Spaces
}

// Member is one pod of a unit: an update group, or a single pod.
type Member struct {
	Wanted *manifests.Pod
	// Hash is Hash of Wanted.
	Hash string
	// State is the state from the previous Decide; nil if there is none.
	State *State
	// Seen is nil while the pod cannot be observed; its state is then unknown.
	Seen *Seen
}

// Verdict is the decision about a member.
type Verdict struct {
	// State is the new state. It is the same pointer as before if nothing has changed.
	State *State
	// First reports that State must be stored before it is acted on. Otherwise its loss does no harm.
	First bool
	// Changed reports that the written manifest has changed. Such a state is stored after those of the other members, which follow from it:
	// after a crash in between, the change is noticed again.
	Changed bool
	// Waits is the pod of the group that must be Ready before this one.
	Waits manifests.Key
	// Transitions are the changes of revisions, in order.
	Transitions []Transition
}

// TransitionKind is the kind of a change of a revision.
type TransitionKind string

// Kinds of transitions, which are reasons of events.
const (
	RevisionAccepted TransitionKind = "RevisionAccepted"
	RevisionReady    TransitionKind = "RevisionReady"
	RevisionFailed   TransitionKind = "RevisionFailed"
	RolledBack       TransitionKind = "RolledBack"
)

// Transition is a change of a revision.
type Transition struct {
	Key      manifests.Key
	Kind     TransitionKind
	Revision int
	Message  string
}

// Hash identifies a revision: it covers the whole pod except the fields that an API server manages.
func Hash(pod *corev1.Pod) string {
	p := *pod
	p.ResourceVersion, p.Generation, p.ManagedFields = "", 0, nil
	p.Status = corev1.PodStatus{}
	return podhash.Pod(&p)
}

// Decide returns which revisions the pods of one unit run now. The verdicts are in the order of the members; the pods to run follow from
// State.Active. next is the time since boot at which to decide again without any change; 0 means never. busy reports that observations of
// the members matter.
func Decide(now boottime.Moment, members []Member, o Options) (verdicts []Verdict, next time.Duration, busy bool) {
	d := newDecision(now, members, o)
	d.closeWaves()
	for _, m := range d.members {
		d.accept(m)
	}
	d.lift()
	for _, m := range d.members {
		d.judge(m)
	}
	d.revert()
	d.release()
	d.closeWaves()
	verdicts = make([]Verdict, len(members))
	for _, m := range d.members {
		m.trim()
		verdicts[m.index] = m.verdict()
		busy = busy || m.busy()
	}
	return verdicts, d.next, busy
}

// decision is a Decide in progress. Its members are in the order of the group.
type decision struct {
	now     boottime.Moment
	members []*member
	next    time.Duration
	spaces  *manifests.Spaces
}

type member struct {
	Member
	index int
	set   settings
	// st is State, or a copy of it after the first change.
	st       *State
	copied   bool
	first    bool
	changed  bool // the written manifest has changed
	failed   bool // the trial has failed in this decision
	waits    manifests.Key
	happened []Transition
}

// settings returns the options with the annotations of a pod applied.
type settings struct {
	auto           bool
	deadline, soak time.Duration
	group          string
	order          int
}

func settingsOf(pod *manifests.Pod, o Options) settings {
	r, err := manifests.PodRollout(pod.Object)
	if err != nil { // accepted by an earlier version with fewer checks
		r = manifests.Rollout{}
	}
	s := settings{auto: o.AutoRollback, deadline: o.ReadyDeadline, soak: o.Soak, group: r.Group, order: r.Order}
	if r.AutoRollback != nil {
		s.auto = *r.AutoRollback
	}
	if r.ReadyDeadline != nil {
		s.deadline = *r.ReadyDeadline
	}
	if r.Soak != nil {
		s.soak = *r.Soak
	}
	return s
}

func newDecision(now boottime.Moment, members []Member, o Options) *decision {
	d := &decision{now: now, spaces: o.Spaces}
	for i, m := range members {
		d.members = append(d.members, &member{Member: m, index: i, set: settingsOf(m.Wanted, o), st: m.State})
	}
	slices.SortStableFunc(d.members, func(a, b *member) int {
		x, y := a.Wanted.Object, b.Wanted.Object
		return cmp.Or(cmp.Compare(a.set.order, b.set.order), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Namespace, y.Namespace))
	})
	return d
}

// at requests another decision at a time since boot.
func (d *decision) at(t time.Duration) {
	if d.next == 0 || t < d.next {
		d.next = t
	}
}

// note returns the state for changes. first reports that the change must be stored before it is acted on.
func (m *member) note(first bool) *State {
	if !m.copied {
		m.copied = true
		if m.st == nil {
			m.st = &State{}
		}
		m.st = m.st.clone()
	}
	m.first = m.first || first
	return m.st
}

func (m *member) tell(kind TransitionKind, revision int, format string, args ...any) {
	m.happened = append(m.happened, Transition{Key: m.Wanted.Key(), Kind: kind, Revision: revision, Message: fmt.Sprintf(format, args...)})
}

func (m *member) verdict() Verdict {
	return Verdict{State: m.st, First: m.first, Changed: m.changed, Waits: m.waits, Transitions: m.happened}
}

// queued reports whether the written revision waits to become active.
func (m *member) queued() bool { return m.st.Active != m.st.Wanted && m.st.Rollback == nil }

// fine reports whether the active revision has been Ready for the required time.
func (m *member) fine() bool {
	r := m.st.Revision(m.st.Active)
	return m.st.Trial == nil && !m.queued() && r != nil && r.Outcome == Ready
}

func (m *member) busy() bool { return m.st.Base != 0 || !m.fine() }

// readyNow reports whether the active revision is observed as Ready.
func (m *member) readyNow() bool {
	r := m.st.Revision(m.st.Active)
	return m.Seen != nil && r != nil && m.Seen.Ready && m.Seen.Hash == r.Hash
}

// accept adds a manifest that differs from the one written before.
func (d *decision) accept(m *member) {
	if m.st == nil {
		s := m.note(false)
		s.Wanted, s.Active, s.Origin = 1, 1, m.Wanted.Origin
		d.add(m)
		return
	}
	if d.foreign(m, m.st.Origin) {
		d.restart(m)
		return
	}
	d.disown(m)
	if o := m.Wanted.Origin; o.Source != m.st.Origin.Source || o.File != m.st.Origin.File {
		m.note(false).Origin = o
	}
	if w := m.st.Revision(m.st.Wanted); w != nil && w.Hash == m.Hash {
		return
	}
	s := m.note(true)
	s.supersede()
	s.Rollback = nil
	if a := s.Revision(s.Active); a != nil && a.Hash == m.Hash {
		s.Wanted = s.Active // the written manifest is running already
		if a.Outcome == Superseded {
			a.Outcome = Progressing
			d.probation(m)
		}
		return
	}
	s.Trial, m.changed = nil, true
	d.open(m)
	s.Wanted = s.newest() + 1
	d.add(m)
}

// add appends the wanted revision.
func (d *decision) add(m *member) {
	s := m.st
	s.Revisions = append(s.Revisions, Revision{
		Number: s.Wanted, Hash: m.Hash, Manifest: packed.Of(m.Wanted.Object), Origin: m.Wanted.Origin, Accepted: d.now.Wall, Outcome: Progressing,
	})
	m.tell(RevisionAccepted, s.Wanted, "revision %d accepted from %s", s.Wanted, m.Wanted.Origin.File)
}

func (s *State) newest() int {
	if len(s.Revisions) == 0 {
		return 0
	}
	return s.Revisions[len(s.Revisions)-1].Number
}

// supersede sets the outcome of the previously written revision if it never became Ready.
func (s *State) supersede() {
	if r := s.Revision(s.Wanted); r != nil && r.Outcome == Progressing {
		r.Outcome = Superseded
	}
}

// judge follows the active revision, on trial or not, until it has been Ready.
func (d *decision) judge(m *member) {
	m.notice()
	if m.st.Trial != nil {
		if m.set.auto {
			d.try(m)
			return
		}
		m.note(false).Trial = nil
	}
	if r := m.st.Revision(m.st.Active); r != nil && r.Outcome != Ready && m.readyNow() {
		d.pass(m)
	}
}

// notice records the images of the active revision until it has been Ready: a rollback to a revision that never is Ready is possible as
// well.
func (m *member) notice() {
	r := m.st.Revision(m.st.Active)
	if m.Seen == nil || r == nil || r.Outcome == Ready || r.Hash != m.Seen.Hash {
		return
	}
	if images := over(m.Seen.Images, r.Images); len(images) > len(r.Images) {
		s := m.note(false)
		s.Revision(s.Active).Images = images
	}
}

// over returns the union of both maps; top has precedence. It changes neither.
func over(base, top map[string]string) map[string]string {
	if len(top) == 0 {
		return base
	}
	for key := range base {
		if _, both := top[key]; !both {
			all := maps.Clone(base)
			maps.Copy(all, top)
			return all
		}
	}
	return top
}

// try advances the trial of the active revision.
func (d *decision) try(m *member) {
	if m.st.Trial.Boot != d.now.Boot {
		m.note(false).Trial = &Trial{Boot: d.now.Boot, Began: d.now.Since}
	}
	t := m.st.Trial
	switch ready := m.readyNow(); {
	case m.Seen == nil:
		d.unseen(m)
	case t.ReadyAt == 0 && ready && m.set.soak == 0:
		d.pass(m)
	case t.ReadyAt == 0 && ready:
		t = m.note(false).Trial
		t.ReadyAt, t.Restarts = d.now.Since, m.Seen.Restarts
		d.at(t.ReadyAt + m.set.soak)
	case t.ReadyAt == 0 && d.now.Since >= t.Began+m.set.deadline:
		d.fail(m, fmt.Sprintf("it was not Ready within %s", m.set.deadline))
	case t.ReadyAt == 0:
		d.at(t.Began + m.set.deadline)
	case !ready:
		d.fail(m, fmt.Sprintf("it did not stay Ready for %s", m.set.soak))
	case m.Seen.Restarts > t.Restarts:
		d.fail(m, fmt.Sprintf("a container was restarted within %s after it was Ready", m.set.soak))
	case d.now.Since >= t.ReadyAt+m.set.soak:
		d.pass(m)
	default:
		d.at(t.ReadyAt + m.set.soak)
	}
}

// unseen restarts a deadline that expires while the pod cannot be observed: no revision is rolled back untried. One that has been Ready is
// judged by the next observation.
func (d *decision) unseen(m *member) {
	t := m.st.Trial
	if t.ReadyAt != 0 {
		return
	}
	if d.now.Since >= t.Began+m.set.deadline {
		t = m.note(false).Trial
		t.Began = d.now.Since
	}
	d.at(t.Began + m.set.deadline)
}

func (d *decision) pass(m *member) {
	s := m.note(m.st.Trial != nil)
	s.Trial = nil
	if base := s.Revision(s.Base); base != nil && base.Outcome != Ready {
		s.Base = s.Active // better than a revision that never became Ready
	}
	r := s.Revision(s.Active)
	r.Outcome, r.Reason, r.Settled, r.Images = Ready, "", d.now.Wall, over(r.Images, m.Seen.Images)
	m.tell(RevisionReady, s.Active, "revision %d is Ready", s.Active)
}

func (d *decision) fail(m *member, reason string) {
	if m.Seen.Why != "" {
		reason += ": " + m.Seen.Why
	}
	s := m.note(true)
	s.Trial, m.failed = nil, true
	r := s.Revision(s.Active)
	r.Outcome, r.Reason, r.Settled = Failed, reason, d.now.Wall
	m.tell(RevisionFailed, s.Active, "revision %d has failed: %s", s.Active, reason)
}

// trim drops the oldest unneeded revisions.
func (m *member) trim() {
	for len(m.st.Revisions) > Kept {
		s := m.st
		needed := []int{s.Active, s.Wanted, s.Base, s.newest(), s.lastReady(s.newest() + 1)}
		i := slices.IndexFunc(s.Revisions, func(r Revision) bool { return !slices.Contains(needed, r.Number) })
		s = m.note(false)
		s.Revisions = slices.Delete(s.Revisions, i, i+1)
	}
}
