//go:build e2e

package ctrdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/cgroup"
	"monopod/runner/plan"
)

// Drive applies actions like the worker of a pod, until none is left, and returns them.
func (a *Agent) Drive(t testing.TB, key manifests.Key, desired *manifests.Pod) []string {
	t.Helper()
	var did []string
	for deadline := time.Now().Add(Patience); ; {
		o := plan.Observed{PodState: a.State(t, key), NewUID: "uid-" + key.Name}
		actions, _ := plan.Plan(time.Now(), desired, o)
		if len(actions) == 0 {
			return did
		}
		if time.Now().After(deadline) {
			t.Fatalf("still to do: %v", actions)
		}
		for _, x := range actions {
			pod := desired
			if x.Manifest == runner.RecordedManifest {
				pod = o.Sandbox.Pod
			}
			Check(t, a.Apply(t.Context(), key, pod, x))
			did = append(did, strings.TrimSpace(string(x.Kind)+" "+x.Container))
		}
	}
}

// Cgroup reads a value: by its name on v2, or as controller/name on v1.
func (a *Agent) Cgroup(t testing.TB, group, v2, v1 string) string {
	t.Helper()
	path := filepath.Join(cgroup.UnifiedRoot, group, v2)
	if a.PodCgroups.Cgroups.Controllers != nil {
		controller, name, _ := strings.Cut(v1, "/")
		path = filepath.Join(a.PodCgroups.Cgroups.Controllers[controller], group, name)
	}
	b, err := os.ReadFile(path)
	Check(t, err)
	return strings.TrimSpace(string(b))
}

// Limits are quota, memory and weight of a cgroup.
func (a *Agent) Limits(t testing.TB, group string) string {
	t.Helper()
	quota, _, _ := strings.Cut(a.Cgroup(t, group, "cpu.max", "cpu/cpu.cfs_quota_us"), " ")
	memory := cgroup.LimitOf(a.Cgroup(t, group, "memory.max", "memory/memory.limit_in_bytes"))
	return fmt.Sprintf("quota %s memory %s", cgroup.OrUnlimited(cgroup.LimitOf(quota)), cgroup.OrUnlimited(memory))
}

// Weight returns the weight of a cgroup.
func (a *Agent) Weight(t testing.TB, cgroup string) string {
	t.Helper()
	return a.Cgroup(t, cgroup, "cpu.weight", "cpu/cpu.shares")
}

// WeightOf is what weight returns for shares.
func (a *Agent) WeightOf(shares uint64) string {
	if a.PodCgroups.Cgroups.Controllers != nil {
		return fmt.Sprint(shares)
	}
	return fmt.Sprint(cgroup.CPUWeight(shares))
}

// ContainerCgroup is the cgroup of the pod's newest container.
func (a *Agent) ContainerCgroup(t testing.TB, key manifests.Key) string {
	t.Helper()
	all := a.Index.OfPod(key)
	if len(all) == 0 {
		t.Fatalf("%s has no container", key)
	}
	return a.PodCgroups.CgroupOf(all[len(all)-1])
}
