package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
)

// Harness is what Contract needs to know about an implementation.
type Harness struct {
	// Runtime is ready for use.
	Runtime runner.Runtime
	// Restart ends the agent without touching what runs, calls meanwhile if it is not nil, and returns the
	// next agent's runtime on the same state.
	Restart func(t *testing.T, meanwhile func()) runner.Runtime
	// Image is a present image with `sh` and `sleep` in its PATH, busybox for one.
	Image string
	// MissingImage is an image that is not present.
	MissingImage string
	// KillProcess sends SIGKILL to a process of a container, from outside the runtime.
	KillProcess func(pid uint32) error
	// ProcessAlive reports whether a process exists.
	ProcessAlive func(pid uint32) bool
	// HandlesTerm reports whether a process has set its SIGTERM handler; before that, the first process
	// of a container does not notice it. nil: look in /proc.
	HandlesTerm func(pid uint32) bool
	// OOM is set if memory limits are enforced here and OOM kills are reported.
	OOM bool
	// PodNetwork is set if pods without hostNetwork can be created here and get addresses.
	PodNetwork bool
}

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// Contract checks what the runner relies on. newHarness is called once for each test.
func Contract(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			if c.needs != nil && !c.needs(h) {
				t.Skip("this harness says that it cannot do that")
			}
			c.test(t, &suite{t: t, h: h, rt: h.Runtime})
		})
	}
}

type contractTest struct {
	name  string
	needs func(Harness) bool
	test  func(t *testing.T, s *suite)
}

// contract is all of it, in the order of a container's life.
//
//nolint:gochecknoglobals // a table of tests, never changed
var contract = []contractTest{
	{name: "a sandbox is made once and is seen as it was made", test: testSandbox},
	{name: "a pod that is made anew keeps its place until it is there", test: testPlace},
	{name: "a pod network is set up in the background", needs: Harness.podNetwork, test: testPodNetwork},
	{name: "a container is created, started and seen with all it was given", test: testLife},
	{name: "exit codes and reasons are those of the process", test: testExitCodes},
	{name: "a process killed from outside has 137 and Error", test: testKilledFromOutside},
	{name: "a process killed for lack of memory is OOMKilled", needs: func(h Harness) bool { return h.OOM }, test: testOOM},
	{name: "the stop signal is sent once and its time kept", test: testStop},
	{name: "the stop signal can be another than the image's", test: testStopSignal},
	{name: "the beginning of the end is kept, and nobody is signaled", test: testMarkStopping},
	{name: "a postStart hook is due until it is marked", test: testPostStart},
	{name: "an init container is made as any other", test: testInitContainer},
	{name: "a container is made of the digest that is asked for", test: testDigest},
	{name: "a process that ignores the stop signal can be killed", test: testStubborn},
	{name: "finishing keeps the exit", test: testFinish},
	{name: "a new instance waits beside the old one", test: testTwoInstances},
	{name: "an instance that never ran can be removed", test: testRemoveCreated},
	{name: "removing and giving up can be repeated", test: testRemoveTwice},
	{name: "actions on what does not exist are done already", test: testUnknown},
	{name: "a command that does not exist fails and leaves no instance", test: testMissingCommand},
	{name: "or an instance that has ended with StartError", test: testRefusedStart},
	{name: "it is told whether an image is here", test: testImageProgress},
	{name: "a missing image with policy Never is refused", test: testMissingImage},
	{name: "checking touches nothing", test: testCheck},
	{name: "a recorded manifest is kept", test: testRecord},
	{name: "ephemeral containers are kept, and made as any other", test: testEphemeral},
	{name: "a pod that has failed stays so, and its age is known", test: testFailPod},
	{name: "everything survives a restart of the agent", test: testRestart},
	{name: "an exit while the agent is away is seen with its code", test: testExitWhileAway},
	{name: "an instance that waits can be started after a restart", test: testStartAfterRestart},
	{name: "a sandbox is replaced by another, also with the same uid", test: testReplaceSandbox},
	{name: "the record of a completed container outlives its sandbox", test: testCompletedStays},
	{name: "all pods are listed", test: testList},
	{name: "exits are announced", test: testWatch},
	{name: "what probes say is kept on record", test: testHealth},
	{name: "a command in a container gives its exit code and output", test: testExec},
	{name: "output of a command beyond the limit is dropped", test: testExecLimit},
	{name: "a command that takes too long is killed", test: testExecTimeout},
	{name: "a command ends with its context", test: testExecCancel},
	{name: "a command that leaves a process behind is not waited for", test: testExecLeaves},
	{name: "a command that cannot be run is an error", test: testExecErrors},
	{name: "commands run beside each other and beside everything else", test: testExecParallel},
	{name: "commands run after a restart of the agent", test: testExecAfterRestart},
	{name: "containers of a pod can be created at the same time", test: testCreateTogether},
	{name: "different pods can be worked on at the same time", test: testParallel},
}

