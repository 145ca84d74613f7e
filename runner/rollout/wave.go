package rollout

import "fmt"

// A wave is a set of changes of one unit that succeed or fail together:
//
//	        change           its turn              Ready, soaked, and all others of the wave too
//	(rest) -------> queued ---------> active/trial ---------------------------------------------> (rest)
//	                                     | one fails
//	                                     v
//	                 all of the wave: back to Base, Rollback  -- a source changes --> queued, in a new wave
//
// The wave of a pod is stored with each pod, because pods are stored one by one: if one pod of a wave is found reverted after a crash, the
// others are reverted as well.

// open adds the member to the wave in progress, or to a new one.
func (d *decision) open(m *member) {
	if m.st.Base != 0 {
		return
	}
	wave, last := 0, 0
	for _, o := range d.members {
		if o.st == nil {
			continue
		}
		last = max(last, o.st.Wave)
		if o.st.Base != 0 {
			wave = o.st.Wave
		}
		if r := o.st.Rollback; r != nil {
			last = max(last, r.Wave)
		}
	}
	if wave == 0 {
		wave = max(last+1, int(d.now.Wall.UnixMilli())) // unique over all groups: a pod may move between groups
	}
	s := m.note(true)
	s.Wave, s.Base = wave, s.Active
	if r := s.Revision(s.Active); r == nil || r.Outcome != Ready {
		if ready := s.lastReady(s.Active); ready != 0 {
			s.Base = ready
		}
	}
	d.unbase(m)
}

// lift retries changes that were reverted as a group, after an edit of any of its pods.
func (d *decision) lift() {
	changed := false
	for _, m := range d.members {
		changed = changed || m.changed
	}
	if !changed {
		return
	}
	for _, m := range d.members {
		if r := m.st.Rollback; r == nil || r.Kind != Automatic || m.set.group == "" {
			continue
		}
		s := m.note(true)
		s.Rollback = nil
		if r := s.Revision(s.Wanted); r != nil {
			r.Outcome, r.Reason = Progressing, ""
		}
		d.open(m)
	}
}

// revert rolls back a wave in which a trial has failed, now or before a crash.
func (d *decision) revert() {
	for _, bad := range d.members {
		wave := 0
		switch r := bad.st.Rollback; {
		case bad.failed:
			wave = bad.st.Wave
		case r != nil && r.Kind == Automatic:
			wave = r.Wave
		}
		if wave == 0 {
			continue
		}
		for _, m := range d.members {
			if m.st.Base != 0 && m.st.Wave == wave && m.st.Rollback == nil {
				d.goBack(m, bad, wave)
				d.judge(m) // it may already run the earlier revision
			}
		}
	}
}

// goBack rolls a member back to its revision before the wave.
func (d *decision) goBack(m, bad *member, wave int) {
	s := m.note(true)
	base := s.Base
	s.Trial, s.Base = nil, 0
	if s.Wanted == base {
		s.Active = base
		return
	}
	culprit, reason := "", ""
	if m != bad {
		culprit = bad.Wanted.Object.Name
		reason = fmt.Sprintf("pod %s of its update group: ", culprit)
	}
	if r := bad.st.Revision(bad.st.Wanted); r != nil {
		reason += fmt.Sprintf("revision %d has failed: %s", r.Number, r.Reason)
	}
	if r := s.Revision(s.Wanted); r.Outcome != Failed {
		r.Outcome, r.Reason, r.Settled = Reverted, reason, d.now.Wall
	}
	s.Active = base
	s.Rollback = &Rollback{Kind: Automatic, From: s.Wanted, Reason: reason, Culprit: culprit, At: d.now.Wall, Wave: wave}
	m.tell(RolledBack, base, "rolled back to revision %d: %s", base, reason)
}

// release activates written revisions in the order of the group: each once all pods before it are Ready with the revisions that they should
// run.
func (d *decision) release() {
	var before *member // the first that is not fine
	for _, m := range d.members {
		if m.queued() {
			if before != nil {
				m.waits = before.Wanted.Key()
				continue
			}
			d.activate(m)
			d.judge(m) // after a crash it may run already
		}
		if before == nil && (m.queued() || m.st.Trial != nil || !m.readyNow()) {
			before = m
		}
	}
}

// activate makes the written revision active.
func (d *decision) activate(m *member) {
	s := m.note(true)
	s.Active = s.Wanted
	d.probation(m)
}

// probation puts the active revision on trial if there is one to return to.
func (d *decision) probation(m *member) {
	s := m.note(true)
	base := s.Revision(s.Base)
	if !m.set.auto || base == nil || base.Outcome != Ready {
		return
	}
	s.Trial = &Trial{Boot: d.now.Boot, Began: d.now.Since}
	d.at(d.now.Since + m.set.deadline)
}

// closeWaves ends the wave once all of its members are fine.
func (d *decision) closeWaves() {
	for _, m := range d.members {
		if m.st != nil && m.st.Base != 0 && !m.fine() {
			return
		}
	}
	for _, m := range d.members {
		if m.st != nil && m.st.Base != 0 {
			m.note(false).Base = 0
		}
	}
}
