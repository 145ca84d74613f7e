// Package pool makes pods run: one worker for each pod observes, plans and applies through runner.Runtime, and records events.
//
// It carries decisions out and makes none of its own: what to do is runner/plan, which pods may start is runner/admit, what users see is
// runner/podstatus. It must not know where manifests come from nor how a container is made.
//
// Goroutines: Pool.Run keeps one that hands out assignments, one that lists the pods of the runtime at startup and after lost events, one
// that waits for the runtime's events, one for each pod with something to do, and one for each image that is being pulled. Run waits for all of them.
package pool

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
)

// Config of a Pool. New fills in zero fields.
type Config struct {
	Log      *slog.Logger
	NodeName string
	// NodeIPs returns the node's addresses of now, IPv4 first. It is called often. nil: there are none.
	NodeIPs func() []string
	// MaxConcurrent is how many pods start at the same time, and how many are taken down. Default 4: twice the
	// cores of a small machine; more makes all of them slower.
	MaxConcurrent int
	// MaxPods is the most pods there may be; 0: no limit.
	MaxPods int
	// Room is what all pods may request together; nil: there is no limit.
	Room admit.Requests
	// NodeLabels are what pods choose nodes by; nil: only Platform matters.
	NodeLabels map[string]string
	// Platform is that of this machine.
	Platform manifests.Platform
	// Options are the limits of planning.
	Options plan.Options
	// Now is the clock.
	Now func() time.Time
	// NewUID makes a uid for a pod whose manifest has none.
	NewUID func() string
	// Resync is how often a pod is looked at without any reason, a safety net under lost events.
	Resync time.Duration
	// Events keeps what happens to the pods; nil: nobody does.
	Events runner.Recorder
	// Follow is called with what is desired before it is carried out, and with its Objects; nil disables it.
	Follow func(model.Desired, *manifests.Objects)
	// Gone is told the last status of each pod that does not exist any more, before Pods leaves it out; nil disables it. It must be quick, and
	// not call the Pool.
	Gone func(podstatus.Status)
	// SettleAfter is how long found pods are left untouched at the start while no Update has come.
	SettleAfter time.Duration
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = noRecorder{}
	}
	if c.NodeIPs == nil {
		c.NodeIPs = func() []string { return nil }
	}
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = 4
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewUID == nil {
		c.NewUID = newUID
	}
	if c.Resync <= 0 {
		c.Resync = 10 * time.Minute
	}
	if c.SettleAfter <= 0 {
		c.SettleAfter = 2 * time.Second
	}
	return c
}

// Pool runs the desired pods. All methods may be called from any goroutine, before, during and after Run.
type Pool struct {
	rt runner.Runtime
	// starts and stops bound what goes on at the same time; see worker.acquire.
	starts, stops *turns
	// trigger wakes Run's loop: there is something to hand out. freed does so too: a pod is not as it was, and others wait for
	// such a change.
	trigger, freed chan struct{}
	// lost asks for another list of the runtime's pods.
	lost chan struct{}
	// beats are taken by Run's loop when it has nothing else to do.
	beats chan struct{}
	group sync.WaitGroup
	registry
}

// registry is what a Pool knows of its pods: what is desired of them, what their workers reported, and who waits for whom.
type registry struct {
	cfg Config

	mu sync.Mutex
	// All below is guarded by mu.
	desired model.Desired
	objects *manifests.Objects // those of desired
	settled bool
	listed  bool
	// ended says that Run is about to return: no goroutine may be started.
	ended bool
	// gate, unless nil, decides which pods may run; barrier, which of those that do not may.
	gate    Gate
	barrier func(*manifests.Pod) *runner.Held
	// graces are how long pods that are removed may take, by uid, where that is not what their manifests say. It is not changed.
	graces map[string]time.Duration
	// given are the conditions that others have set on pods, by uid. It is not changed.
	given map[string][]corev1.PodCondition
	// anyHeld says that a pod waits for others, whose changes must therefore be looked at.
	anyHeld bool
	entries map[manifests.Key]*entry
	// round is how often was handed out; resolvedBy is what the wishes of the last round were resolved by.
	round      uint64
	resolvedBy *manifests.Objects
	watchers   map[*Subscription]struct{}
}

// entry is what the pool knows of a pod.
type entry struct {
	worker     *worker
	running    bool
	assignment assignment
	report     report
	wish       wish
	// tried says that the worker has looked at the pod, whether it saw it or not, and has asked for its turn if it needs one.
	tried bool
	// holdsPorts says that report.holds has ports of the host; requests are what it asks for.
	holdsPorts bool
	requests   admit.Requests
	// place is what is being made instead of a pod that ran, from when that is gone until there is a sandbox again: nobody else gets what it
	// has been admitted with.
	place *manifests.Pod
	// rule is what the gates said in the last round.
	rule runner.Rule
	// evict orders that the pod is evicted; evictFor is the pod for which it is to make room, if that is why.
	evict    *plan.Eviction
	evictFor *manifests.Key
}

