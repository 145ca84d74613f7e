package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/runtimetest"
)

// chaos plays a random story against a pool. It checks that each action is allowed, and at the end that the state is as desired.
type chaos struct {
	*rig
	mu      sync.Mutex
	desired map[manifests.Key]*manifests.Pod
	// editedAt is when a pod was last edited. At that very instant (of the bubble's clock) the worker may have read the desired state already.
	editedAt map[manifests.Key]time.Time
	// anyState reports that the story begins with an unreachable state.
	anyState bool
	fault    runner.ActionKind
	reason   string
	offline  bool
	skew     time.Duration // of the machine's clock
	skewedAt time.Time     // of the bubble's clock
	// sick makes probes fail.
	sick bool
	// answered is when the startup probe of a container, by pod and name, last succeeded.
	answered map[string]time.Time
	// debugged are the instances of ephemeral containers that have run, by the pod's uid and name.
	debugged map[string]string
	wrong    []string
}

// badImage cannot be pulled.
const badImage = "bad:1"

// newChaos returns a chaos whose pool creates up to n containers of a pod concurrently. With n > 1, creations take time, and other steps
// happen meanwhile.
func newChaos(t *testing.T, n int) *chaos {
	t.Helper()
	c := &chaos{rig: newRig(t), desired: map[manifests.Key]*manifests.Pod{}, editedAt: map[manifests.Key]time.Time{}, answered: map[string]time.Time{}, debugged: map[string]string{}}
	c.cfg.Now = c.fake.Now
	c.cfg.Options.Parallel = n
	if n > 0 {
		c.fake.Delay = func(a runner.Action) time.Duration {
			if a.Kind == runner.CreateContainer {
				return time.Duration(1+a.Container[0]%3) * 20 * time.Millisecond
			}
			return 0
		}
	}
	c.fake.Fail = c.judge
	c.fake.OnExec = c.exec
	c.fake.NetworkDelay = 30 * time.Millisecond
	c.fake.NetworkFail = c.network
	return c
}

// now is the machine's clock, which may have been set.
func (c *chaos) now() time.Time { return time.Now().Add(c.skew) }

func (c *chaos) wrongf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// judge is called before each action: it checks the action, then may fail it.
func (c *chaos) judge(key manifests.Key, a runner.Action) error {
	st := c.fake.State(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	want := c.desired[key]
	c.check(key, a, st, want)
	c.checkEphemeral(key, a, st)
	if a.Kind == runner.StartContainer {
		delete(c.answered, key.Name+"/"+a.Container)
	}
	if a.Kind == c.fault {
		return &runner.StepError{Reason: c.reason, Err: errors.New("made to fail")}
	}
	if a.Kind == runner.EnsureImage || a.Kind == runner.CheckPod {
		if want != nil && usesBadImage(want, a.Container) {
			return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("no such image")}
		}
	}
	return nil
}

