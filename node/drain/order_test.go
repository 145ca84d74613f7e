package drain_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/node/drain"
)

// TestDrainStopsLowPrioritiesFirst: whatever stops in between, a drain never begins a level before all pods below it have stopped, and ends with all
// of them.
func TestDrainStopsLowPrioritiesFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drain.State{Cordoned: true, Drain: &drain.Drain{Ignore: []string{"spared-*"}}}
		if rapid.Bool().Draw(t, "limited") {
			s.Drain.PriorityBelow = new(rapid.Int32Range(-2, 4).Draw(t, "below"))
		}
		var pods []drain.Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
			name := rapid.SampledFrom([]string{"pod", "spared"}).Draw(t, "name")
			pods = append(pods, drain.Pod{Key: manifests.Key{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i)}, Priority: rapid.Int32Range(-2, 4).Draw(t, "priority")})
		}
		level := s.NextLevel(pods, nil)
		for round := 0; level != nil; round++ {
			if round > 100 {
				t.Fatal("the drain does not end")
			}
			due := 0
			for i := range pods {
				p := &pods[i]
				switch {
				case p.Stopped || !s.Stops(p.Key, p.Priority):
				case p.Priority < *level:
					t.Fatalf("%v still runs at level %d", p, *level)
				case p.Priority == *level:
					if due++; rapid.Bool().Draw(t, "stops") {
						p.Stopped = true
					}
				}
			}
			if due == 0 {
				t.Fatalf("no pod has level %d", *level)
			}
			level = s.Advance(pods, level)
		}
		for _, p := range pods {
			if s.Stops(p.Key, p.Priority) && !p.Stopped {
				t.Fatalf("%v still runs in the end", p)
			}
		}
	})
}

func TestAnUndrainHasNoLevels(t *testing.T) {
	pods := []drain.Pod{{Key: manifests.Key{Name: "a"}}}
	if got := (&drain.State{}).Advance(pods, new(int32(0))); got != nil {
		t.Errorf("level %d", *got)
	}
}