// wish is a pod as it is desired.
type wish struct {
	// round is the latest in which it was: another one than that of the Pool means that it is not desired any more.
	round uint64
	// written is what is desired, pod the same with what it refers to.
	written, pod *manifests.Pod
	// ports says that it asks for ports of the host, selects that it chooses among nodes.
	ports, selects bool
	// requests are those of pod.
	requests admit.Requests
	// priority is that of pod.
	priority manifests.Priority
}

// follow takes over what is desired. resolved says that the objects are those of the round before.
func (e *entry) follow(pod *manifests.Pod, objects *manifests.Objects, round uint64, resolved bool) {
	was := e.wish
	if was.written != pod {
		e.wish.written, e.wish.ports = pod, len(admit.HostPorts(pod)) > 0
		e.wish.selects = len(pod.Object.Spec.NodeSelector) > 0 || manifests.RequiredNodes(&pod.Object.Spec) != nil
	}
	if was.written != pod || was.round != round-1 || !resolved {
		e.wish.pod = manifests.WithRefs(pod, e.assignment.desired, objects)
		e.wish.priority, e.wish.requests = manifests.PriorityOf(e.wish.pod), admit.PodRequests(e.wish.pod)
	}
	e.wish.round = round
}

// report is what a worker tells.
type report struct {
	status podstatus.Status
	seen   bool
	holds  *manifests.Pod
	// uid is that of the sandbox.
	uid types.UID
	// place is PodState.Place.
	place *manifests.Pod
}

// of says that nothing is recorded from another place.
func (r report) of(place manifests.Origin) bool {
	return r.holds == nil || r.holds.Origin.Source == place.Source && r.holds.Origin.File == place.File
}

// New returns a Pool. It does nothing until Run is called.
func New(rt runner.Runtime, cfg Config) *Pool {
	cfg = cfg.withDefaults()
	return &Pool{
		rt:       rt,
		starts:   newTurns(cfg.MaxConcurrent),
		stops:    newTurns(cfg.MaxConcurrent),
		trigger:  make(chan struct{}, 1),
		freed:    make(chan struct{}, 1),
		lost:     make(chan struct{}, 1),
		beats:    make(chan struct{}),
		registry: registry{cfg: cfg, entries: map[manifests.Key]*entry{}, watchers: map[*Subscription]struct{}{}},
	}
}

// Update replaces what is desired. It never blocks; of several updates in a row only the last counts.
func (p *Pool) Update(d model.Desired) {
	p.mu.Lock()
	if p.objects == nil || !slices.Equal(p.desired.Objects, d.Objects) {
		p.objects = manifests.NewObjects(d.Objects)
	}
	p.desired, p.settled = d, true
	p.mu.Unlock()
	signal(p.trigger)
}

// Graces says how long pods may take to stop when they are removed, by uid, whatever their manifests say; of others these decide. It
// never blocks, and counts for those that stop already.
func (p *Pool) Graces(byUID map[string]time.Duration) {
	p.mu.Lock()
	p.graces = byUID
	p.mu.Unlock()
	signal(p.trigger)
}

// Conditions are those that others have set on pods, by uid: readiness gates look at them. It never blocks.
func (p *Pool) Conditions(byUID map[string][]corev1.PodCondition) {
	p.mu.Lock()
	p.given = byUID
	p.mu.Unlock()
	signal(p.trigger)
}

// givenLocked are the conditions that others have set on a pod.
func (p *registry) givenLocked(e *entry) []corev1.PodCondition {
	if e.report.status.Pod == nil || len(p.given) == 0 {
		return nil
	}
	return p.given[string(e.report.status.Pod.UID)]
}

// Run works until ctx ends, then returns nil when all goroutines have ended. The pods go on running.
func (p *Pool) Run(ctx context.Context) error {
	defer p.end()
	p.group.Go(func() { p.list(ctx) })
	p.group.Go(func() { p.watchRuntime(ctx) })
	settle := time.NewTimer(p.cfg.SettleAfter)
	defer settle.Stop()
	// While many pods start that wait for each other's ports, each of them would have all looked at: at most a tenth of the time
	// is spent on that.
	freed, rested := p.freed, time.NewTimer(p.cfg.SettleAfter)
	rested.Stop()
	defer rested.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-settle.C:
			p.settle()
		case <-p.trigger:
			p.handOut(ctx)
		case <-freed:
			began := time.Now()
			p.handOut(ctx)
			if rest := 9 * time.Since(began); rest > 0 { // a fake clock stands still
				freed = nil
				rested.Reset(rest)
			}
		case <-rested.C:
			freed = p.freed
		case <-p.beats:
		}
	}
}

