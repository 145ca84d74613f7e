package runner_test

import (
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
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// chaos plays a random story against a pool and checks on each action that it is allowed, and at the end that
// everything is as desired.
type chaos struct {
	*rig
	mu      sync.Mutex
	desired map[manifests.Key]*manifests.Pod
	// editedAt is when a pod was last edited. In that very instant (of the bubble's clock) the worker may be
	// past its last look at what is wanted.
	editedAt map[manifests.Key]time.Time
	// anyState says that the story begins with a state that no story leads to.
	anyState bool
	fault    runner.ActionKind
	reason   string
	offline  bool
	wrong    []string
}

// badImage cannot be pulled.
const badImage = "bad:1"

// newChaos has a pool that creates up to n containers of a pod at once. Then that takes time, and whatever happens next
// happens meanwhile.
func newChaos(t *testing.T, n int) *chaos {
	t.Helper()
	c := &chaos{rig: newRig(t), desired: map[manifests.Key]*manifests.Pod{}, editedAt: map[manifests.Key]time.Time{}}
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
	c.fake.OnExec = scripted
	c.fake.NetworkDelay = 30 * time.Millisecond
	c.fake.NetworkFail = c.network
	return c
}

func (c *chaos) wrongf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// judge is called before each action: it checks the action, then perhaps fails it.
func (c *chaos) judge(key manifests.Key, a runner.Action) error {
	st := c.fake.State(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	want := c.desired[key]
	c.check(key, a, st, want)
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

// network is the outcome of CNI ADD.
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
		if a.Kind == runner.StartContainer && want != nil && a.Manifest == runner.DesiredManifest && !c.editedAt[key].Equal(time.Now()) {
			c.checkOrder(key, a, st, want)
		}
	case runner.StopContainer, runner.KillContainer:
		c.checkStop(key, a, st, target, want)
	case runner.RemoveContainer:
		if target == nil {
			c.wrongf("%s: %s %s, which does not exist", key, a, a.ContainerID)
		} else if target.State == runner.ContainerRunning {
			c.wrongf("%s: %s, which runs", key, a)
		}
	case runner.RemoveSandbox:
		if st.Sandbox == nil || len(running) > 0 {
			c.wrongf("%s: %s of %v with %v running", key, a, st.Sandbox, running)
		}
	}
}

// checkOrder: init containers run one after another and only once in a sandbox, and nothing overtakes them.
func (c *chaos) checkOrder(key manifests.Key, a runner.Action, st runner.PodState, want *manifests.Pod) {
	begun, round := false, 0
	for _, i := range st.Containers {
		if i.Name == a.Container && i.State == runner.ContainerCreated {
			round = i.Round
		}
	}
	succeeded, runs := map[string]bool{}, map[string]bool{}
	for _, i := range st.Containers {
		if st.Sandbox == nil || i.SandboxID != st.Sandbox.ID || i.Round != round {
			continue
		}
		begun = begun || kindOf(want, i.Name) == "regular" && !i.StartedAt.IsZero()
		runs[i.Name] = runs[i.Name] || i.State == runner.ContainerRunning
		succeeded[i.Name] = succeeded[i.Name] || i.State == runner.ContainerExited && i.StopSentAt.IsZero() && i.StoppingAt.IsZero() && i.Exit.ExitCode == 0
	}
	if kindOf(want, a.Container) == "init" && (begun || succeeded[a.Container]) {
		c.wrongf("%s: %s again", key, a)
	}
	for before := range manifests.AllContainers(&want.Object.Spec) {
		kind := kindOf(want, before.Name)
		switch {
		case before.Name == a.Container || kind == "regular" || begun:
			return
		case kind == "init" && !succeeded[before.Name], kind == "sidecar" && !runs[before.Name]:
			c.wrongf("%s: %s overtakes %s", key, a, before.Name)
		}
	}
}

// kindOf says what a container is in a pod; what the pod does not have is regular.
func kindOf(p *manifests.Pod, name string) string {
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

// checkStopOrder: while a pod is removed, sidecars are told to stop after all others, the last one first, unless
// the grace period is over.
func (c *chaos) checkStopOrder(key manifests.Key, a runner.Action, st runner.PodState, target *runner.Container) {
	if a.Kind != runner.StopContainer || st.Sandbox == nil || kindOf(st.Sandbox.Pod, target.Name) != "sidecar" {
		return
	}
	grace := time.Duration(*st.Sandbox.Pod.Object.Spec.TerminationGracePeriodSeconds) * time.Second
	if grace == 0 || !target.StoppingAt.IsZero() && !time.Now().Before(target.StoppingAt.Add(grace)) {
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

// checkStop: what is as desired is never stopped, nor what cannot be replaced.
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
	if target.SandboxID != st.Sandbox.ID || c.twins(target, st) {
		return // left over from something that went wrong
	}
	same := st.Sandbox.Hash == manifests.SandboxHash(want.Object) &&
		(st.Sandbox.QOSClass == "" || st.Sandbox.QOSClass == manifests.QOSClass(want.Object))
	ends := kindOf(want, target.Name) == "sidecar" && ended(want, st) || kindOf(want, target.Name) == "init" && c.anyState
	if same && st.Sandbox.Alive && target.Hash == manifests.ContainerHash(want.Object, target.Name) && !ends && !resizeByRestart(want, target) {
		c.wrongf("%s: %s, which is as desired", key, a)
	}
	if manifests.ContainerHash(want.Object, target.Name) != "" && usesBadImage(want, target.Name) {
		c.wrongf("%s: %s for an image that cannot be had", key, a)
	}
	if !same && usesBadImage(want, "") {
		c.wrongf("%s: %s for a pod whose images cannot be had", key, a)
	}
}

// checkComplete: there is one instance of each container, except of those that are not needed any more.
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
	if len(count) > 0 {
		c.wrongf("%s: strangers %v", k, count)
	}
}

// begun says that a regular container has been started.
func begun(want *manifests.Pod, st runner.PodState) bool {
	return slices.ContainsFunc(st.Containers, func(i runner.Container) bool {
		return kindOf(want, i.Name) == "regular" && !i.StartedAt.IsZero()
	})
}

// ended says that no regular container of the pod will run again, or that an init container has failed for good.
func ended(want *manifests.Pod, st runner.PodState) bool {
	over := map[string]bool{}
	for _, i := range st.Containers {
		over[i.Name] = i.State == runner.ContainerExited && i.Hash == manifests.ContainerHash(want.Object, i.Name) &&
			!runner.NextRestart(time.Now(), &want.Object.Spec, &i, runner.Options{}).Wanted
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

// resizeByRestart says that the container wants to be restarted for a change of its resources.
func resizeByRestart(want *manifests.Pod, c *runner.Container) bool {
	for i := range want.Object.Spec.Containers {
		if s := &want.Object.Spec.Containers[i]; s.Name == c.Name {
			return c.ResourcesHash != manifests.ResourcesHash(want.Object, c.Name) && len(s.ResizePolicy) > 0 && s.ResizePolicy[0].RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// twins says that two instances of one container run.
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
				"agent dies", "agent restarts", "offline", "reboot", "blind", "see", "pass", "pass", "a while",
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
	case "exit":
		_ = c.fake.Exit(key(name), []string{"a", "b", "s", "i"}[s.N%4], s.N/4) // there may be none
	case "kill":
		for _, i := range c.fake.State(key(name)).Containers {
			_ = c.fake.KillProcess(i.PID)
		}
	default:
		c.edit(key(name), s)
		c.push()
	}
	c.settle()
	select {
	case <-c.fake.Died():
		c.restart()
		c.push()
	default:
	}
}

func (c *chaos) setFault(kind runner.ActionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.reason = kind, runner.ReasonCreateContainerError
	if kind == runner.EnsureImage {
		c.reason = runner.ReasonErrImagePull
	}
}

func (c *chaos) setOffline(offline bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offline = offline
}

// push tells the pool what is desired.
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

// edit changes what is desired.
func (c *chaos) edit(k manifests.Key, s step) {
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
			p.Object.Spec.InitContainers = []corev1.Container{testContainer("i", "after 3s"), hooked(testSidecar("s", runtimetest.ScriptSlowStop), "quick", "slow")}
			p.Object.Spec.Containers[1] = ruled(p.Object.Spec.Containers[1], "OnFailure", onCodes(restartAll, in, 1))
			p.Object.Spec.Containers[0] = hooked(p.Object.Spec.Containers[0], "slow", "slow")
		}
	}
	c.desired[k] = edited(p, func(o *corev1.Pod) { change(o, s) })
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
		for c := range manifests.AllContainers(&o.Spec) {
			c.Image = "busybox:1"
			if c.Command[2] == runtimetest.ScriptFail {
				c.Command[2] = runtimetest.ScriptSucceed
			}
		}
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
	case "init env", "init fails", "add init", "add sidecar", "remove init":
		changeInit(o, s)
	case "add container":
		if len(cs) < 3 && manifests.ContainerHash(o, fmt.Sprintf("c%d", s.N)) == "" {
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

// changeInit changes the init containers.
func changeInit(o *corev1.Pod, s step) {
	is := o.Spec.InitContainers
	name := fmt.Sprintf("i%d", s.N)
	switch {
	case s.What == "add init" && manifests.ContainerHash(o, name) == "" && len(is) < 4:
		o.Spec.InitContainers = slices.Insert(is, s.N%(len(is)+1), testContainer(name, runtimetest.ScriptSucceed))
	case s.What == "add sidecar" && manifests.ContainerHash(o, name) == "" && len(is) < 4:
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

// finale takes all obstacles away, lets time pass and checks the end.
func (c *chaos) finale() {
	c.setFault("")
	c.setOffline(false)
	c.fake.Blind(nil)
	c.fake.KillAfter(0)
	c.mu.Lock()
	for k, p := range c.desired {
		c.desired[k] = edited(p, func(o *corev1.Pod) { change(o, step{What: "good image"}) })
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
	actions, next := runner.Plan(time.Now(), want, runner.Observed{PodState: st, NewUID: "u"})
	if len(actions) > 0 || !next.IsZero() {
		c.wrongf("%s: not converged: %v, next %s", k, actions, next)
	}
	if st.Sandbox == nil || st.Sandbox.Hash != manifests.SandboxHash(want.Object) {
		c.wrongf("%s: sandbox %+v", k, st.Sandbox)
		return
	}
	if manifests.PodHash(st.Sandbox.Pod.Object) != manifests.PodHash(want.Object) {
		c.wrongf("%s: another manifest is recorded", k)
	}
	c.checkComplete(k, want, st)
	if h := st.Sandbox.ResourcesHash; h != "" && h != manifests.PodResourcesHash(want.Object) {
		c.wrongf("%s: the pod's cgroup is another one's", k)
	}
	for _, i := range st.Containers {
		if i.State == runner.ContainerRunning && i.ResourcesHash != "" && i.ResourcesHash != manifests.ResourcesHash(want.Object, i.Name) {
			c.wrongf("%s: %s has other resources", k, i.Name)
		}
		if len(want.Object.Spec.InitContainers) > 0 && ended(want, st) && i.State == runner.ContainerExited && i.Recorded {
			continue // an init container has failed: what was of no use stays on record
		}
		if i.Hash != manifests.ContainerHash(want.Object, i.Name) {
			c.wrongf("%s: %s has another definition", k, i.Name)
		}
		completed := i.State == runner.ContainerExited && i.Recorded &&
			!runner.NextRestart(time.Now(), &want.Object.Spec, &i, runner.Options{}).Wanted
		completed = completed || i.State == runner.ContainerExited && i.Recorded && (kindOf(want, i.Name) == "sidecar" && ended(want, st) || kindOf(want, i.Name) == "init" && begun(want, st))
		if i.State != runner.ContainerRunning && !completed {
			c.wrongf("%s: %s is %s", k, i.Name, i.State)
		}
	}
}
