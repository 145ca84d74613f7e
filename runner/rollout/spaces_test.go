package rollout

import (
	"testing"

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