func (h Harness) podNetwork() bool { return h.PodNetwork }

// suite runs the actions of one test.
type suite struct {
	t  *testing.T
	h  Harness
	rt runner.Runtime
}

// pod is a pod of one test.
type pod struct {
	*suite
	*manifests.Pod
}

//nolint:gochecknoglobals // names must differ between the tests of one process
var podNumber atomic.Int64

// podOptions describe a pod of a test.
type podOptions struct {
	policy     string
	podNetwork bool
	memory     string
	image      string
	pull       string
	command    []string // instead of sh -c script
}

// newPod loads a pod with one container for each script: c0, c1, ... It is removed at the end of the test.
func (s *suite) newPod(o podOptions, scripts ...string) *pod {
	s.t.Helper()
	var b bytes.Buffer
	name := fmt.Sprintf("contract-%d-%d", time.Now().UnixNano()%1e9, podNumber.Add(1))
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  labels: {app: contract}\nspec:\n", name)
	fmt.Fprintf(&b, "  hostNetwork: %t\n  terminationGracePeriodSeconds: 5\n", !o.podNetwork)
	if o.policy != "" {
		fmt.Fprintf(&b, "  restartPolicy: %s\n", o.policy)
	}
	b.WriteString("  containers:\n")
	for i, script := range scripts {
		command := o.command
		if command == nil {
			command = []string{"sh", "-c", script}
		}
		fmt.Fprintf(&b, "  - name: c%d\n    image: %q\n    imagePullPolicy: %q\n    command:\n", i, or(o.image, s.h.Image), or(o.pull, "IfNotPresent"))
		for _, word := range command {
			fmt.Fprintf(&b, "    - %q\n", word)
		}
		if o.memory != "" {
			fmt.Fprintf(&b, "    resources: {limits: {memory: %q}}\n", o.memory)
		}
	}
	pods, err := decode.Pods("/contract/"+name+".yaml", b.Bytes(), decode.Options{Source: "file"})
	if err != nil || len(pods) != 1 {
		s.t.Fatalf("load the test's pod: %d pods, %v\n%s", len(pods), err, b.String())
	}
	p := &pod{suite: s, Pod: pods[0]}
	s.t.Cleanup(p.cleanUp)
	return p
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// cleanUp removes whatever is left of the pod.
func (p *pod) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := p.rt.Observe(ctx, p.Key())
	if err != nil {
		p.t.Errorf("clean up: %v", err)
		return
	}
	for _, c := range st.Containers {
		a := runner.Action{Kind: runner.RemoveContainer, Container: c.Name, ContainerID: c.ID}
		if err := p.rt.Apply(ctx, p.Key(), nil, a); err != nil {
			p.t.Errorf("clean up: %v", err)
		}
	}
	if st.Sandbox != nil {
		if err := p.rt.Apply(ctx, p.Key(), nil, runner.Action{Kind: runner.RemoveSandbox}); err != nil {
			p.t.Errorf("clean up: %v", err)
		}
	}
}

// try applies an action.
func (p *pod) try(a runner.Action) error {
	return p.rt.Apply(p.t.Context(), p.Key(), p.Pod, a)
}

// apply applies an action that must work.
func (p *pod) apply(a runner.Action) {
	p.t.Helper()
	if err := p.try(a); err != nil {
		p.t.Fatalf("%s: %v", a, err)
	}
}

func (p *pod) observe() runner.PodState {
	p.t.Helper()
	st, err := p.rt.Observe(p.t.Context(), p.Key())
	if err != nil {
		p.t.Fatalf("observe: %v", err)
	}
	return st
}

