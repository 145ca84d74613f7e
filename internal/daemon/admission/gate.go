// Package admission decides which pods may run on this machine now: drain, cordon, hand-over and the shutdown of the machine.
//
// It must not stop containers itself: the pool asks it for a rule for each pod. Run follows one drain at a time.
package admission

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/internal/config"
	"monopod/internal/daemon/board"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node/drain"
	"monopod/node/localapi"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
)

// Gate decides whether pods may run: not while somebody has drained the machine, nor while it goes down. It is
// node.Scheduler.
//
// A drain goes by priority: the pods of the lowest one are stopped, then, when all of them have, those of the next.
type Gate struct {
	Store *drain.Store
	log   *slog.Logger
	// pods are those of the pool, or why they are not known; changed tells that they have; tell records what is done.
	pods    func() ([]podstatus.Status, error)
	changed func() (<-chan struct{}, func())
	Notify  func()
	Tell    func(eventType, reason, message string)

	// Undone is told that a shutdown was not to be.
	Undone func()
	// kick wakes run: there is something to stop step by step.
	kick chan struct{}
	// beat gives run a way to say that it goes round.
	beat chan struct{}

	mu sync.Mutex // guards what follows
	// pool is nil while no runtime is open.
	pool  *pool.Pool
	state drain.State
	// level is the priority up to which pods are stopped now; nil: whatever theirs is.
	level *int32
	// cleanup gives back what the runtime of pool has besides pods.
	cleanup func(context.Context) error
	// leaving says that another agent takes the machine over.
	leaving bool
	// Ending, unless nil, is how the pods are stopped because the machine goes down.
	ending *Ending
}

func New(store *drain.Store, b *board.Board, log *slog.Logger) *Gate {
	return &Gate{Store: store, log: log, pods: b.Statuses, changed: b.Subscribe, Notify: b.Notify, Tell: func(string, string, string) {}, Undone: func() {}, kick: make(chan struct{}, 1), beat: make(chan struct{})}
}

