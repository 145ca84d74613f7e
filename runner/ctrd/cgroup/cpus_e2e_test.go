//go:build e2e

package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/cgroup"
)

// allowedCPUs is which processors the pod's only process may run on.
func allowedCPUs(t *testing.T, a *ctrdtest.Agent, key manifests.Key) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID(t, key)))
	ctrdtest.Check(t, err)
	_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}

func TestWholeProcessorsAreNotShared(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	static := func(c *ctrd.Config) { c.Enforce.StaticCPUs, c.ReservedCPUs = true, "0" }
	a := w.OpenWith(t, static)
	defer func() { a.End(t) }()
	if n := len(a.PodCgroups.Cpus.Online); n < 2 || a.PodCgroups.Cpus.Online[0] != 0 {
		t.Skipf("the machine has only %d processors", n)
	}
	all, most := a.PodCgroups.Cpus.Online.String(), len(a.PodCgroups.Cpus.Online)-1
	others := a.PodCgroups.Cpus.Online.Without(a.PodCgroups.Cpus.Reserved).String()
	shares := sized(t, "shares", "{}", "exec sleep 1000")
	a.Drive(t, shares.Key(), shares)
	if got := allowedCPUs(t, a, shares.Key()); got != all {
		t.Errorf("while nobody has processors for itself, a pod may use %s", got)
	}
	pinned := sized(t, "pinned", fmt.Sprintf("{limits: {cpu: %d, memory: 32Mi}}", most), "exec sleep 1000")
	a.Drive(t, pinned.Key(), pinned)
	late := sized(t, "late", "{limits: {cpu: 500m, memory: 32Mi}}", "exec sleep 1000")
	a.Drive(t, late.Key(), late)
	check3 := func(when string) {
		t.Helper()
		for key, want := range map[manifests.Key]string{pinned.Key(): others, shares.Key(): "0", late.Key(): "0"} {
			if got := allowedCPUs(t, a, key); got != want {
				t.Errorf("%s: %s may use %s, want %s", when, key.Name, got, want)
			}
		}
	}
	check3("together")
	if got := a.Limits(t, a.ContainerCgroup(t, pinned.Key())); got != "quota -1 memory 33554432" {
		t.Errorf("the pinned container has %s", got)
	}
	second := sized(t, "second", "{limits: {cpu: 1, memory: 32Mi}}", "exec sleep 1000")
	err := ctrdtest.StartPod(t.Context(), a, second)
	if !errors.Is(err, cgroup.ErrNoCPUs) {
		t.Errorf("a processor that is taken is given away: %v", err)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, second.Key()))
	a.Stop(t)
	a = w.OpenWith(t, static)
	check3("after a restart of the agent")
	if err := ctrdtest.StartPod(t.Context(), a, second); !errors.Is(err, cgroup.ErrNoCPUs) {
		t.Errorf("after a restart a processor that is taken is given away: %v", err)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, second.Key()))
	part := sized(t, "pinned", fmt.Sprintf("{limits: {cpu: %dm, memory: 32Mi}}", most*1000-500), "exec sleep 1000")
	c := a.State(t, pinned.Key()).Containers[0]
	if err := a.Apply(t.Context(), pinned.Key(), part, runner.Action{Kind: runner.UpdateResources, Container: "c", ContainerID: c.ID}); err == nil {
		t.Error("processors are taken from a container that runs")
	}
	edited := sized(t, "pinned", fmt.Sprintf("{limits: {cpu: %d, memory: 32Mi}}", most), "exec sleep 1001")
	a.Drive(t, pinned.Key(), edited)
	check3("after an edit, which makes a new instance beside the old one")
	a.Drive(t, pinned.Key(), nil)
	for _, pod := range []*manifests.Pod{shares, late} {
		if got := allowedCPUs(t, a, pod.Key()); got != all {
			t.Errorf("when nobody has processors for itself any more, %s may use %s", pod.Key().Name, got)
		}
		a.Drive(t, pod.Key(), nil)
	}
}
