package admission

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node/drain"
	"monopod/node/localapi"
	"monopod/node/shutdown"
	"monopod/runner"
)

// Config is what a Controller needs. All fields but Marker are required.
type Config struct {
	Store *drain.Store
	// Marker is removed when an undrain cancels a shutdown.
	Marker shutdown.Marker
	// Pods returns the pods of this machine; an error means that there may be others.
	Pods func() ([]drain.Pod, error)
	// Subscribe returns a channel that gets a value after each change of a pod, and a function that ends the subscription.
	Subscribe func() (<-chan struct{}, func())
	// Changed is called after each change of the State.
	Changed func()
	// Record records an event of the node.
	Record func(eventType, reason, message string)
	Log    *slog.Logger
}

// Pool is what runs the pods.
type Pool struct {
	// SetRule replaces the rule for pods; nil: every pod may run.
	SetRule func(func(*manifests.Pod) runner.Rule)
	// Cleanup removes what the pods were run with, after the last one has gone.
	Cleanup func(context.Context) error
}

// Controller keeps the State and makes a pool follow it. It implements node.Scheduler and shutdown.Pods; its methods may be called from any goroutine.
//
// A drain stops the pods of the lowest priority first, then, once all of them have stopped, those of the next one.
type Controller struct {
	cfg Config
	// wake makes Run follow a drain.
	wake chan struct{}
	// beat is received from by Beat, to see that Run still works.
	beat chan struct{}

	mu sync.Mutex // guards what follows
	// pool is the zero Pool while no runtime is open.
	pool  Pool
	state State
}

// New returns a Controller. It does no I/O.
func New(cfg Config) *Controller {
	return &Controller{cfg: cfg, wake: make(chan struct{}, 1), beat: make(chan struct{})}
}

// Load reads the drain of an earlier run, which takes effect at once.
func (c *Controller) Load() {
	st, err := c.cfg.Store.Load()
	if err != nil {
		c.cfg.Log.Error("cannot read the drain state of an earlier run; pods may start", "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Drain = st; st.Cordoned {
		c.cfg.Log.Warn("this machine is drained; `monopod undrain` lets pods run again", "since", st.Since, "cordonedOnly", st.Drain == nil)
	}
}

// Attach makes a pool follow the State.
func (c *Controller) Attach(p Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool = p
	c.applyLocked()
}

func (c *Controller) applyLocked() {
	switch {
	case c.pool.SetRule == nil:
	case c.state.Open():
		c.pool.SetRule(nil)
	default:
		state := c.state
		c.pool.SetRule(func(p *manifests.Pod) runner.Rule { return state.Rule(p) })
	}
}

// Closed reports whether this machine takes no new pods, and whether it shuts down.
func (c *Controller) Closed() (cordoned, shuttingDown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Drain.Cordoned, c.state.Shutdown != nil
}

// Marker returns the file that records a shutdown of the machine.
func (c *Controller) Marker() shutdown.Marker { return c.cfg.Marker }

// Schedule implements node.Scheduler.
func (c *Controller) Schedule() localapi.Schedule {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.scheduleLocked()
}

func (c *Controller) scheduleLocked() localapi.Schedule {
	st := c.state.Drain
	s := localapi.Schedule{Cordoned: st.Cordoned, Drained: st.Drain != nil, Since: st.Since, UntilBoot: st.Boot != "", ShuttingDown: c.state.Shutdown != nil}
	if st.Drain != nil {
		s.PriorityBelow, s.Ignore = st.Drain.PriorityBelow, st.Drain.Ignore
	}
	left, err := c.stoppingLocked()
	if err != nil {
		s.Unseen = printer.OneLine(err.Error())
	}
	for _, p := range left {
		s.Stopping = append(s.Stopping, p.Key.String())
	}
	return s
}

// stoppingLocked returns the pods that have to stop and still run. An error means that there may be others.
func (c *Controller) stoppingLocked() ([]drain.Pod, error) {
	if c.state.Open() {
		return nil, nil
	}
	pods, err := c.cfg.Pods()
	return c.state.Stopping(pods), err
}

// Cordon implements node.Scheduler.
func (c *Controller) Cordon(r localapi.DrainRequest) (localapi.Schedule, error) {
	return c.change(func(st *drain.State) { st.Cordoned, st.Boot = true, c.boot(r) }, "NodeNotSchedulable", "new pods are not started")
}

// Drain implements node.Scheduler.
func (c *Controller) Drain(r localapi.DrainRequest) (localapi.Schedule, error) {
	d := &drain.Drain{PriorityBelow: r.PriorityBelow, Ignore: r.Ignore}
	if err := d.Check(); err != nil {
		return localapi.Schedule{}, badRequest(err)
	}
	return c.change(func(st *drain.State) { st.Cordoned, st.Drain, st.Boot = true, d, c.boot(r) }, "Draining", "stopping pods, the lowest priority first")
}

// Undrain implements node.Scheduler.
func (c *Controller) Undrain() (localapi.Schedule, error) {
	return c.change(func(st *drain.State) { *st = drain.State{} }, "NodeSchedulable", "pods may run again")
}

func badRequest(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()}}
}