// Load reads what was said before the agent started: all of it counts at once.
func (g *Gate) Load() {
	st, err := g.Store.Load()
	if err != nil {
		g.log.Error("pods may run", "err", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state = st; st.Cordoned {
		g.log.Warn("this machine is drained; `monopod undrain` lets pods run again", "since", st.Since, "cordonedOnly", st.Drain == nil)
	}
}

// Attach makes a pool obey.
func (g *Gate) Attach(pool *pool.Pool, cleanup func(context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pool, g.cleanup = pool, cleanup
	g.applyLocked()
}

func (g *Gate) applyLocked() {
	if g.pool == nil {
		return
	}
	switch {
	case g.leaving:
		g.pool.Gate(func(*manifests.Pod) runner.Rule { return handedOver() })
		return
	case !g.state.Cordoned && g.ending == nil:
		g.pool.Gate(nil)
		return
	}
	state, level, ending := g.state, g.level, g.ending
	g.pool.Gate(func(p *manifests.Pod) runner.Rule { return rule(p, state, level, ending) })
}

// rule is what a pod may.
func rule(p *manifests.Pod, state drain.State, level *int32, end *Ending) runner.Rule {
	priority := manifests.PriorityOf(p).Value
	if end != nil {
		return end.rule(priority)
	}
	r := runner.Rule{Wait: &runner.Held{Reason: runner.ReasonCordoned, Message: "this machine is cordoned; `monopod uncordon` lets the pod start", Cause: cause.Cause{Kind: cause.Drained, Fault: cause.Cordoned}}}
	if state.Stops(p.Key(), priority) {
		h := drainHalt()
		r.Wait = &runner.Held{Reason: h.Reason, Message: h.Message, Cause: h.Cause}
		if level == nil || priority <= *level {
			r.Halt = h
		}
	}
	return r
}

func drainHalt() *runner.Halt {
	return &runner.Halt{Reason: runner.ReasonDrained, Message: "this machine is drained; the pod goes on where it was after `monopod undrain`", Cause: cause.Cause{Kind: cause.Drained}}
}

// priorityOf is the priority in the status of a pod, which has that of its class in it.
func priorityOf(spec *corev1.PodSpec) int32 {
	if spec.Priority != nil {
		return *spec.Priority
	}
	return 0
}

// Schedule implements node.Scheduler.
func (g *Gate) Schedule() localapi.Schedule {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.scheduleLocked()
}

func (g *Gate) scheduleLocked() localapi.Schedule {
	st := g.state
	s := localapi.Schedule{Cordoned: st.Cordoned, Drained: st.Drain != nil, Since: st.Since, UntilBoot: st.Boot != "", ShuttingDown: g.ending != nil}
	if st.Drain != nil {
		s.PriorityBelow, s.Ignore = st.Drain.PriorityBelow, st.Drain.Ignore
	}
	left, err := g.leftLocked()
	if err != nil {
		s.Unseen = printer.OneLine(err.Error())
	}
	for _, p := range left {
		s.Stopping = append(s.Stopping, p.Key().String())
	}
	return s
}

// leftLocked are the pods that are to stop and have not.
func (g *Gate) leftLocked() ([]podstatus.Status, error) {
	if g.state.Drain == nil && g.ending == nil && !g.leaving {
		return nil, nil
	}
	all, err := g.pods()
	return slices.DeleteFunc(all, func(s podstatus.Status) bool {
		return s.Stopped() || g.ending == nil && !g.leaving && !g.state.Stops(s.Key(), priorityOf(&s.Pod.Spec))
	}), err
}

// Cordon implements node.Scheduler.
func (g *Gate) Cordon(r localapi.DrainRequest) (localapi.Schedule, error) {
	return g.say(func(st *drain.State) { st.Cordoned, st.Boot = true, g.boot(r) }, "NodeNotSchedulable", "no pods are started that are not there")
}

// Drain implements node.Scheduler.
func (g *Gate) Drain(r localapi.DrainRequest) (localapi.Schedule, error) {
	d := &drain.Drain{PriorityBelow: r.PriorityBelow, Ignore: r.Ignore}
	if err := d.Check(); err != nil {
		return localapi.Schedule{}, badRequest(err)
	}
	return g.say(func(st *drain.State) { st.Cordoned, st.Drain, st.Boot = true, d, g.boot(r) }, "Draining", "pods are stopped, those of the lowest priority first")
}

// Undrain implements node.Scheduler.
func (g *Gate) Undrain() (localapi.Schedule, error) {
	return g.say(func(st *drain.State) { *st = drain.State{} }, "NodeSchedulable", "pods may run again")
}

func badRequest(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()}}
}

// boot is the boot that a request counts for.
func (g *Gate) boot(r localapi.DrainRequest) string {
	if r.UntilBoot {
		return g.Store.Boot()
	}
	return ""
}

// say stores a change, then has it carried out.
func (g *Gate) say(change func(*drain.State), reason, message string) (localapi.Schedule, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.state
	st.Since = time.Now().UTC().Truncate(time.Second)
	change(&st)
	if err := g.Store.Save(st); err != nil {
		return localapi.Schedule{}, err
	}
	g.state, g.level = st, nil
	if !st.Cordoned && g.ending != nil { // somebody knows that the machine goes on
		g.ending = nil
		g.Undone()
	}
	if st.Drain != nil {
		g.level = g.nextLevelLocked(nil)
	}
	now := g.scheduleLocked() // before anything stops: who asks is told what does
	g.applyLocked()
	g.Tell(corev1.EventTypeNormal, reason, message)
	g.Notify()
	select {
	case g.kick <- struct{}{}:
	default:
	}
	return now, nil
}

// nextLevelLocked is the lowest priority above one that a pod has that is to stop; nil: there is none.
func (g *Gate) nextLevelLocked(above *int32) *int32 {
	var next *int32
	all, _ := g.pods() // what is not known yet does not have its turn: it is stopped at once
	for _, s := range all {
		p := priorityOf(&s.Pod.Spec)
		if g.state.Stops(s.Key(), p) && (above == nil || p > *above) && (next == nil || p < *next) {
			next = &p
		}
	}
	return next
}

// Run takes drains from one priority to the next, until ctx ends. It sleeps while there is none.
func (g *Gate) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case g.beat <- struct{}{}:
		case <-g.kick:
			g.steps(ctx)
		}
	}
}