// exec runs hooks and probes.
func (c *chaos) exec(ctx context.Context, k manifests.Key, container string, r runner.ExecRequest) (runner.ExecResult, error) {
	if !strings.HasSuffix(r.Command[0], "-probe") {
		return scripted(ctx, k, container, r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sick {
		return runner.ExecResult{ExitCode: 1}, nil
	}
	if r.Command[0] == "startup-probe" {
		c.answered[k.Name+"/"+container] = time.Now()
	}
	return runner.ExecResult{}, nil
}

// network is the result of CNI ADD.
func (c *chaos) network(manifests.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.offline {
		return errors.New("no bridge")
	}
	return nil
}

func usesBadImage(p *manifests.Pod, name string) bool {
	for c := range manifests.AllContainers(&p.Object.Spec) {
		if (c.Name == name || name == "") && c.Image == badImage {
			return true
		}
	}
	return false
}

func (c *chaos) check(key manifests.Key, a runner.Action, st runner.PodState, want *manifests.Pod) {
	var target *runner.Container
	running := map[string]int{}
	for i := range st.Containers {
		if st.Containers[i].State == runner.ContainerRunning {
			running[st.Containers[i].Name]++
		}
		if st.Containers[i].ID == a.ContainerID {
			target = &st.Containers[i]
		}
	}
	switch a.Kind {
	case runner.CreateSandbox:
		if st.Sandbox != nil {
			c.wrongf("%s: %s while there is one", key, a)
		}
	case runner.ReviveSandbox:
		if st.Sandbox == nil || st.Sandbox.Alive || len(running) > 0 {
			c.wrongf("%s: %s of %v with %v running", key, a, st.Sandbox, running)
		}
	case runner.CreateContainer, runner.StartContainer:
		if st.Sandbox == nil || !st.Sandbox.Alive {
			c.wrongf("%s: %s without a sandbox that is alive", key, a)
		}
		if a.Kind == runner.StartContainer && running[a.Container] > 0 {
			c.wrongf("%s: %s while the old one runs", key, a)
		}
		c.checkWanted(key, a, st, want)
	case runner.StopContainer, runner.KillContainer:
		c.checkStop(key, a, st, target, want)
	case runner.RemoveContainer:
		if target == nil {
			c.wrongf("%s: %s %s, which does not exist", key, a, a.ContainerID)
		} else if target.State == runner.ContainerRunning {
			c.wrongf("%s: %s, which runs", key, a)
		}
	case runner.RemoveSandbox: // it may also release the place of a pod that was being recreated
		if st.Sandbox == nil && st.Place == nil || len(running) > 0 {
			c.wrongf("%s: %s of %v with %v running", key, a, st.Sandbox, running)
		}
	}
}

// checkEphemeral checks that an ephemeral container runs once at most.
func (c *chaos) checkEphemeral(key manifests.Key, a runner.Action, st runner.PodState) {
	if st.Sandbox == nil {
		return
	}
	for _, i := range st.Containers {
		if kindOf(st.Sandbox.Pod, i.Name) == "ephemeral" && !i.StartedAt.IsZero() {
			c.debugged[st.Sandbox.UID+"/"+i.Name] = i.ID
		}
	}
	if a.Kind != runner.CreateContainer && a.Kind != runner.StartContainer || kindOf(st.Sandbox.Pod, a.Container) != "ephemeral" {
		return
	}
	if ran := c.debugged[st.Sandbox.UID+"/"+a.Container]; ran != "" {
		c.wrongf("%s: %s, which has run: %s", key, a, ran)
	}
}

// debug adds an ephemeral container to a pod, if there is one.
func (c *chaos) debug(name string, n int) {
	st := c.fake.State(key(name))
	if st.Sandbox == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	add := debugger(fmt.Sprint("debug", n%3), []string{runtimetest.ScriptServe, runtimetest.ScriptSlowStop, "after 3s"}[n%3])
	_ = c.pool.AddEphemeral(ctx, key(name), types.UID(st.Sandbox.UID), []corev1.EphemeralContainer{add}) // nobody may be there to do it
}

// slowest is the longest duration of a creation; the desired state may change meanwhile.
const slowest = 100 * time.Millisecond

// checkWanted checks that no container is created or started in a pod that has failed or is being removed, and that all others are in
// order.
func (c *chaos) checkWanted(key manifests.Key, a runner.Action, st runner.PodState, want *manifests.Pod) {
	since := time.Since(c.editedAt[key])
	switch {
	case since == 0 || a.Kind == runner.CreateContainer && since <= slowest || st.Sandbox == nil:
	case want == nil:
		c.wrongf("%s: %s in a pod that is to go", key, a)
	case st.Sandbox.Failed != nil:
		c.wrongf("%s: %s in a pod that has failed", key, a)
	case a.Manifest == runner.DesiredManifest && kindOf(want, a.Container) != "ephemeral": // which waits for no other
		c.checkOrder(key, a, st, want)
	}
}

// checkOrder checks that init containers run one after another and only once in a sandbox, and that no container overtakes them or a
// sidecar that has not started. A container is created before its turn only while sidecars start.
func (c *chaos) checkOrder(key manifests.Key, a runner.Action, st runner.PodState, want *manifests.Pod) {
	begun, round := false, a.Round
	for _, i := range st.Containers {
		if i.Name == a.Container && i.State == runner.ContainerCreated && a.Kind == runner.StartContainer {
			round = i.Round
		}
	}
	succeeded, there := map[string]bool{}, map[string]bool{}
	for _, i := range st.Containers {
		if st.Sandbox == nil || i.SandboxID != st.Sandbox.ID || i.Round != round {
			continue
		}
		begun = begun || kindOf(want, i.Name) == "regular" && !i.StartedAt.IsZero()
		// Its end may have come between the plan and the start, and the clock may have been set since.
		alive := i.State == runner.ContainerRunning || i.State == runner.ContainerExited && (c.now().Sub(i.Exit.FinishedAt) <= slowest || time.Since(c.skewedAt) <= slowest)
		there[i.Name] = there[i.Name] || alive && c.isStarted(key, want, &i)
		succeeded[i.Name] = succeeded[i.Name] || i.State == runner.ContainerExited && i.StopSentAt.IsZero() && i.StoppingAt.IsZero() && i.Exit.ExitCode == 0
	}
	if kindOf(want, a.Container) == "init" && (begun || succeeded[a.Container]) {
		c.wrongf("%s: %s again", key, a)
	}
	if a.Kind == runner.CreateContainer && (c.anyState || slices.ContainsFunc(st.Containers, func(i runner.Container) bool {
		return i.Name == a.Container && i.State == runner.ContainerRunning
	})) {
		return // the next instance may exist at the same time
	}
	c.checkHooks(key, a, st, want)
	for before := range manifests.AllContainers(&want.Object.Spec) {
		kind := kindOf(want, before.Name)
		switch {
		case before.Name == a.Container || kind == "regular" || begun:
			return
		case kind == "sidecar" && a.Kind == runner.CreateContainer && !waitedFor(before):
		case kind == "init" && !succeeded[before.Name], kind == "sidecar" && !there[before.Name]:
			c.wrongf("%s: %s overtakes %s", key, a, before.Name)
		}
	}
}

// checkHooks checks that no regular container is started while the postStart hook of an earlier one runs.
func (c *chaos) checkHooks(key manifests.Key, a runner.Action, st runner.PodState, want *manifests.Pod) {
	if kindOf(want, a.Container) != "regular" || a.Kind != runner.StartContainer {
		return
	}
	for _, before := range want.Object.Spec.Containers {
		if before.Name == a.Container {
			return
		}
		for _, i := range st.Containers {
			leaving := !i.StopSentAt.IsZero() || !i.StoppingAt.IsZero()
			if i.Name == before.Name && i.State == runner.ContainerRunning && i.PostStart == runner.PostStartPending && !leaving &&
				i.SandboxID == st.Sandbox.ID && waitedFor(&before) {
				c.wrongf("%s: %s while the hook of %s runs", key, a, before.Name)
			}
		}
	}
}

// waitedFor reports whether a container needs more than a running process to count as started.
func waitedFor(spec *corev1.Container) bool {
	return spec.StartupProbe != nil || spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
}

// isStarted reports whether a sidecar has started as far as later containers require, as far as the test can tell.
func (c *chaos) isStarted(key manifests.Key, want *manifests.Pod, i *runner.Container) bool {
	spec := manifests.FindContainer(&want.Object.Spec, i.Name)
	if spec == nil || i.PostStart == runner.PostStartPending {
		return false
	}
	return spec.StartupProbe == nil || i.Health.Started || !c.answered[key.Name+"/"+i.Name].IsZero()
}

// kindOf returns the kind of a container in a pod; unknown containers are regular.
func kindOf(p *manifests.Pod, name string) string {
	if strings.HasPrefix(name, "debug") {
		return "ephemeral"
	}
	for i := range p.Object.Spec.InitContainers {
		if c := &p.Object.Spec.InitContainers[i]; c.Name == name {
			if manifests.IsSidecar(c) {
				return "sidecar"
			}
			return "init"
		}
	}
	return "regular"
}

// checkStopOrder checks that sidecars of a pod that is removed are stopped after all other containers, the last one first, unless the grace
// period is over.
func (c *chaos) checkStopOrder(key manifests.Key, a runner.Action, st runner.PodState, target *runner.Container) {
	if a.Kind != runner.StopContainer || st.Sandbox == nil || kindOf(st.Sandbox.Pod, target.Name) != "sidecar" {
		return
	}
	grace := time.Duration(*st.Sandbox.Pod.Object.Spec.TerminationGracePeriodSeconds) * time.Second
	if grace == 0 || !target.StoppingAt.IsZero() && (!c.now().Before(target.StoppingAt.Add(grace)) || target.StoppingAt.After(c.now())) {
		return
	}
	after := false
	for other := range manifests.AllContainers(&st.Sandbox.Pod.Object.Spec) {
		for _, i := range st.Containers {
			if i.Name == other.Name && i.State == runner.ContainerRunning && i.ID != target.ID && (after || kindOf(st.Sandbox.Pod, i.Name) != "sidecar") {
				c.wrongf("%s: %s while %s runs", key, a, i.Name)
			}
		}
		after = after || other.Name == target.Name
	}
}

// checkStop checks that no container is stopped that is as desired or cannot be replaced.
func (c *chaos) checkStop(key manifests.Key, a runner.Action, st runner.PodState, target *runner.Container, want *manifests.Pod) {
	if target == nil {
		c.wrongf("%s: %s %s, which does not exist", key, a, a.ContainerID)
		return
	}
	if want == nil {
		c.checkStopOrder(key, a, st, target)
	}
	if want == nil || st.Sandbox == nil || !target.StopSentAt.IsZero() || !target.StoppingAt.IsZero() || a.Cause != runner.StopUnwanted || c.editedAt[key].Equal(time.Now()) {
		return
	}
	if target.SandboxID != st.Sandbox.ID || c.twins(target, st) || st.Sandbox.Failed != nil {
		return // a leftover of a failure
	}
	same := st.Sandbox.Hash == podhash.Sandbox(want.Object) &&
		(st.Sandbox.QOSClass == "" || st.Sandbox.QOSClass == manifests.QOSClass(want.Object))
	ends := kindOf(want, target.Name) == "sidecar" && ended(want, st) || kindOf(want, target.Name) == "init" && c.anyState
	if same && st.Sandbox.Alive && target.Hash == podhash.Container(want.Object, target.Name) && !ends && !resizeByRestart(want, target) {
		c.wrongf("%s: %s, which is as desired", key, a)
	}
	if podhash.Container(want.Object, target.Name) != "" && usesBadImage(want, target.Name) {
		c.wrongf("%s: %s for an image that cannot be had", key, a)
	}
	if !same && usesBadImage(want, "") {
		c.wrongf("%s: %s for a pod whose images cannot be had", key, a)
	}
}

// checkComplete checks that there is one instance of each container, except of those that are not needed now.
func (c *chaos) checkComplete(k manifests.Key, want *manifests.Pod, st runner.PodState) {
	count := map[string]int{}
	for _, i := range st.Containers {
		count[i.Name]++
	}
	for spec := range manifests.AllContainers(&want.Object.Spec) {
		kind := kindOf(want, spec.Name)
		dispensable := kind == "init" && begun(want, st) || len(want.Object.Spec.InitContainers) > 0 && ended(want, st)
		if n := count[spec.Name]; n > 1 || n == 0 && !dispensable {
			c.wrongf("%s: %d instances of %s", k, n, spec.Name)
		}
		delete(count, spec.Name)
	}
	for name, n := range count {
		if kindOf(want, name) == "ephemeral" && n == 1 {
			delete(count, name)
		}
	}
	if len(count) > 0 {
		c.wrongf("%s: strangers %v", k, count)
	}
}

// begun reports whether a regular container has been started.
func begun(want *manifests.Pod, st runner.PodState) bool {
	return slices.ContainsFunc(st.Containers, func(i runner.Container) bool {
		return kindOf(want, i.Name) == "regular" && !i.StartedAt.IsZero()
	})
}

// ended reports whether no regular container of the pod will run again, or an init container has failed permanently.
func ended(want *manifests.Pod, st runner.PodState) bool {
	over := map[string]bool{}
	for _, i := range st.Containers {
		over[i.Name] = i.State == runner.ContainerExited && i.Hash == podhash.Container(want.Object, i.Name) &&
			!plan.NextRestart(at(0), &want.Object.Spec, &i, plan.Options{}).Wanted
		if over[i.Name] && kindOf(want, i.Name) == "init" && i.Exit.ExitCode != 0 {
			return true
		}
	}
	for _, c := range want.Object.Spec.Containers {
		if !over[c.Name] {
			return false
		}
	}
	return true
}

// nothingToDo is ended for running containers: the failure of an init container counts only in the round of the failure, and before a
// regular container of that round has started.
func nothingToDo(want *manifests.Pod, st runner.PodState) bool {
	round := 0
	for _, i := range st.Containers {
		if i.SandboxID == st.Sandbox.ID {
			round = max(round, i.Round)
		}
	}
	current := func(i runner.Container) bool { return i.SandboxID == st.Sandbox.ID && i.Round == round }
	begun := slices.ContainsFunc(st.Containers, func(i runner.Container) bool {
		return current(i) && kindOf(want, i.Name) == "regular" && !i.StartedAt.IsZero()
	})
	over := map[string]bool{}
	for _, i := range st.Containers {
		final := i.State == runner.ContainerExited && i.Hash == podhash.Container(want.Object, i.Name) && !plan.NextRestart(at(0), &want.Object.Spec, &i, plan.Options{}).Wanted
		if final && kindOf(want, i.Name) == "init" && i.Exit.ExitCode != 0 && current(i) && !begun {
			return true
		}
		over[i.Name] = final && (current(i) || i.SandboxID != st.Sandbox.ID)
	}
	return !slices.ContainsFunc(want.Object.Spec.Containers, func(c corev1.Container) bool { return !over[c.Name] })
}

// resizeByRestart reports whether the container requires a restart for a change of its resources.
func resizeByRestart(want *manifests.Pod, c *runner.Container) bool {
	for i := range want.Object.Spec.Containers {
		if s := &want.Object.Spec.Containers[i]; s.Name == c.Name {
			return c.ResourcesHash != podhash.Resources(want.Object, c.Name) && len(s.ResizePolicy) > 0 && s.ResizePolicy[0].RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// twins reports whether two instances of one container run.
func (c *chaos) twins(target *runner.Container, st runner.PodState) bool {
	for _, i := range st.Containers {
		if i.ID != target.ID && i.Name == target.Name && i.State == runner.ContainerRunning {
			return true
		}
	}
	return false
}

// step is one event of a story.
type step struct {
	What string
	Pod  int
	N    int
}

func steps() *rapid.Generator[[]step] {
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			What: rapid.SampledFrom([]string{
				"add", "remove", "env", "env", "image", "bad image", "good image", "sandbox", "label", "policy", "grace",
				"init env", "add init", "add sidecar", "remove init", "init fails",
				"add container", "remove container", "resize", "resize", "exit", "exit", "kill", "stubborn", "fault", "fault", "no fault",
				"agent dies", "agent restarts", "offline", "reboot", "pins lost", "blind", "see", "pass", "pass", "a while",
				"a moment", "a moment", "clock", "sick", "well", "probe", "deadline", "debug", "debug",
			}).Draw(t, "what"),
			Pod: rapid.IntRange(0, 1).Draw(t, "pod"),
			N:   rapid.IntRange(0, 7).Draw(t, "n"),
		}
	})
	return rapid.SliceOfN(one, 1, 25)
}

func TestRandomStoriesEndAsDesired(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		story, parallel := steps().Draw(rt, "story"), rapid.SampledFrom([]int{0, 2, 4}).Draw(rt, "parallel")
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t, parallel)
			c.start()
			for _, s := range story {
				c.play(s)
			}
			c.finale()
			wrong = c.wrong
			if len(wrong) > 0 {
				wrong = append(wrong, "log:\n"+c.log.String())
			}
		})
		if len(wrong) > 0 {
			rt.Fatalf("%s", strings.Join(wrong, "\n"))
		}
	})
}

