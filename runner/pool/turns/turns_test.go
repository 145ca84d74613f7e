package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func granted(k *Ticket) bool {
	select {
	case <-k.Granted:
		return true
	default:
		return false
	}
}

func TestTurnsAreOrderedByPriorityThenTime(t *testing.T) {
	turns := New(1)
	first := turns.Ask(0)
	tickets := map[string]*Ticket{}
	for i, p := range []int32{5, -1, 5, 9, 0} {
		tickets[fmt.Sprintf("%d:%d", i, p)] = turns.Ask(p)
	}
	tickets["2:5"].Release() // it gave up
	var order []string
	for k := first; k != nil; {
		k.Release()
		k = nil
		for name, ticket := range tickets {
			if granted(ticket) {
				order, k = append(order, name), ticket
				delete(tickets, name)
			}
		}
	}
	if got := strings.Join(order, " "); got != "3:9 0:5 4:0 1:-1" {
		t.Errorf("order %s", got)
	}
}

func TestPodsBelowFloorWait(t *testing.T) {
	turns := New(2)
	turns.SetFloor(10, true)
	low, high := turns.Ask(9), turns.Ask(10)
	if granted(low) || !granted(high) {
		t.Errorf("granted: low %v, high %v", granted(low), granted(high))
	}
	turns.SetFloor(0, false)
	if !granted(low) {
		t.Error("the floor is gone, and nobody told the one that waits")
	}
}

// For any sequence of requests and releases: at most n hold a place, and no pod waits while there is room.
func TestTurnsNeverExceedLimitNorStayUnused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		turns := New(n)
		var all []*Ticket
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				all[i].Release()
				all = slices.Delete(all, i, i+1)
			} else {
				all = append(all, turns.Ask(rapid.Int32Range(-2, 2).Draw(t, "priority")))
			}
			has := 0
			for _, k := range all {
				if granted(k) {
					has++
				}
			}
			if has != min(n, len(all)) {
				t.Fatalf("%d of %d have a place, there are %d", has, len(all), n)
			}
		}
	})
}
