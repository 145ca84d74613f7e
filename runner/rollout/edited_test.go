package rollout

import (
	"fmt"
	"slices"
	"testing"

	"monopod/internal/model"
	"monopod/manifests"
)

// TestIncrementalUpdateEqualsFullUpdate compares a controller that processes all pods each time with one that processes only edited pods.
func TestIncrementalUpdateEqualsFullUpdate(t *testing.T) {
	pods := fleet(12)
	for i := range 3 { // a group of three
		pods[i].Object.Annotations = map[string]string{manifests.AnnotationUpdateGroup: "g"}
	}
	var quick, slow []*manifests.Pod
	a := controllerOf(pods, func(run model.Desired) { quick = run.Pods })
	b := controllerOf(pods, func(run model.Desired) { slow = run.Pods })
	b.cfg.Clock = a.cfg.Clock
	see := func(c *Controller, run []*manifests.Pod) {
		for _, p := range run {
			c.Observe(p.Key(), &Observed{Recorded: p, Seen: Seen{Ready: true}})
		}
		c.turn()
	}
	a.turn()
	b.turn()
	for step := range 40 {
		next := slices.Clone(pods)
		for _, i := range []int{step % len(pods), (step * 5) % len(pods)} {
			p := *next[i]
			p.Object = p.Object.DeepCopy()
			p.Object.Labels["step"] = fmt.Sprint(step)
			if step%9 == 8 { // it moves to another group as well
				p.Object.Annotations = map[string]string{manifests.AnnotationUpdateGroup: "h"}
			}
			next[i] = &p
		}
		if step == 20 {
			next = append(next[:4:4], next[5:]...) // one is removed
		}
		pods = next
		for _, c := range []*Controller{a, b} {
			if c == b {
				c.listed = nil
			}
			w := c.wanted
			w.Pods, w.Reported = pods, map[string]bool{"": true, "file": true}
			c.Update(w.Desired, w.hand)
			c.turn()
		}
		if step%3 == 0 {
			see(a, quick)
			see(b, slow)
		}
		if step == 30 {
			for _, c := range []*Controller{a, b} {
				if _, err := c.Rollback(pods[9].Key(), 1, anyRevision); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(quick) != len(slow) || len(a.states) != len(b.states) {
			t.Fatalf("step %d: %d and %d run, %d and %d states", step, len(quick), len(slow), len(a.states), len(b.states))
		}
		for i, p := range quick {
			x, y := a.states[p.Key()], b.states[p.Key()]
			if Hash(p.Object) != Hash(slow[i].Object) || x.Active != y.Active || x.Wanted != y.Wanted || len(x.Revisions) != len(y.Revisions) {
				t.Fatalf("step %d: pod %s differs: %+v, %+v", step, p.Key(), x, y)
			}
		}
	}
}

func TestEditDecidesOnlyItsUnit(t *testing.T) {
	pods := fleet(50)
	c := controllerOf(pods, func(model.Desired) {})
	c.turn()
	for _, p := range pods {
		c.Observe(p.Key(), &Observed{Recorded: p, Seen: Seen{Ready: true}})
	}
	c.turn()
	if len(c.awake) > 0 {
		t.Fatalf("%d units are still awake", len(c.awake))
	}
	p := *pods[7]
	p.Object = p.Object.DeepCopy()
	p.Object.Labels["edit"] = "1"
	edited := slices.Clone(pods)
	edited[7] = &p
	c.Update(model.Desired{Pods: edited}, nil)
	next, noted := c.empty()
	c.wanted = *next
	if !c.edited() {
		t.Fatal("all pods are gone through")
	}
	if due := c.due(c.cfg.Clock(), true, noted); len(due) != 1 || !slices.Equal(due[0].keys, []manifests.Key{p.Key()}) {
		t.Errorf("decided on are %v", due)
	}
	for what, pods := range map[string][]*manifests.Pod{
		"one goes": edited[1:], "one comes": append(slices.Clone(edited), fleet(51)[50]), "another order": append(edited[1:50:50], edited[0]),
	} {
		if c.wanted.Pods = pods; c.edited() {
			t.Errorf("%s: it is taken for an edit", what)
		}
	}
}