// randomPod draws a pod with containers of all kinds.
func randomPod(t *rapid.T) *manifests.Pod {
	draw := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	hooks := func(c corev1.Container) corev1.Container {
		if post, pre := draw("postStart", "", "", "", "quick", "slow", "fail"), draw("preStop", "", "", "", "quick", "slow", "fail"); post != "" || pre != "" {
			return hooked(c, post, pre)
		}
		return c
	}
	lasting := func(c corev1.Container) corev1.Container {
		if p := draw("probe", "", "", "", "startup", "liveness"); p != "" {
			setProbe(&c, p == "startup")
		}
		return hooks(c)
	}
	serving := []string{runtimetest.ScriptServe, runtimetest.ScriptServe, runtimetest.ScriptSlowStop, runtimetest.ScriptStubborn, "after 20s", runtimetest.ScriptFailSoon}
	p := testPod("x")
	spec := &p.Object.Spec
	spec.RestartPolicy = corev1.RestartPolicy(draw("policy", "Always", "OnFailure", "Never"))
	spec.TerminationGracePeriodSeconds = new(int64(rapid.SampledFrom([]int{0, 1, 10, 30, 30}).Draw(t, "grace")))
	for i := range rapid.IntRange(0, 4).Draw(t, "init containers") {
		if name := fmt.Sprintf("i%d", i); rapid.Bool().Draw(t, "sidecar") {
			spec.InitContainers = append(spec.InitContainers, lasting(testSidecar(name, draw("script", serving...))))
		} else {
			spec.InitContainers = append(spec.InitContainers, testContainer(name, draw("script", runtimetest.ScriptSucceed, "after 3s", "after 30ms", runtimetest.ScriptFail)))
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := lasting(testContainer(fmt.Sprintf("c%d", i), draw("script", serving...)))
		switch draw("rule", "", "", "", "restart", "all") {
		case "restart":
			c = ruled(c, corev1.ContainerRestartPolicyNever, onCodes(corev1.ContainerRestartRuleActionRestart, in, 1, 7))
		case "all":
			c = ruled(c, corev1.ContainerRestartPolicyOnFailure, onCodes(restartAll, in, 1))
		}
		spec.Containers = append(spec.Containers, c)
	}
	return p
}

// TestRandomPodsEndAsDesired runs a pod of any kind through faults, then removes it.
func TestRandomPodsEndAsDesired(t *testing.T) {
	story := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			What: rapid.SampledFrom([]string{
				"exit", "exit", "kill", "fault", "no fault", "agent dies", "agent dies", "agent restarts", "pass", "pass", "a moment",
				"a moment", "clock", "sick", "well", "reboot", "pins lost", "env", "init env", "sandbox", "offline", "a while", "deadline", "resize",
			}).Draw(t, "what"),
			N: rapid.IntRange(0, 7).Draw(t, "n"),
		}
	}), 0, 12)
	rapid.Check(t, func(rt *rapid.T) {
		pod, steps, parallel := randomPod(rt), story.Draw(rt, "story"), rapid.SampledFrom([]int{0, 3}).Draw(rt, "parallel")
		gone := rapid.IntRange(0, 60).Draw(rt, "seconds before it goes")
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t, parallel)
			c.start()
			c.desired[pod.Key()], c.editedAt[pod.Key()] = pod, time.Now()
			c.push()
			for _, s := range steps {
				c.play(s)
			}
			c.finale()
			c.play(step{What: "sandbox", N: 9}) // the setup restarts, and the sandbox may be lost at any moment of it
			c.pass(time.Duration(gone) * time.Second)
			c.play(step{What: "remove"})
			c.pass(30 * time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.checkEnd(pod.Key(), nil)
			wrong = c.wrong
			if len(wrong) > 0 {
				wrong = append(wrong, "log:\n"+c.log.String())
			}
		})
		if len(wrong) > 0 {
			rt.Fatalf("%s", strings.Join(wrong, "\n"))
		}
	})
}

