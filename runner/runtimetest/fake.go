// Package runtimetest has a runner.Runtime in memory that can fail on command, and the contract that it and the
// one on containerd both pass.
//
// It must not know how the runner plans: tests of the runner and of runner/ctrd both build on it. A Fake starts
// no goroutines; timers of its processes end with them, so it works under testing/synctest.
package runtimetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// ErrDead is what a Fake returns whose agent has been killed.
var ErrDead = errors.New("the agent is dead")

// ErrBlind is what Observe and List return while the machine cannot be seen.
var ErrBlind = errors.New("containerd does not answer")

// Fake is an agent's view of an in-memory machine. Restart makes the next agent on the same machine.
type Fake struct {
	*Machine
	// Guarded by Machine.mu.
	dead bool
	died chan struct{}
	// adds are the network set-ups that this agent has begun, by sandbox.
	adds map[string]add
}

// Machine is what outlives an agent: records, processes, images. Its exported fields are set before it is used.
type Machine struct {
	// Delay is how long an action takes; nil: no time.
	Delay func(runner.Action) time.Duration
	// Fail is asked before each action is applied; an error is returned instead of applying it. nil: never.
	Fail func(manifests.Key, runner.Action) error
	// NetworkDelay is how long CNI ADD takes.
	NetworkDelay time.Duration
	// NetworkFail is asked when CNI ADD ends. nil: it succeeds.
	NetworkFail func(manifests.Key) error
	// Forgetful: it keeps no journal, which takes memory that an agent does not need.
	Forgetful bool
	// OnExec answers Exec in a container that runs. nil: the scripts of this package.
	OnExec func(ctx context.Context, key manifests.Key, container string, r runner.ExecRequest) (runner.ExecResult, error)

	mu sync.Mutex
	// All below is guarded by mu.
	pods     map[manifests.Key]*fakePod
	places   map[manifests.Key]*manifests.Pod // of those that are made anew
	images   map[string]bool                  // by reference; a missing entry: in the registry
	journal  []Entry
	watchers map[*watcher]struct{}
	blind    error
	nextID   int
	nextPID  uint32
	applied  int // how many actions so far
	killAt   int // the agent dies when that many have been applied; 0: never
	agent    *Fake
	busy     map[manifests.Key][]runner.Action
	overlaps []string
	executed []Executed
	skew     time.Duration // of the machine's clock
	stopped  time.Time     // when the machine's clock was stopped; zero: it goes
}

// Entry is one applied action.
type Entry struct {
	Key    manifests.Key
	Action runner.Action
	At     time.Time
}

// String is the entry as tests compare it.
func (e Entry) String() string { return e.Key.String() + " " + e.Action.String() }

// add is a network set-up: when it ends, and how.
type add struct {
	end  time.Time
	over bool
	err  error
}

type watcher struct {
	agent  *Fake
	notify func(manifests.Key)
}

type fakePod struct {
	sandbox *runner.Sandbox
	// born is when the sandbox was made, by a clock that cannot be set.
	born       time.Time
	containers []*fakeContainer
}

type fakeContainer struct {
	runner.Container
	process process
	timer   *time.Timer
	// gone is closed when the process ends; nil until a caller waits for it.
	gone chan struct{}
}

// NewFake returns the first agent on an empty machine, where every image can be pulled.
func NewFake() *Fake {
	m := &Machine{
		pods:     map[manifests.Key]*fakePod{},
		places:   map[manifests.Key]*manifests.Pod{},
		images:   map[string]bool{},
		watchers: map[*watcher]struct{}{},
		busy:     map[manifests.Key][]runner.Action{},
		nextPID:  100,
	}
	return m.agentOf()
}

func (m *Machine) agentOf() *Fake {
	f := &Fake{Machine: m, died: make(chan struct{}), adds: map[string]add{}}
	m.agent = f
	return f
}

// Restart kills the agent, if it still lives, and returns the next one.
func (f *Fake) Restart() *Fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agent.dieLocked()
	return f.agentOf()
}

// Kill ends the agent as kill -9 does: every call of it from now on returns ErrDead, and what it did not finish
// stays as it is.
func (f *Fake) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dieLocked()
}

func (f *Fake) dieLocked() {
	if !f.dead {
		f.dead = true
		close(f.died)
	}
}

// Died is closed when the agent is dead.
func (f *Fake) Died() <-chan struct{} { return f.died }

// KillAfter lets the agent die as soon as n more actions have been applied. A test calls Disarm before it checks what has become of its pods.
func (m *Machine) KillAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killAt = m.applied + n
}

// Disarm cancels KillAfter and reports whether the agent is dead. Both are one step: a kill cannot happen between the look and the cancellation, so an agent
// that is alive on return stays alive.
func (m *Machine) Disarm() (dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killAt = 0
	return m.agent.dead
}

// LosePins takes the namespaces of all sandboxes away from the agent while their processes go on. The agent notices when it looks the next time.
func (m *Machine) LosePins() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if p.sandbox != nil {
			p.sandbox.Alive = false
		}
	}
}

