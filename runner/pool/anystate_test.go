package pool_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

// anyState draws a state that need not be reachable.
func anyState(rt *rapid.T, want *manifests.Pod) plan.Observed {
	now := time.Now()
	var o plan.Observed
	o.NewUID = "uid-new"
	old := edited(want, func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "busybox:0"
		if rapid.Bool().Draw(rt, "other sandbox") {
			p.Spec.Hostname = "old"
		}
	})
	if rapid.IntRange(0, 4).Draw(rt, "sandbox") > 0 {
		o.Sandbox = &runner.Sandbox{
			ID: "s901", UID: "uid-1", Pod: rapid.SampledFrom([]*manifests.Pod{want, old}).Draw(rt, "recorded"), CreatedAt: now.Add(-time.Hour),
			Alive: rapid.IntRange(0, 3).Draw(rt, "alive") > 0, Network: runner.NetworkReady, IPs: []string{"10.0.0.1"},
		}
		o.Sandbox.Hash = podhash.Sandbox(o.Sandbox.Pod.Object)
		if rapid.IntRange(0, 3).Draw(rt, "network") == 0 {
			o.Sandbox.Network = runner.NetworkPending
		}
	}
	for i := range rapid.IntRange(0, 5).Draw(rt, "instances") {
		o.Containers = append(o.Containers, anyInstance(rt, i, now, want, old))
	}
	// Oldest first: containers of an earlier sandbox are older than those of this one.
	slices.SortStableFunc(o.Containers, func(a, b runner.Container) int { return strings.Compare(a.SandboxID, b.SandboxID) })
	return o
}

func anyInstance(rt *rapid.T, i int, now time.Time, pods ...*manifests.Pod) runner.Container {
	c := runner.Container{
		ID:        fmt.Sprintf("i%d", i),
		Name:      rapid.SampledFrom([]string{"a", "b", "i", "s", "j", "gone"}).Draw(rt, "name"),
		SandboxID: rapid.SampledFrom([]string{"s901", "s901", "s901", "s900"}).Draw(rt, "sandbox id"),
		Image:     "busybox:1", ImageID: "sha256:1", CreatedAt: now.Add(-time.Hour),
		State:        rapid.SampledFrom([]runner.ContainerState{runner.ContainerCreated, runner.ContainerRunning, runner.ContainerExited}).Draw(rt, "state"),
		RestartCount: i,
		Round:        rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "round"),
		BackOff:      rapid.SampledFrom([]time.Duration{0, 10 * time.Second, 300 * time.Second}).Draw(rt, "back-off"),
	}
	if c.Hash = podhash.Container(rapid.SampledFrom(pods).Draw(rt, "made for").Object, c.Name); c.Hash == "" {
		c.Hash = "of a container that is not in the manifest any more"
	}
	at := func(label string) time.Time {
		return now.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(rt, label)) * time.Second)
	}
	if c.State == runner.ContainerCreated {
		return c
	}
	c.StartedAt, c.PID = at("started"), uint32(1000+i)
	if rapid.IntRange(0, 3).Draw(rt, "stopped") == 0 {
		c.StopSentAt = at("stop sent")
	}
	if rapid.IntRange(0, 4).Draw(rt, "stop announced") == 0 {
		c.StoppingAt = at("stopping")
	}
	if c.State == runner.ContainerExited {
		c.Exit = &runner.Termination{ContainerID: c.ID, ExitCode: rapid.IntRange(0, 1).Draw(rt, "code"), StartedAt: c.StartedAt, FinishedAt: at("finished")}
		c.Recorded, c.PID = rapid.Bool().Draw(rt, "recorded exit"), 0
	}
	return c
}

func TestAnyStateConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom([]corev1.RestartPolicy{"Always", "OnFailure", "Never"}).Draw(rt, "policy")
		want := edited(testPod("x", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)),
			func(p *corev1.Pod) {
				p.Spec.RestartPolicy = policy
				if rapid.Bool().Draw(rt, "with a rule") {
					p.Spec.Containers[0] = ruled(p.Spec.Containers[0], "Never", onCodes(restartAll, in, 1))
				}
				if rapid.Bool().Draw(rt, "with init containers") {
					p.Spec.InitContainers = []corev1.Container{testContainer("i", "after 3s"), testSidecar("s", runtimetest.ScriptServe), testContainer("j", runtimetest.ScriptSucceed)}
				}
			})
		var wrong []string
		parallel := rapid.SampledFrom([]int{0, 3}).Draw(rt, "parallel")
		remove := rapid.IntRange(0, 4).Draw(rt, "remove") == 0
		var o plan.Observed
		synctest.Test(t, func(t *testing.T) {
			o = anyState(rt, want)
			desired := want
			if remove {
				desired = nil
			}
			before := asJSON(t, o.PodState)
			a1, n1 := plan.Plan(time.Now(), desired, o)
			a2, n2 := plan.Plan(time.Now(), desired, o)
			if !reflect.DeepEqual(a1, a2) || !n1.Equal(n2) {
				wrong = append(wrong, fmt.Sprintf("two plans of one state:\n%v %s\n%v %s", a1, n1, a2, n2))
			}
			if after := asJSON(t, o.PodState); after != before {
				wrong = append(wrong, "the plan changed the state:\n"+before+"\n"+after)
			}
			c := newChaos(t, parallel)
			c.anyState = true
			if desired != nil {
				c.desired[desired.Key()] = desired
			}
			c.fake.Put(key("x"), o.PodState)
			c.start()
			c.push()
			c.pass(3 * time.Hour)
			if o.Sandbox != nil || desired != nil { // without a sandbox, the other records are never found
				c.checkEnd(key("x"), desired)
			}
			wrong = append(wrong, c.wrong...)
			if len(wrong) > 0 {
				wrong = append(wrong, "log:\n"+c.log.String())
			}
		})
		if len(wrong) > 0 {
			rt.Fatalf("%+v\n%s", o, strings.Join(wrong, "\n"))
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