func (c *chaos) play(s step) {
	name := []string{"x", "y"}[s.Pod]
	switch s.What {
	case "fault":
		c.setFault([]runner.ActionKind{
			runner.EnsureImage, runner.CreateContainer, runner.StartContainer, runner.CreateSandbox, runner.ReviveSandbox,
			runner.RemoveContainer, runner.CheckPod, runner.RecordPod, runner.StopContainer,
		}[s.N])
	case "no fault":
		c.setFault("")
	case "agent dies":
		c.fake.KillAfter(s.N + 1)
		c.settle()
	case "agent restarts":
		c.restart()
		c.push()
	case "reboot":
		c.fake.Reboot()
		c.restart()
		c.push()
	case "pins lost":
		c.fake.Kill() // otherwise a running action would be judged by the state after it
		c.fake.LosePins()
		c.restart()
		c.push()
	case "offline":
		c.setOffline(s.N > 3)
	case "blind":
		c.fake.Blind(runtimetest.ErrBlind)
	case "see":
		c.fake.Blind(nil)
	case "pass":
		c.pass(time.Duration(s.N) * 7 * time.Second)
	case "a while":
		c.pass(time.Duration(s.N) * 5 * time.Minute)
	case "a moment":
		c.pass(time.Duration(1+s.N) * 13 * time.Millisecond)
	case "clock":
		c.setClock([]time.Duration{-100 * time.Hour, -time.Hour, -10 * time.Second, -time.Millisecond, time.Millisecond, 10 * time.Second, time.Hour, 100 * time.Hour}[s.N])
	case "debug":
		c.debug(name, s.N)
	case "sick", "well":
		c.setSick(s.What == "sick")
	case "exit":
		_ = c.fake.Exit(key(name), []string{"a", "b", "s", "i", "t"}[s.N%5], s.N/4) // it may be missing
		_ = c.fake.Exit(key(name), []string{"c0", "c1", "i0", "i1"}[s.N%4], s.N/4)
	case "kill":
		for _, i := range c.fake.State(key(name)).Containers {
			_ = c.fake.KillProcess(i.PID)
		}
	default:
		c.edit(key(name), s)
		c.push()
	}
	c.settle()
	c.revive()
}