// boot returns the boot that a request is limited to; empty: none.
func (c *Controller) boot(r localapi.DrainRequest) string {
	if r.UntilBoot {
		return c.cfg.Store.Boot()
	}
	return ""
}

// change stores a change of the drain, then makes it take effect.
func (c *Controller) change(edit func(*drain.State), reason, message string) (localapi.Schedule, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.state.Drain
	st.Since = time.Now().UTC().Truncate(time.Second)
	edit(&st)
	if err := c.cfg.Store.Save(st); err != nil {
		return localapi.Schedule{}, err
	}
	c.state.Drain, c.state.Level = st, nil
	if !st.Cordoned && c.state.Shutdown != nil { // the user knows that the shutdown was cancelled
		c.state.Shutdown = nil
		c.cfg.Marker.Remove()
	}
	if st.Drain != nil {
		pods, _ := c.cfg.Pods() // pods that are not known yet do not wait for their turn: they are stopped at once
		c.state.Level = st.NextLevel(pods, nil)
	}
	now := c.scheduleLocked() // before anything stops, so that the answer has all pods that do
	c.applyLocked()
	c.cfg.Record(corev1.EventTypeNormal, reason, message)
	c.cfg.Changed()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return now, nil
}

// Run takes drains from one priority to the next, until ctx ends. It waits for nothing but a drain while there is none.
func (c *Controller) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c.beat <- struct{}{}:
		case <-c.wake:
			c.follow(ctx)
		}
	}
}

// Beat waits until Run answers; an error means that it has not before the end of ctx.
func (c *Controller) Beat(ctx context.Context) error {
	select {
	case <-c.beat:
		return nil
	case <-ctx.Done():
		return errors.New("the drain loop does not respond")
	}
}

// follow follows one drain until its last level has begun.
func (c *Controller) follow(ctx context.Context) {
	changed, cancel := c.cfg.Subscribe()
	defer cancel()
	for c.advance() {
		select {
		case <-ctx.Done():
			return
		case c.beat <- struct{}{}:
		case <-changed:
		case <-c.wake:
		}
	}
}

// advance begins the next level if the pods of the present one have stopped, and reports whether there are more levels.
func (c *Controller) advance() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Level == nil {
		return false
	}
	if pods, err := c.cfg.Pods(); err == nil {
		c.state.Level = c.state.Drain.Advance(pods, c.state.Level)
	}
	c.applyLocked()
	return c.state.Level != nil
}

// HandOver removes all pods and what they were run with. It returns once that is done, or ctx ends.
func (c *Controller) HandOver(ctx context.Context) {
	changed, cancel := c.cfg.Subscribe()
	defer cancel()
	c.mu.Lock()
	c.state.HandedOver = true
	c.applyLocked()
	c.mu.Unlock()
	for ctx.Err() == nil {
		c.mu.Lock()
		left, err := c.stoppingLocked()
		cleanup := c.pool.Cleanup
		c.mu.Unlock()
		if len(left) == 0 && err == nil {
			if err := cleanup(ctx); err != nil {
				c.cfg.Log.Warn("clean up after the pods", "err", err)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// ShutDown implements shutdown.Pods.
func (c *Controller) ShutDown(p *shutdown.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutDownLocked(p)
}

func (c *Controller) shutDownLocked(p *shutdown.Progress) {
	c.state.Shutdown = p
	c.applyLocked()
	c.cfg.Changed()
}

// Proceed implements shutdown.Pods.
func (c *Controller) Proceed(p *shutdown.Progress) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Shutdown == nil {
		return false
	}
	c.shutDownLocked(p)
	return true
}

// ShuttingDown implements shutdown.Pods.
func (c *Controller) ShuttingDown() bool {
	_, is := c.Closed()
	return is
}

// Unstopped implements shutdown.Pods.
func (c *Controller) Unstopped() (names []string, seen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Shutdown == nil {
		return nil, true
	}
	left, err := c.stoppingLocked()
	for _, p := range left {
		if _, due := c.state.Shutdown.Due(p.Priority); due {
			names = append(names, p.Key.String())
		}
	}
	return names, err == nil
}

// Subscribe implements shutdown.Pods.
func (c *Controller) Subscribe() (<-chan struct{}, func()) { return c.cfg.Subscribe() }