// settle ends the wait for a first Update: pods that were found are kept as they are.
func (p *Pool) settle() {
	p.mu.Lock()
	first := !p.settled
	if first {
		p.settled = true
	}
	p.mu.Unlock()
	if first {
		p.cfg.Log.Warn("no manifests known yet; pods that were found are kept as they are")
		signal(p.trigger)
	}
}

// list finds the pods that the runtime has: at the start, and after each interruption those that nobody knew of, because
// they were made in its last moment, when their removal did not see them any more.
func (p *Pool) list(ctx context.Context) {
	for {
		p.retry(ctx, "the runtime's pods cannot be listed", func() error {
			keys, err := p.rt.List(ctx)
			if err == nil {
				p.found(keys)
			}
			return err
		})
		select {
		case <-ctx.Done():
			return
		case <-p.lost:
		}
	}
}

// watchRuntime passes the runtime's events on until ctx ends. After each interruption everybody looks anew.
func (p *Pool) watchRuntime(ctx context.Context) {
	p.retry(ctx, "the runtime's events cannot be watched", func() error {
		err := p.rt.Watch(ctx, p.notify)
		p.notify(manifests.Key{})
		if err == nil && ctx.Err() == nil {
			err = errors.New("the stream has ended")
		}
		return err
	})
}

// retry calls f until it succeeds or ctx ends. It warns once of each error.
func (p *Pool) retry(ctx context.Context, what string, f func() error) {
	last := ""
	for try := 1; ; try++ {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		wait := plan.Doubled(100*time.Millisecond, 5*time.Second, try)
		if err.Error() != last {
			p.cfg.Log.Warn(what, "error", err, "again", wait)
			last, try = err.Error(), 1
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// pause waits, and says whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (p *Pool) found(keys []manifests.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = true
	for _, key := range keys {
		p.ensureLocked(key)
	}
	signal(p.trigger)
}

// notify wakes the worker of a pod, or with the zero key all of them. What failed is then tried again at once:
// an image may have arrived, or containerd has come back.
func (p *Pool) notify(key manifests.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == (manifests.Key{}) {
		signal(p.lost)
		now := p.cfg.Now()
		for _, e := range p.entries {
			e.worker.retry.Store(&now)
			p.wakeLocked(e.worker, e.worker.events)
		}
		return
	}
	if e, ok := p.entries[key]; ok {
		p.wakeLocked(e.worker, e.worker.events)
	}
}

// ensureLocked makes an entry for a pod that has none.
func (p *Pool) ensureLocked(key manifests.Key) *entry {
	e, ok := p.entries[key]
	if !ok {
		e = &entry{worker: newWorker(p, key)}
		p.entries[key] = e
	}
	return e
}

// handOut gives every worker its assignment and starts those that are new.
func (p *Pool) handOut(ctx context.Context) {
	p.follow()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round++
	objects := p.objects
	resolved := p.resolvedBy == objects
	p.resolvedBy = objects
	for _, pod := range p.desired.Pods {
		p.ensureLocked(pod.Key()).follow(pod, objects, p.round, resolved)
	}
	p.anyHeld = false
	for _, e := range p.entries {
		p.findPlaceLocked(e)
		e.rule = p.gateLocked(e)
		if e.rule.Halt != nil {
			e.evict, e.evictFor = nil, nil // it makes room anyhow; when it may go on, that was long ago
		}
		p.anyHeld = p.anyHeld || e.rule.Wait != nil
	}
	p.floorLocked()
	decided := p.admitLocked()
	if p.countermandLocked(decided) {
		decided = p.admitLocked() // what was to become free does not
	}
	p.preemptLocked(decided.Preempted)
	p.anyHeld = p.anyHeld || len(decided.Held) > 0
	removable, keeps := p.desired.Removable, p.desired.Keeps
	for key, e := range p.entries {
		a := assignment{settled: p.settled && p.listed, objects: objects, graces: p.graces, given: p.givenLocked(e), removable: removable, keeps: keeps}
		if e.wish.round == p.round {
			a.desired = e.wish.pod
		} else {
			e.wish.written, e.wish.pod = nil, nil
		}
		if e.report.holds == nil {
			a.place = e.place
		}
		a.halt, a.evict, a.held = e.rule.Halt, e.evict, e.rule.Wait
		if h, ok := decided.Held[key]; ok {
			waits := h // not for those that do not wait
			a.held = &waits
		}
		p.assignLocked(e, a)
		if !e.running {
			e.running = true
			p.group.Go(func() { e.worker.run(ctx) })
		}
	}
}

// follow tells what is desired, once it is known.
func (p *registry) follow() {
	if p.cfg.Follow == nil {
		return
	}
	p.mu.Lock()
	d, objects, known := p.desired, p.objects, p.settled
	p.mu.Unlock()
	if known {
		p.cfg.Follow(d, objects)
	}
}

// assignLocked stores an assignment and wakes the worker if it is another one. For a pod that is not wanted, or is
// recorded from another place, it always is, since what may be removed or is kept cannot be compared.
func (p *Pool) assignLocked(e *entry, a assignment) {
	old := e.assignment
	sameHeld := (a.held == nil || old.objects == a.objects) && (old.held == nil) == (a.held == nil) && (a.held == nil || *old.held == *a.held)
	same := e.running && old.settled == a.settled && a.desired != nil && old.desired == a.desired && sameHeld && sameHalt(a.halt, old.halt) && a.evict == old.evict && a.place == old.place && slices.Equal(a.given, old.given) && e.report.of(a.desired.Origin)
	e.assignment = a
	if e.report.status.Pod == nil {
		p.setStatusLocked(e, podstatus.Of(podstatus.Input{
			Now: p.cfg.Now(), Key: e.worker.key, Desired: a.desired, Held: a.held, Node: p.node(), Observed: plan.Observed{Halt: a.halt},
		}))
	}
	if !same {
		p.wakeLocked(e.worker, e.worker.assign)
	}
}

// assignment returns the latest assignment of a worker. Its channel is emptied first, so that nothing is missed.
func (p *registry) assignment(w *worker) assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.assign:
	default:
	}
	return p.entries[w.key].assignment
}