// revive starts an agent again that an armed kill has ended. Another kill may have been armed since.
func (c *chaos) revive() {
	select {
	case <-c.fake.Died():
		c.restart()
		c.push()
	default:
	}
}

// calm ends all faults and leaves a running agent behind. It disarms the kill first: the following steps wake the pool, and the agent must
// not die after one of those actions, because the story would not restart it.
func (c *chaos) calm() {
	dead := c.fake.Disarm()
	c.setFault("")
	c.setOffline(false)
	c.setSick(false)
	c.fake.Blind(nil)
	if dead {
		c.restart()
	}
	c.settle()
}

func (c *chaos) setFault(kind runner.ActionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.reason = kind, runner.ReasonCreateContainerError
	if kind == runner.EnsureImage {
		c.reason = runner.ReasonErrImagePull
	}
}

func (c *chaos) setClock(by time.Duration) {
	c.fake.SetClock(by)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew, c.skewedAt = c.skew+by, time.Now()
}

func (c *chaos) setSick(sick bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sick = sick
}

func (c *chaos) setOffline(offline bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offline = offline
}

// push passes the desired state to the pool.
func (c *chaos) push() {
	c.mu.Lock()
	var pods []*manifests.Pod
	for _, name := range []string{"x", "y"} {
		if p := c.desired[key(name)]; p != nil {
			pods = append(pods, p)
		}
	}
	c.mu.Unlock()
	c.update(pods...)
}