// sandbox makes the sandbox and the images present.
func (p *pod) sandbox() *runner.Sandbox {
	p.t.Helper()
	p.apply(runner.Action{Kind: runner.CreateSandbox, UID: "uid-" + p.Object.Name})
	for c := range manifests.AllContainers(&p.Object.Spec) {
		p.apply(runner.Action{Kind: runner.EnsureImage, Container: c.Name})
	}
	return p.observe().Sandbox
}

// create makes a new instance and returns it.
func (p *pod) create(a runner.Action) runner.Container {
	p.t.Helper()
	a.Kind = runner.CreateContainer
	before := len(p.observe().Containers)
	p.apply(a)
	st := p.observe()
	if len(st.Containers) != before+1 {
		p.t.Fatalf("%d containers after creating one more than %d", len(st.Containers), before)
	}
	c := st.Containers[before]
	if c.Name != a.Container || c.State != runner.ContainerCreated {
		p.t.Fatalf("the newest container is %s %s, want %s Created", c.Name, c.State, a.Container)
	}
	return c
}

// start starts an instance.
func (p *pod) start(c runner.Container) {
	p.t.Helper()
	p.apply(runner.Action{Kind: runner.StartContainer, Container: c.Name, ContainerID: c.ID})
}

// run creates and starts a container.
func (p *pod) run(name string) runner.Container {
	p.t.Helper()
	c := p.create(runner.Action{Container: name})
	p.start(c)
	return p.instance(c.ID)
}

// serve creates and starts a container and waits until it is ready for the stop signal.
func (p *pod) serve(name string) runner.Container {
	p.t.Helper()
	c := p.run(name)
	handles := p.h.HandlesTerm
	if handles == nil {
		handles = handlesTerm
	}
	p.eventually("the process handles SIGTERM", func() bool { return handles(c.PID) })
	return c
}

// handlesTerm looks whether a process is the script, not runc on its way to it, and catches or ignores SIGTERM.
func handlesTerm(pid uint32) bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(command, []byte("trap ")) {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "SigCgt" && name != "SigIgn" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && mask&(1<<(syscall.SIGTERM-1)) != 0 {
			return true
		}
	}
	return false
}

// find returns the instance with the given id.
func (p *pod) find(id string) (runner.Container, bool) {
	p.t.Helper()
	for _, c := range p.observe().Containers {
		if c.ID == id {
			return c, true
		}
	}
	return runner.Container{}, false
}

func (p *pod) instance(id string) runner.Container {
	p.t.Helper()
	c, ok := p.find(id)
	if !ok {
		p.t.Fatalf("container %s is gone", id)
	}
	return c
}

// exited waits until an instance has exited.
func (p *pod) exited(id string) runner.Container {
	p.t.Helper()
	var c runner.Container
	p.eventually("the container has exited", func() bool {
		c = p.instance(id)
		return c.State == runner.ContainerExited
	})
	if c.Exit == nil {
		p.t.Fatalf("container %s has exited, but nothing says how", c.Name)
	}
	if c.Exit.ContainerID != id {
		p.t.Errorf("the exit is that of container %q, want %q", c.Exit.ContainerID, id)
	}
	return c
}

// eventually waits for a condition that must come true.
func (s *suite) eventually(what string, is func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			s.t.Fatalf("after %s it is still not so that %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// restart exchanges the agent.
func (s *suite) restart(meanwhile func()) {
	s.t.Helper()
	s.rt = s.h.Restart(s.t, meanwhile)
}

// onInstance is an action on an instance.
func onInstance(kind runner.ActionKind, c runner.Container) runner.Action {
	return runner.Action{Kind: kind, Container: c.Name, ContainerID: c.ID, Exit: c.Exit}
}

// wantTime checks that t lies between two times, give or take the clock of a shim.
func wantTime(t *testing.T, what string, is, from, to time.Time) {
	t.Helper()
	const slack = 2 * time.Second
	if is.Before(from.Add(-slack)) || is.After(to.Add(slack)) {
		t.Errorf("%s is %s, want it between %s and %s", what, is, from, to)
	}
}

func names(all []runner.Container) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%s:%s ", c.Name, c.State)
	}
	return strings.TrimSpace(b.String())
}
