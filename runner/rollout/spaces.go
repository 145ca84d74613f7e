package rollout

import (
	"slices"

	"monopod/manifests"
)

// A history ends at a change of space: what a source of another space wrote under the name of a pod, perhaps privileged, must not come back
// as a pod of this one.

// foreign reports whether a place is of another space than the written pod.
func foreign(within *manifests.Spaces, at, written manifests.Origin) bool {
	return at.Source != "" && within.Of(at.Source) != within.Of(written.Source)
}

func (d *decision) foreign(m *member, at manifests.Origin) bool {
	return foreign(d.spaces, at, m.Wanted.Origin)
}

// restart begins another history. The number of a revision is not used again.
func (d *decision) restart(m *member) {
	s := m.note(true)
	number := s.newest() + 1
	*s = State{Wanted: number, Active: number, Origin: m.Wanted.Origin, Wave: s.Wave}
	m.changed = true
	d.add(m)
}

// disown drops what earlier versions kept of other spaces. What runs stays until another revision does, and the newest for its number.
func (d *decision) disown(m *member) {
	if w := m.st.Revision(m.st.Wanted); w != nil && w.Hash == m.Hash && d.foreign(m, w.Origin) {
		m.note(true).Revision(m.st.Wanted).Origin = m.Wanted.Origin // it is written here as well
	}
	d.unbase(m)
	needed := []int{m.st.Active, m.st.Wanted, m.st.newest()}
	old := func(r Revision) bool { return d.foreign(m, r.Origin) && !slices.Contains(needed, r.Number) }
	if slices.ContainsFunc(m.st.Revisions, old) {
		s := m.note(true)
		s.Revisions = slices.DeleteFunc(s.Revisions, old)
	}
}

// unbase has a pod leave its wave if that could return to a revision of another space.
func (d *decision) unbase(m *member) {
	if b := m.st.Revision(m.st.Base); b != nil && d.foreign(m, b.Origin) {
		s := m.note(true)
		s.Base, s.Trial = 0, nil
	}
}