// report takes a worker's report.
func (p *Pool) report(w *worker, r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[w.key]
	changed := e.report.seen != r.seen || e.report.holds != r.holds || e.report.uid != r.uid || e.report.place != r.place || e.report.idle() != r.idle()
	if a := e.assignment; !e.report.seen && a.desired != nil && !r.of(a.desired.Origin) {
		signal(w.assign) // until now assignLocked did not know
	}
	if r.holds != e.report.holds {
		e.holdsPorts, e.requests = false, nil
		if r.holds != nil {
			e.holdsPorts, e.requests = len(admit.HostPorts(r.holds)) > 0, admit.PodRequests(r.holds)
		}
	}
	e.keepPlace(r)
	e.report.seen, e.report.holds, e.report.place, e.report.uid = r.seen, r.holds, r.place, r.uid
	if e.evict != nil && r.status.Pod != nil && string(r.status.Pod.UID) != e.evict.UID {
		e.evict, e.evictFor = nil, nil // carried out
	}
	p.setStatusLocked(e, r.status)
	if changed && (p.anyHeld || p.gate != nil || p.barrier != nil) {
		signal(p.freed)
	}
}

// reportCrash makes the status say that nobody looks after the pod at the moment.
func (p *Pool) reportCrash(w *worker, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.entries[w.key].report.status
	s.Trouble = podstatus.Trouble{Text: "internal error: " + printer.FirstLine(err.Error())}
	s.Why = s.Trouble.Text
	p.setStatusLocked(p.entries[w.key], s)
}

func (p *registry) node() podstatus.Node {
	return podstatus.Node{Name: p.cfg.NodeName, IPs: p.cfg.NodeIPs()}
}

// retire ends a worker whose pod is gone, unless it has become wanted meanwhile.
func (p *Pool) retire(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[w.key]
	if e.assignment.desired != nil {
		return false
	}
	if p.cfg.Gone != nil && e.report.status.Pod != nil {
		p.cfg.Gone(e.report.status)
	}
	delete(p.entries, w.key)
	p.goneLocked(w.key, e.report.status)
	if p.anyHeld {
		signal(p.freed)
	}
	return true
}

// Pods returns all pods, sorted by namespace and name: those that are desired, and those that exist still.
// They share memory with the pool: do not change them.
func (p *registry) Pods() []podstatus.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]podstatus.Status, 0, len(p.entries))
	for _, e := range p.entries {
		if e.report.status.Pod != nil {
			s := e.report.status
			s.Probes, s.Doing = e.worker.probeStatuses(), e.worker.doing.list()
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Key().Compare(all[j].Key()) < 0 })
	return all
}

// Reach says why the runtime does not answer now; nil: it does. What is shown of pods is then what was seen last.
func (p *Pool) Reach(ctx context.Context) error {
	_, err := p.rt.List(ctx)
	return err
}

// Beat waits until Run's loop takes notice. The error is ctx's: the loop is stuck, or does not run.
func (p *Pool) Beat(ctx context.Context) error {
	select {
	case p.beats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Seen says that the pods of the runtime are known, and that each of them has been looked at, as has each pod of wanted: what
// Update was told is carried out later.
func (p *registry) Seen(wanted ...*manifests.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range wanted {
		if p.entries[pod.Key()] == nil {
			return false
		}
	}
	for _, e := range p.entries {
		if !e.report.seen {
			return false
		}
	}
	return p.listed
}