// Beat waits until run goes round; an error says that it has not before the end of ctx.
func (g *Gate) Beat(ctx context.Context) error {
	select {
	case <-g.beat:
		return nil
	case <-ctx.Done():
		return errors.New("the loop of the drains does not go round")
	}
}

// steps follows one drain until all levels are begun.
func (g *Gate) steps(ctx context.Context) {
	changed, cancel := g.changed()
	defer cancel()
	for g.step() {
		select {
		case <-ctx.Done():
			return
		case g.beat <- struct{}{}:
		case <-changed:
		case <-g.kick:
		}
	}
}

// step goes on to the next level if the present one has stopped, and says whether there are more.
func (g *Gate) step() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.level == nil || g.state.Drain == nil {
		return false
	}
	for left, err := g.leftLocked(); err == nil && g.level != nil && !slices.ContainsFunc(left, g.dueLocked); {
		g.level = g.nextLevelLocked(g.level)
	}
	g.applyLocked()
	return g.level != nil
}

// dueLocked says that a pod is to stop on the present level.
func (g *Gate) dueLocked(s podstatus.Status) bool { return priorityOf(&s.Pod.Spec) <= *g.level }

// Ending is how pods are stopped because the machine goes down.
type Ending struct {
	// Groups are by priority ascending; current is the one that is stopped now, after those before it.
	Groups  []config.ShutdownGroup
	current int
}

// groupOf is the group of a priority; one below all groups belongs to the first.
func groupOf(groups []config.ShutdownGroup, priority int32) int {
	i, found := slices.BinarySearchFunc(groups, priority, func(g config.ShutdownGroup, p int32) int { return cmp.Compare(g.Priority, p) })
	if !found {
		i--
	}
	return max(i, 0)
}

func (e *Ending) rule(priority int32) runner.Rule {
	r := runner.Rule{Wait: &runner.Held{Reason: runner.ReasonNodeShutdown, Message: runner.MessageNodeShutdown, Cause: cause.Cause{Kind: cause.ShuttingDown}}}
	if i := groupOf(e.Groups, priority); i <= e.current {
		r.Halt = &runner.Halt{Reason: runner.ReasonTerminated, Message: runner.MessageTerminated, Cause: cause.Cause{Kind: cause.ShuttingDown}, Bounded: true, Grace: e.Groups[i].Grace, Failed: true}
	}
	return r
}

// Closed says whether this machine takes no more pods, and whether it goes down.
func (g *Gate) Closed() (cordoned, ending bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Cordoned, g.ending != nil
}

// Leave removes all pods, and what they were run with.
func (g *Gate) Leave(ctx context.Context) {
	changed, cancel := g.changed()
	defer cancel()
	g.mu.Lock()
	g.leaving = true
	g.applyLocked()
	g.mu.Unlock()
	for ctx.Err() == nil {
		g.mu.Lock()
		left, err := g.leftLocked()
		cleanup := g.cleanup
		g.mu.Unlock()
		if len(left) == 0 && err == nil {
			if err := cleanup(ctx); err != nil {
				g.log.Warn("something stays of what pods were run with", "err", err)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// handedOver is what every pod may while another agent takes over.
func handedOver() runner.Rule {
	const text = "another agent takes over this machine"
	why := cause.Cause{Kind: cause.ShuttingDown, Fault: cause.HandedOver}
	return runner.Rule{
		Wait: &runner.Held{Reason: runner.ReasonHandedOver, Message: text, Cause: why},
		Halt: &runner.Halt{Reason: runner.ReasonHandedOver, Message: text, Cause: why, Remove: true},
	}
}
