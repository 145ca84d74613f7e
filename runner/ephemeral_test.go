package runner_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner"
)

// ephemeral returns ephemeral containers with these names; their image is the rest of each name after a colon.
func ephemeral(names ...string) (all []corev1.EphemeralContainer) {
	for _, n := range names {
		name, image, _ := strings.Cut(n, ":")
		all = append(all, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: image}})
	}
	return all
}

func TestEphemeralContainersAreOnlyAdded(t *testing.T) {
	old := ephemeral("a:1", "b:1")
	got := runner.AddEphemeral(old[:1], ephemeral("a:2", "c:1", "c:2"))
	var names []string
	for _, e := range got {
		names = append(names, e.Name+":"+e.Image)
	}
	if fmt.Sprint(names) != "[a:1 c:1]" || old[1].Name != "b" {
		t.Errorf("%v, and the old ones are %v", names, old)
	}
}

func TestEphemeralContainersOfASandbox(t *testing.T) {
	spec := &corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{{Name: "c"}}}
	if got := (*runner.Sandbox)(nil).EphemeralOf(spec); got != nil {
		t.Errorf("without a sandbox: %v", got)
	}
	for names, want := range map[string]int{"": 0, "a b": 2, "a i": 1, "c": 0} {
		sb := &runner.Sandbox{Ephemeral: ephemeral(strings.Fields(names)...)}
		if got := sb.EphemeralOf(spec); len(got) != want || len(sb.Ephemeral) != len(strings.Fields(names)) {
			t.Errorf("%q: %v", names, got)
		}
	}
}

func TestInstancesOfEphemeralContainersAreSplitOff(t *testing.T) {
	all := []runner.Container{{ID: "1", Name: "a"}, {ID: "2", Name: "dbg"}, {ID: "3", Name: "a"}}
	ids := func(list []runner.Container) (s string) {
		for _, c := range list {
			s += c.ID
		}
		return s
	}
	debug, others := runner.SplitEphemeral(all, ephemeral("dbg", "other"))
	if ids(debug) != "2" || ids(others) != "13" {
		t.Errorf("%s and %s", ids(debug), ids(others))
	}
	if debug, others = runner.SplitEphemeral(all, nil); debug != nil || ids(others) != "123" {
		t.Errorf("%s and %s", ids(debug), ids(others))
	}
}
