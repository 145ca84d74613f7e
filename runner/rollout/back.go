package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monopod/internal/boottime"
)

// clone copies the parts of a state that may be changed.
func (s *State) clone() *State {
	c := *s
	c.Revisions = slices.Clone(s.Revisions)
	if s.Rollback != nil {
		r := *s.Rollback
		c.Rollback = &r
	}
	if s.Trial != nil {
		t := *s.Trial
		c.Trial = &t
	}
	return &c
}

// GoBack returns the state of a pod after a manual rollback to a revision; 0 means the last revision before the active one that has been
// Ready. A rollback to the written revision ends an earlier rollback.
func GoBack(now boottime.Moment, s *State, to int) (*State, error) {
	if to == 0 {
		if to = s.lastReady(s.Active); to == 0 {
			return nil, fmt.Errorf("no revision before %d was Ready; choose one of the kept revisions: %s", s.Active, s.numbers())
		}
	}
	switch {
	case s.Revision(to) == nil:
		return nil, fmt.Errorf("revision %d is not kept; kept revisions: %s", to, s.numbers())
	case to == s.Active && (to == s.Wanted || s.Rollback != nil && s.Rollback.Kind == Manual):
		return nil, fmt.Errorf("revision %d is already active", to)
	}
	from := s.Active
	if from == to {
		from = s.Wanted
	}
	s = s.clone()
	s.Trial, s.Base, s.Active = nil, 0, to
	if to != s.Wanted {
		s.Rollback = &Rollback{Kind: Manual, From: from, At: now.Wall}
		return s, nil
	}
	s.Rollback = nil
	if r := s.Revision(to); r.Outcome != Ready {
		r.Outcome, r.Reason = Progressing, ""
	}
	return s, nil
}

func (s *State) numbers() string {
	var all []string
	for _, r := range s.Revisions {
		all = append(all, strconv.Itoa(r.Number))
	}
	return strings.Join(all, ", ")
}

// pinned returns the known images of a revision that the pod was rolled back to.
func (s *State) pinned() map[string]string {
	if s.Active == s.Wanted {
		return nil
	}
	return s.Revision(s.Active).Images
}

// lastReady returns the number of the newest revision before the given one that has been Ready; 0 if there is none.
func (s *State) lastReady(before int) int {
	for _, r := range slices.Backward(s.Revisions) {
		if r.Number < before && r.Outcome == Ready {
			return r.Number
		}
	}
	return 0
}