// edit changes the desired state.
func (c *chaos) edit(k manifests.Key, s step) {
	there := c.fake.State(k).Containers
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.desired[k]
	switch {
	case s.What == "remove":
		delete(c.desired, k)
		c.editedAt[k] = time.Now()
		return
	case p == nil:
		p = testPod(k.Name, testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptSlowStop))
		if k.Name == "y" {
			p.Object.Spec.InitContainers = []corev1.Container{testContainer("i", "after 3s"), hooked(testSidecar("s", runtimetest.ScriptSlowStop), "quick", "slow"), testSidecar("t", runtimetest.ScriptSlowStop)}
			setProbe(&p.Object.Spec.InitContainers[2], true)
			p.Object.Spec.Containers[1] = ruled(p.Object.Spec.Containers[1], "OnFailure", onCodes(restartAll, in, 1))
			p.Object.Spec.Containers[0] = hooked(p.Object.Spec.Containers[0], "slow", "slow")
		}
	}
	c.desired[k] = edited(p, func(o *corev1.Pod) { change(o, s) })
	if s.What == "probe" { // running containers have started with the definition they were created from
		for _, i := range there {
			c.answered[k.Name+"/"+i.Name] = time.Now()
		}
	}
	c.editedAt[k] = time.Now()
}

func change(o *corev1.Pod, s step) {
	cs := o.Spec.Containers
	one := &cs[s.N%len(cs)]
	switch s.What {
	case "env":
		one.Env = []corev1.EnvVar{{Name: "N", Value: fmt.Sprint(s.N)}}
	case "image":
		one.Image = fmt.Sprintf("busybox:%d", s.N)
	case "bad image":
		one.Image = badImage
	case "good image":
		repairManifest(o)
	case "stubborn":
		one.Command[2] = runtimetest.ScriptStubborn
	case "sandbox":
		o.Spec.Hostname = fmt.Sprintf("h%d", s.N)
	case "label":
		o.Labels = map[string]string{"n": fmt.Sprint(s.N)}
	case "policy":
		o.Spec.RestartPolicy = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}[s.N%3]
	case "grace":
		o.Spec.TerminationGracePeriodSeconds = new(int64(s.N))
	case "deadline":
		o.Spec.ActiveDeadlineSeconds = new(int64(10 * (1 + s.N)))
	case "probe":
		all := slices.Collect(manifests.LongRunningContainers(&o.Spec))
		setProbe(all[s.N/2%len(all)], s.N%2 == 0)
	case "init env", "init fails", "add init", "add sidecar", "remove init":
		changeInit(o, s)
	case "add container":
		if len(cs) < 3 && podhash.Container(o, fmt.Sprintf("c%d", s.N)) == "" {
			o.Spec.Containers = append(cs, testContainer(fmt.Sprintf("c%d", s.N), runtimetest.ScriptServe))
		}
	case "resize":
		one.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(10+s.N), resource.DecimalSI)}
		one.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: []corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer}[s.N%2]}}
	case "remove container":
		if len(cs) > 1 {
			o.Spec.Containers = cs[1:]
		}
	}
}

