package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/internal/boottime"
	"monopod/internal/model"
	"monopod/manifests"
)

// TestAnUpdateGroupHasPodsOfOneSpace: a pod of fleet that is never Ready held up the changes of local pods.
func TestAnUpdateGroupHasPodsOfOneSpace(t *testing.T) {
	pods := fleet(4)
	for i, source := range []string{"fleet", "file", "applied", "site"} {
		pods[i].Object.Annotations = map[string]string{manifests.AnnotationUpdateGroup: "g"}
		pods[i].Origin.Source = source
	}
	c := controllerOf(pods, func(model.Desired) {})
	unit := func(i int) string { return c.unitOf(pods[i]) }
	if unit(0) != unit(3) {
		t.Error("without boundaries there is one group")
	}
	c.cfg.Options.Spaces = &manifests.Spaces{Local: []string{"file", "applied"}}
	if unit(1) != unit(2) || unit(0) == unit(1) || unit(0) == unit(3) {
		t.Errorf("%q %q %q %q", unit(0), unit(1), unit(2), unit(3))
	}
}

// TestAPodOfAnotherSpaceHoldsUpNoChange: see it at work.
func TestAPodOfAnotherSpaceHoldsUpNoChange(t *testing.T) {
	pods := fleet(2)
	for i, source := range []string{"fleet", "file"} {
		pods[i].Object.Annotations = map[string]string{manifests.AnnotationUpdateGroup: "g"}
		pods[i].Origin.Source = source
	}
	var run []*manifests.Pod
	c := controllerOf(pods, func(d model.Desired) { run = d.Pods })
	c.cfg.Options.Spaces = &manifests.Spaces{Local: []string{"file"}}
	c.turn()
	c.Observe(pods[0].Key(), &Observed{Recorded: pods[0], Seen: Seen{Ready: false}})
	c.Observe(pods[1].Key(), &Observed{Recorded: pods[1], Seen: Seen{Ready: true}})
	c.turn()
	edit := *pods[1]
	edit.Object = edit.Object.DeepCopy()
	edit.Object.Labels = map[string]string{"edited": "yes"}
	c.Update(model.Desired{Pods: []*manifests.Pod{pods[0], &edit}, Order: c.wanted.Order, Reported: c.wanted.Reported}, func(d model.Desired) { run = d.Pods })
	c.turn()
	if len(run) != 2 || run[1].Object.Labels["edited"] != "yes" {
		t.Errorf("%d pods; the change waits", len(run))
	}
}

// single is a pod alone in its unit, with options that put changes on trial.
type single struct {
	state *State
	seen  *Seen
	now   time.Duration
}

func acrossSpaces() Options {
	return Options{AutoRollback: true, ReadyDeadline: time.Minute, Spaces: &manifests.Spaces{Local: []string{"file", "applied"}}}
}

// writtenBy returns the pod as a source writes it with an image.
func writtenBy(source, image string) *manifests.Pod {
	p := fleet(1)[0]
	p.Origin = manifests.Origin{Source: source, File: "/" + source + ".yaml"}
	p.Object.Spec.Containers[0].Image = image
	return p
}

// decide decides about the pod as it is written, until nothing changes. Its active revision runs if seen is set, and is Ready if ready is.
func (w *single) decide(p *manifests.Pod, ready bool) {
	for range 3 {
		if w.seen != nil {
			w.seen = &Seen{Hash: w.state.Revision(w.state.Active).Hash, Ready: ready}
		}
		w.now += time.Second
		now := boottime.Moment{Boot: "b", Since: w.now, Wall: time.Unix(int64(w.now/time.Second), 0)}
		verdicts, _, _ := Decide(now, []Member{{Wanted: p, Hash: Hash(p.Object), State: w.state, Seen: w.seen}}, acrossSpaces())
		w.state = verdicts[0].State
		if w.seen == nil {
			w.seen = &Seen{}
		}
	}
}

// String lists the revisions: number, source and outcome.
func (w *single) String() string {
	var all []string
	for _, r := range w.state.Revisions {
		all = append(all, fmt.Sprintf("%d %s %s", r.Number, r.Origin.Source, r.Outcome))
	}
	return fmt.Sprintf("%s; active %d wanted %d base %d", strings.Join(all, ", "), w.state.Active, w.state.Wanted, w.state.Base)
}

