package runner_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	fault    runner.ActionKind
	reason   string
	offline  bool
	wrong    []string
}

// badImage cannot be pulled.
const badImage = "bad:1"

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{rig: newRig(t), desired: map[manifests.Key]*manifests.Pod{}, editedAt: map[manifests.Key]time.Time{}}
	c.fake.Fail = c.judge
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
	for _, c := range p.Object.Spec.Containers {
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
	case runner.CreateContainer, runner.StartContainer:
		if st.Sandbox == nil || !st.Sandbox.Alive {
			c.wrongf("%s: %s without a sandbox that is alive", key, a)
		}
		if a.Kind == runner.StartContainer && running[a.Container] > 0 {
			c.wrongf("%s: %s while the old one runs", key, a)
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

// checkStop: what is as desired is never stopped, nor what cannot be replaced.
func (c *chaos) checkStop(key manifests.Key, a runner.Action, st runner.PodState, target *runner.Container, want *manifests.Pod) {
	if target == nil {
		c.wrongf("%s: %s %s, which does not exist", key, a, a.ContainerID)
		return
	}
	if want == nil || st.Sandbox == nil || !target.StopSentAt.IsZero() || c.editedAt[key].Equal(time.Now()) {
		return
	}
	if target.SandboxID != st.Sandbox.ID || c.twins(target, st) {
		return // left over from something that went wrong
	}
	same := st.Sandbox.Hash == manifests.SandboxHash(want.Object)
	if same && st.Sandbox.Alive && target.Hash == manifests.ContainerHash(want.Object, target.Name) {
		c.wrongf("%s: %s, which is as desired", key, a)
	}
	if manifests.ContainerHash(want.Object, target.Name) != "" && usesBadImage(want, target.Name) {
		c.wrongf("%s: %s for an image that cannot be had", key, a)
	}
	if !same && usesBadImage(want, "") {
		c.wrongf("%s: %s for a pod whose images cannot be had", key, a)
	}
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
				"add container", "remove container", "exit", "exit", "kill", "stubborn", "fault", "fault", "no fault",
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
		story := steps().Draw(rt, "story")
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t)
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
			runner.EnsureImage, runner.CreateContainer, runner.StartContainer, runner.CreateSandbox,
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
		_ = c.fake.Exit(key(name), []string{"a", "b"}[s.N%2], s.N/2) // there may be none
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
		for i := range cs {
			cs[i].Image = "busybox:1"
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
	case "add container":
		if len(cs) < 3 && manifests.ContainerHash(o, fmt.Sprintf("c%d", s.N)) == "" {
			o.Spec.Containers = append(cs, testContainer(fmt.Sprintf("c%d", s.N), runtimetest.ScriptServe))
		}
	case "remove container":
		if len(cs) > 1 {
			o.Spec.Containers = cs[1:]
		}
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
	if len(st.Containers) != len(want.Object.Spec.Containers) {
		c.wrongf("%s: %d instances of %d containers", k, len(st.Containers), len(want.Object.Spec.Containers))
	}
	for _, i := range st.Containers {
		if i.Hash != manifests.ContainerHash(want.Object, i.Name) {
			c.wrongf("%s: %s has another definition", k, i.Name)
		}
		completed := i.State == runner.ContainerExited && i.Recorded &&
			!runner.NextRestart(time.Now(), want.Object.Spec.RestartPolicy, &i, runner.Options{}).Wanted
		if i.State != runner.ContainerRunning && !completed {
			c.wrongf("%s: %s is %s", k, i.Name, i.State)
		}
	}
}