// repairManifest removes the faults of a manifest that keep a pod from converging.
func repairManifest(o *corev1.Pod) {
	for c := range manifests.AllContainers(&o.Spec) {
		c.Image = "busybox:1"
		if l := c.Lifecycle; l != nil && l.PostStart != nil {
			l.PostStart = execHook("quick")
		}
		switch c.Command[2] {
		case runtimetest.ScriptFail, runtimetest.ScriptFailSoon:
			c.Command[2] = runtimetest.ScriptSucceed
		}
		lasts := kindOf(&manifests.Pod{Object: o}, c.Name) != "init"
		if lasts && (c.Command[2] == runtimetest.ScriptSucceed || strings.HasPrefix(c.Command[2], "after ")) {
			c.Command[2] = runtimetest.ScriptServe
		}
	}
}

// setProbe gives a long-running container a startup probe or a liveness probe.
func setProbe(c *corev1.Container, startup bool) {
	if startup {
		c.StartupProbe = asking("startup-probe")
	} else {
		c.LivenessProbe = asking("liveness-probe")
	}
}

// changeInit changes the init containers.
func changeInit(o *corev1.Pod, s step) {
	is := o.Spec.InitContainers
	name := fmt.Sprintf("i%d", s.N)
	switch {
	case s.What == "add init" && podhash.Container(o, name) == "" && len(is) < 4:
		o.Spec.InitContainers = slices.Insert(is, s.N%(len(is)+1), testContainer(name, runtimetest.ScriptSucceed))
	case s.What == "add sidecar" && podhash.Container(o, name) == "" && len(is) < 4:
		o.Spec.InitContainers = slices.Insert(is, s.N%(len(is)+1), testSidecar(name, runtimetest.ScriptServe))
	case len(is) == 0:
	case s.What == "remove init":
		o.Spec.InitContainers = is[1:]
	case s.What == "init env":
		is[s.N%len(is)].Env = []corev1.EnvVar{{Name: "N", Value: fmt.Sprint(s.N)}}
	case s.What == "init fails" && !manifests.IsSidecar(&is[s.N%len(is)]):
		is[s.N%len(is)].Command[2] = runtimetest.ScriptFail
	}
}