func (w *single) want(t *testing.T, want string) {
	t.Helper()
	if got := w.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestAHistoryEndsAtAChangeOfSpace: a pod of fleet went back to the privileged revision of a local pod that had its name.
func TestAHistoryEndsAtAChangeOfSpace(t *testing.T) {
	w := &single{}
	w.decide(writtenBy("file", "a"), true)
	w.decide(writtenBy("applied", "b"), true) // of the same space
	w.want(t, "1 file Ready, 2 applied Ready; active 2 wanted 2 base 0")
	w.decide(writtenBy("fleet", "c"), false)
	w.want(t, "3 fleet Progressing; active 3 wanted 3 base 0")
	if w.state.Trial != nil {
		t.Error("it is on trial, although there is nothing to go back to")
	}
	w.now += time.Hour
	w.decide(writtenBy("fleet", "c"), false)
	w.want(t, "3 fleet Progressing; active 3 wanted 3 base 0")
	if _, err := GoBack(boottime.Moment{}, w.state, 0); err == nil {
		t.Error("it went back")
	}
	w.decide(writtenBy("fleet", "c"), true)
	w.decide(writtenBy("file", "c"), true) // the same content is another pod, too
	w.want(t, "4 file Ready; active 4 wanted 4 base 0")
}

// TestARolledBackPodRunsWhatAnotherSpaceWrites: the revision that it was rolled back to ends as well.
func TestARolledBackPodRunsWhatAnotherSpaceWrites(t *testing.T) {
	w := &single{}
	w.decide(writtenBy("file", "a"), true)
	w.decide(writtenBy("file", "b"), true)
	back, err := GoBack(boottime.Moment{}, w.state, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.state = back
	w.decide(writtenBy("fleet", "b"), true)
	w.want(t, "3 fleet Ready; active 3 wanted 3 base 0")
}

// TestStatesOfEarlierVersionsLoseOtherSpaces: what runs stays, even in a rollback, until the manifest changes.
func TestStatesOfEarlierVersionsLoseOtherSpaces(t *testing.T) {
	mixed := func() *single {
		w := &single{}
		for _, p := range []*manifests.Pod{writtenBy("file", "a"), writtenBy("file", "b"), writtenBy("file", "c")} {
			w.decide(p, true)
		}
		s := w.state.clone()
		s.Origin = writtenBy("fleet", "").Origin
		s.Revisions[2].Origin = s.Origin
		w.state = s
		return w
	}
	t.Run("its history", func(t *testing.T) {
		w := mixed()
		w.decide(writtenBy("fleet", "c"), true)
		w.want(t, "3 fleet Ready; active 3 wanted 3 base 0")
	})
	t.Run("an open wave", func(t *testing.T) {
		w := mixed()
		w.state.Base, w.state.Wave, w.state.Trial = 2, 7, &Trial{Boot: "b", Began: w.now}
		w.state.Revisions[2].Outcome = Progressing
		w.decide(writtenBy("fleet", "c"), false)
		w.now += time.Hour
		w.decide(writtenBy("fleet", "c"), false)
		w.want(t, "3 fleet Progressing; active 3 wanted 3 base 0")
	})
	t.Run("a rollback", func(t *testing.T) {
		w := mixed()
		back, err := GoBack(boottime.Moment{}, w.state, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.state = back
		w.decide(writtenBy("fleet", "c"), true)
		w.want(t, "1 file Ready, 3 fleet Ready; active 1 wanted 3 base 0")
		w.decide(writtenBy("fleet", "d"), true)
		w.want(t, "3 fleet Ready, 4 fleet Ready; active 4 wanted 4 base 0")
	})
	t.Run("the same content", func(t *testing.T) {
		w := mixed()
		w.state.Revisions[2].Origin = w.state.Revisions[1].Origin
		w.decide(writtenBy("fleet", "c"), true)
		w.want(t, "3 fleet Ready; active 3 wanted 3 base 0")
	})
}

// TestARollbackToAnotherSpaceIsRefused although its revision is still kept for its number.
func TestARollbackToAnotherSpaceIsRefused(t *testing.T) {
	pods := []*manifests.Pod{writtenBy("fleet", "a")}
	c := controllerOf(pods, func(model.Desired) {})
	c.cfg.Options = acrossSpaces()
	c.turn()
	s := c.states[pods[0].Key()].clone()
	s.Revisions = append(s.Revisions, Revision{Number: 2, Hash: "x", Origin: writtenBy("file", "").Origin, Outcome: Ready})
	c.put(pods[0].Key(), s)
	_, err := c.Rollback(pods[0].Key(), 2, func(*Revision) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "is of source file") {
		t.Errorf("error %v", err)
	}
	if s := c.State(pods[0].Key()); s.Active != 1 || !slices.ContainsFunc(s.Revisions, func(r Revision) bool { return r.Number == 1 }) {
		t.Errorf("active %d", s.Active)
	}
}
