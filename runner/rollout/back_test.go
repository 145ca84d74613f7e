package rollout

import (
	"strings"
	"testing"
	"time"

	"monopod/internal/boottime"
)

func TestGoBack(t *testing.T) {
	now := boottime.Moment{Boot: "b", Since: time.Hour, Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	state := func(wanted, active int, outcomes ...Outcome) *State {
		s := &State{Wanted: wanted, Active: active, Trial: &Trial{}, Base: 1}
		for i, o := range outcomes {
			s.Revisions = append(s.Revisions, Revision{Number: i + 1, Outcome: o})
		}
		return s
	}
	back := func(s *State, r *Rollback) *State { s.Rollback = r; return s }
	for _, tt := range []struct {
		name       string
		state      *State
		to, active int
		from       int // of the rollback; 0: no rollback
		err        string
	}{
		{"to the last that was Ready", state(4, 4, Ready, Ready, Failed, Progressing), 0, 2, 4, ""},
		{"to a number", state(4, 4, Ready, Ready, Failed, Progressing), 3, 3, 4, ""},
		{"further back", back(state(3, 2, Ready, Ready, Ready), &Rollback{Kind: Manual, From: 3}), 0, 1, 2, ""},
		{"none was", state(2, 2, Superseded, Progressing), 0, 0, 0, "no revision before 2 was Ready; choose one of the kept revisions: 1, 2"},
		{"none such", state(2, 2, Ready, Ready), 7, 0, 0, "revision 7 is not kept; kept revisions: 1, 2"},
		{"it is", state(2, 2, Ready, Ready), 2, 0, 0, "revision 2 is already active"},
		{"it stays, by hand", back(state(2, 1, Ready, Failed), &Rollback{Kind: Automatic, From: 2}), 1, 1, 2, ""},
		{"forward again", back(state(2, 1, Ready, Failed), &Rollback{Kind: Automatic, From: 2}), 2, 2, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := GoBack(now, tt.state, tt.to)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Active != tt.active || got.Trial != nil || got.Base != 0 || (got.Rollback == nil) != (tt.from == 0) {
				t.Fatalf("%+v", got)
			}
			if tt.from != 0 && (got.Rollback.From != tt.from || got.Rollback.Kind != Manual || got.Rollback.At != now.Wall) {
				t.Errorf("%+v", got.Rollback)
			}
			if r := got.Revision(got.Wanted); tt.from == 0 && r.Outcome != Progressing {
				t.Errorf("what is tried again is %s", r.Outcome)
			}
			if tt.state.Trial == nil || tt.state.Base != 1 {
				t.Error("the old state was changed")
			}
		})
	}
}
