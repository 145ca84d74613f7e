//go:build e2e

package ctrd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
)

// allowed is which processors the pod's only process may run on.
func (a *agent) allowed(t *testing.T, key manifests.Key) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pidOf(t, key)))
	check(t, err)
	_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}

func TestWholeProcessorsAreNotShared(t *testing.T) {
	w := newWorld(t)
	static := func(c *Config) { c.Enforce.StaticCPUs, c.ReservedCPUs = true, "0" }
	a := w.openWith(t, static)
	defer func() { a.end(t) }()
	if n := len(a.podCgroups.Cpus.Online); n < 2 || a.podCgroups.Cpus.Online[0] != 0 {
		t.Skipf("the machine has only %d processors", n)
	}
	all, most := a.podCgroups.Cpus.Online.String(), len(a.podCgroups.Cpus.Online)-1
	others := a.podCgroups.Cpus.Online.Without(a.podCgroups.Cpus.Reserved).String()
	shares := sized(t, "shares", "{}", "exec sleep 1000")
	a.drive(t, shares.Key(), shares)
	if got := a.allowed(t, shares.Key()); got != all {
		t.Errorf("while nobody has processors for itself, a pod may use %s", got)
	}
	pinned := sized(t, "pinned", fmt.Sprintf("{limits: {cpu: %d, memory: 32Mi}}", most), "exec sleep 1000")
	a.drive(t, pinned.Key(), pinned)
	late := sized(t, "late", "{limits: {cpu: 500m, memory: 32Mi}}", "exec sleep 1000")
	a.drive(t, late.Key(), late)
	check3 := func(when string) {
		t.Helper()
		for key, want := range map[manifests.Key]string{pinned.Key(): others, shares.Key(): "0", late.Key(): "0"} {
			if got := a.allowed(t, key); got != want {
				t.Errorf("%s: %s may use %s, want %s", when, key.Name, got, want)
			}
		}
	}
	check3("together")
	if got := a.limits(t, a.containerCgroup(t, pinned.Key())); got != "quota -1 memory 33554432" {
		t.Errorf("the pinned container has %s", got)
	}
	second := sized(t, "second", "{limits: {cpu: 1, memory: 32Mi}}", "exec sleep 1000")
	err := startPod(t.Context(), a, second)
	if !errors.Is(err, cgroup.ErrNoCPUs) {
		t.Errorf("a processor that is taken is given away: %v", err)
	}
	check(t, removePod(t.Context(), a, second.Key()))
	a.stop(t)
	a = w.openWith(t, static)
	check3("after a restart of the agent")
	if err := startPod(t.Context(), a, second); !errors.Is(err, cgroup.ErrNoCPUs) {
		t.Errorf("after a restart a processor that is taken is given away: %v", err)
	}
	check(t, removePod(t.Context(), a, second.Key()))
	part := sized(t, "pinned", fmt.Sprintf("{limits: {cpu: %dm, memory: 32Mi}}", most*1000-500), "exec sleep 1000")
	c := a.state(t, pinned.Key()).Containers[0]
	if err := a.Apply(t.Context(), pinned.Key(), part, runner.Action{Kind: runner.UpdateResources, Container: "c", ContainerID: c.ID}); err == nil {
		t.Error("processors are taken from a container that runs")
	}
	edited := sized(t, "pinned", fmt.Sprintf("{limits: {cpu: %d, memory: 32Mi}}", most), "exec sleep 1001")
	a.drive(t, pinned.Key(), edited)
	check3("after an edit, which makes a new instance beside the old one")
	a.drive(t, pinned.Key(), nil)
	for _, pod := range []*manifests.Pod{shares, late} {
		if got := a.allowed(t, pod.Key()); got != all {
			t.Errorf("when nobody has processors for itself any more, %s may use %s", pod.Key().Name, got)
		}
		a.drive(t, pod.Key(), nil)
	}
}