// TestArmedKillIsDisarmedBeforeFinale has the agent die during the finale, after the last check that it is alive.
func TestArmedKillIsDisarmedBeforeFinale(t *testing.T) {
	for _, kill := range []int{1, 2, 3, 4, 100} {
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t, 0)
			c.start()
			pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
			c.desired[pod.Key()], c.editedAt[pod.Key()] = pod, time.Now()
			c.fake.KillAfter(kill)
			c.push()
			c.pass(time.Minute)
			c.finale()
			if len(c.wrong) > 0 {
				t.Errorf("killed after %d actions: %s", kill, strings.Join(c.wrong, "\n"))
			}
		})
	}
}

// finale ends all faults, lets time pass and checks the result.
func (c *chaos) finale() {
	c.calm()
	c.mu.Lock()
	for k, p := range c.desired {
		c.desired[k] = edited(p, func(o *corev1.Pod) {
			repairManifest(o)
			o.Spec.ActiveDeadlineSeconds = nil // otherwise a failed pod would be recreated
		})
		c.editedAt[k] = time.Now()
	}
	c.mu.Unlock()
	c.push()
	c.pass(30 * time.Minute)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{"x", "y"} {
		c.checkEnd(key(name), c.desired[key(name)])
	}
	if n := len(c.pool.Pods()); n != len(c.desired) {
		c.wrongf("the pool has %d pods, %d are desired", n, len(c.desired))
	}
}

func (c *chaos) checkEnd(k manifests.Key, want *manifests.Pod) {
	st := c.fake.State(k)
	if want == nil {
		if st.Sandbox != nil || len(st.Containers) > 0 {
			c.wrongf("%s: left over: %+v", k, st)
		}
		return
	}
	actions, next := plan.Plan(c.now(), want, plan.Observed{PodState: st, NewUID: "u"})
	if len(actions) > 0 || !next.IsZero() {
		c.wrongf("%s: not converged: %v, next %s", k, actions, next)
	}
	if st.Sandbox == nil || st.Sandbox.Hash != podhash.Sandbox(want.Object) {
		c.wrongf("%s: sandbox %+v", k, st.Sandbox)
		return
	}
	if podhash.Pod(st.Sandbox.Pod.Object) != podhash.Pod(want.Object) {
		c.wrongf("%s: another manifest is recorded", k)
	}
	c.checkComplete(k, want, st)
	if h := st.Sandbox.ResourcesHash; st.Sandbox.Alive && h != "" && h != podhash.PodResources(want.Object) { // a reboot removes cgroups
		c.wrongf("%s: the pod's cgroup is another one's", k)
	}
	for _, i := range st.Containers {
		if kindOf(want, i.Name) == "ephemeral" {
			if i.State != runner.ContainerRunning && (i.State != runner.ContainerExited || !i.Recorded) {
				c.wrongf("%s: %s is %s", k, i.Name, i.State)
			}
			continue
		}
		if i.State == runner.ContainerRunning && i.ResourcesHash != "" && i.ResourcesHash != podhash.Resources(want.Object, i.Name) {
			c.wrongf("%s: %s has other resources", k, i.Name)
		}
		if len(want.Object.Spec.InitContainers) > 0 && ended(want, st) && i.State == runner.ContainerExited && i.Recorded {
			continue // an init container has failed: unused instances stay on record
		}
		if len(want.Object.Spec.InitContainers) > 0 && i.State == runner.ContainerRunning && kindOf(want, i.Name) != "init" && nothingToDo(want, st) {
			c.wrongf("%s: %s runs although the pod has ended", k, i.Name)
		}
		if i.Hash != podhash.Container(want.Object, i.Name) {
			c.wrongf("%s: %s has another definition", k, i.Name)
		}
		completed := i.State == runner.ContainerExited && i.Recorded &&
			!plan.NextRestart(at(0), &want.Object.Spec, &i, plan.Options{}).Wanted
		completed = completed || i.State == runner.ContainerExited && i.Recorded && (kindOf(want, i.Name) == "sidecar" && ended(want, st) || kindOf(want, i.Name) == "init" && begun(want, st))
		if i.State != runner.ContainerRunning && !completed {
			c.wrongf("%s: %s is %s", k, i.Name, i.State)
		}
	}
}
