package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func granted(k *ticket) bool {
	select {
	case <-k.granted:
		return true
	default:
		return false
	}
}

func TestTurnsAreOrderedByPriorityThenTime(t *testing.T) {
	turns := newTurns(1)
	first := turns.ask(0)
	tickets := map[string]*ticket{}
	for i, p := range []int32{5, -1, 5, 9, 0} {
		tickets[fmt.Sprintf("%d:%d", i, p)] = turns.ask(p)
	}
	tickets["2:5"].release() // it gave up
	var order []string
	for k := first; k != nil; {
		k.release()
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
	turns := newTurns(2)
	turns.setFloor(10, true)
	low, high := turns.ask(9), turns.ask(10)
	if granted(low) || !granted(high) {
		t.Errorf("granted: low %v, high %v", granted(low), granted(high))
	}
	turns.setFloor(0, false)
	if !granted(low) {
		t.Error("the floor is gone, and nobody told the one that waits")
	}
}

// For any sequence of requests and releases: at most n hold a place, and no pod waits while there is room.
func TestTurnsNeverExceedLimitNorStayUnused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		turns := newTurns(n)
		var all []*ticket
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				all[i].release()
				all = slices.Delete(all, i, i+1)
			} else {
				all = append(all, turns.ask(rapid.Int32Range(-2, 2).Draw(t, "priority")))
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