// Reboot ends all processes and takes all namespaces away; instances that never ran are gone with their tasks. The agent dies with the machine; Restart brings one back.
func (m *Machine) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agent.dieLocked()
	for _, p := range m.pods {
		if p.sandbox != nil {
			p.sandbox.Alive = false
		}
		p.containers = slices.DeleteFunc(p.containers, func(c *fakeContainer) bool { return c.State == runner.ContainerCreated })
		for _, c := range p.containers {
			c.EarlierBoot = true
			if c.State == runner.ContainerExited {
				continue
			}
			c.stopTimer()
			c.leave()
			c.State, c.PID = runner.ContainerExited, 0
			c.Exit = &runner.Termination{
				ContainerID: c.ID, ExitCode: 255, Reason: runner.ReasonUnknown, StartedAt: c.StartedAt,
			}
		}
	}
}

// Now is the machine's clock.
func (m *Machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nowLocked()
}

func (m *Machine) nowLocked() time.Time {
	if !m.stopped.IsZero() {
		return m.stopped.Add(m.skew)
	}
	return time.Now().Add(m.skew)
}

// StopClock has the machine's clock stand still. What takes time takes no longer for it.
func (m *Machine) StopClock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = time.Now()
}

// SetClock sets the machine's clock forward, or back. What takes time takes no longer for it.
func (m *Machine) SetClock(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew += by
}

// Blind makes List and Observe fail with err, until it is called with nil.
func (m *Machine) Blind(err error) {
	m.mu.Lock()
	m.blind = err
	m.mu.Unlock()
	if err == nil {
		m.notify(manifests.Key{})
	}
}

// SetImage sets whether an image is present; one that is not can be pulled unless Fail prevents it.
func (m *Machine) SetImage(ref string, present bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images[ref] = present
}

// Journal returns the actions applied so far.
func (m *Machine) Journal() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.journal)
}

// ClearJournal forgets the actions applied so far.
func (m *Machine) ClearJournal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journal = nil
}

// Overlaps returns the violations of "never two at once for the same pod" that were seen.
func (m *Machine) Overlaps() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.overlaps)
}

// State returns the current state of a pod.
func (m *Machine) State(key manifests.Key) runner.PodState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stateLocked(key)
}

// Put makes a pod have the given state, with processes that run until they are stopped; those of init containers
// do what their script says.
func (m *Machine) Put(key manifests.Key, s runner.PodState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &fakePod{}
	if s.Sandbox != nil {
		sb := *s.Sandbox
		p.sandbox, p.born = &sb, sb.CreatedAt
	}
	for _, c := range s.Containers {
		m.images[c.Image] = true
		f := &fakeContainer{Container: c, process: process{runs: true}}
		if s.Sandbox != nil && isInit(s.Sandbox.Pod, c.Name) {
			f.process = newProcess(spec(s.Sandbox.Pod, c.Name))
		}
		p.containers = append(p.containers, f)
		if f.State == runner.ContainerRunning && !f.process.runs {
			m.endLaterLocked(key, f)
		}
	}
	m.pods[key] = p
}

func isInit(pod *manifests.Pod, name string) bool {
	return slices.ContainsFunc(pod.Object.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && !manifests.IsSidecar(&c)
	})
}

func (m *Machine) stateLocked(key manifests.Key) runner.PodState {
	s := runner.PodState{Place: m.places[key]}
	p, ok := m.pods[key]
	if !ok {
		return s
	}
	if p.sandbox != nil {
		sb := *p.sandbox
		sb.IPs = slices.Clone(sb.IPs)
		if sb.Pod != nil && sb.Pod.Object.Spec.ActiveDeadlineSeconds != nil {
			sb.Age = time.Since(p.born)
		}
		s.Sandbox = &sb
	}
	for _, c := range p.containers {
		s.Containers = append(s.Containers, c.Container)
	}
	return s
}

// List implements runner.Runtime.
func (f *Fake) List(context.Context) ([]manifests.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return nil, err
	}
	var keys []manifests.Key
	for key, p := range f.pods {
		if p.sandbox != nil {
			keys = append(keys, key)
		}
	}
	for key := range f.places {
		keys = append(keys, key)
	}
	return keys, nil
}

func (f *Fake) usableLocked() error {
	if f.dead {
		return ErrDead
	}
	return f.blind
}

// Observe implements runner.Runtime.
func (f *Fake) Observe(_ context.Context, key manifests.Key) (runner.PodState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return runner.PodState{}, err
	}
	if p, ok := f.pods[key]; ok {
		f.networkLocked(key, p)
	}
	return f.stateLocked(key), nil
}

// Watch implements runner.Runtime.
func (f *Fake) Watch(ctx context.Context, notify func(manifests.Key)) error {
	w := &watcher{agent: f, notify: notify}
	f.mu.Lock()
	f.watchers[w] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, w)
		f.mu.Unlock()
	}()
	notify(manifests.Key{})
	select {
	case <-ctx.Done():
		return nil
	case <-f.died:
		return ErrDead
	}
}

// Changed announces that any pod may have changed, for example after an image was pulled.
func (m *Machine) Changed() { m.notify(manifests.Key{}) }

// notify tells the living agent's watchers. It must be called without the lock.
func (m *Machine) notify(key manifests.Key) {
	m.mu.Lock()
	var all []func(manifests.Key)
	for w := range m.watchers {
		if !w.agent.dead {
			all = append(all, w.notify)
		}
	}
	m.mu.Unlock()
	for _, n := range all {
		n(key)
	}
}
