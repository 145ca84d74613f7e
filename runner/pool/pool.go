// Package pool runs pods: one worker for each pod observes, plans and applies through runner.Runtime, and records events.
//
// It carries out decisions and makes none: runner/plan decides what to do, runner/admit which pods may start, and runner/podstatus what
// users see. It must not know where manifests come from or how a container is created.
//
// Goroutines: Pool.Run has one that distributes assignments, one that lists the pods of the runtime at startup and after lost events, one
// that waits for the runtime's events, one for each pod with something to do, and one for each image being pulled. Run waits for all of
// them.
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
	"monopod/runner/plan/retry"
	"monopod/runner/podstatus"
	"monopod/runner/pool/turns"
)

// Config configures a Pool. New fills in zero fields.
type Config struct {
	Log      *slog.Logger
	NodeName string
	// NodeIPs returns the current addresses of the node, IPv4 first. It is called often. nil means that there are none.
	NodeIPs func() []string
	// MaxConcurrent is the number of pods that start concurrently, and of pods that are removed concurrently. The default is 4, twice the
	// cores of a small machine; more makes all of them slower.
	MaxConcurrent int
	// MaxPods is the maximum number of pods; 0 means no limit.
	MaxPods int
	// Room is the limit of the sum of requests of all pods; nil means no limit.
	Room admit.Requests
	// NodeLabels are the labels that pods select nodes by until SetNodeLabels; if nil, only Platform matters.
	NodeLabels map[string]string
	// LabelsLost reports that the node may have more labels than NodeLabels.
	LabelsLost bool
	// Platform is the platform of this machine.
	Platform manifests.Platform
	// Options are the limits of planning.
	Options plan.Options
	// Now is the clock.
	Now func() time.Time
	// NewUID returns a uid for a pod whose manifest has none.
	NewUID func() string
	// Resync is the interval at which each pod is observed without any event, in case events were lost.
	Resync time.Duration
	// Events records events about the pods; nil disables it.
	Events runner.Recorder
	// Spaces are the boundaries between sources; nil means that there are none.
	Spaces *manifests.Spaces
	// Follow is called with the desired state and its Objects before it is carried out; nil disables it.
	Follow func(model.Desired, *manifests.Objects)
	// Gone is called with the last status of each pod that has been removed, before Pods omits it; nil disables it. It must return quickly and
	// must not call the Pool.
	Gone func(podstatus.Status)
	// SettleAfter is how long existing pods are left alone at startup while no Update has been called.
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
	// starts and stops limit concurrent starts and removals; see worker.acquire.
	starts, stops *turns.Turns
	// trigger wakes the loop of Run to distribute assignments. freed does the same after a change of a pod that others may wait for.
	trigger, freed chan struct{}
	// lost requests another list of the runtime's pods.
	lost chan struct{}
	// beats are received by the loop of Run when it is idle.
	beats chan struct{}
	group sync.WaitGroup
	registry
}

// registry is the state of all pods of a Pool: what is desired, what their workers reported, and which pods wait for others.
type registry struct {
	cfg Config

	mu sync.Mutex
	// All fields below are guarded by mu.
	desired model.Desired
	objects *manifests.Objects // those of desired
	settled bool
	listed  bool
	// ended reports that Run is about to return: no goroutine may be started.
	ended bool
	// gate decides which pods may run; barrier, which pods that do not run may start. Both may be nil.
	gate    Gate
	barrier func(*manifests.Pod) *runner.Held
	// graces override the grace periods of manifests for pods that are removed, by uid. The map is never modified.
	graces map[string]time.Duration
	// given are the conditions that others have set on pods, by uid. The map is never modified.
	given map[string][]corev1.PodCondition
	// anyHeld reports that a pod waits for others, so that their changes matter.
	anyHeld bool
	entries map[manifests.Key]*entry
	// round is the number of distributions so far; resolvedBy are the objects that resolved the pods in the last one.
	round      uint64
	resolvedBy *manifests.Objects
	watchers   map[*Subscription]struct{}
}

// entry is the state of one pod in the pool.
type entry struct {
	worker     *worker
	running    bool
	assignment assignment
	report     report
	desired    desiredPod
	// tried reports that the worker has tried to observe the pod, and has requested its turn if it needs one.
	tried bool
	// holdsPorts reports whether report.holds has host ports; requests are its requests.
	holdsPorts bool
	requests   admit.Requests
	// place is the manifest that the place is reserved for while a pod is being recreated, from the removal of the old sandbox to the creation
	// of the new one. No other pod gets what it was admitted with.
	place *manifests.Pod
	// rule is the decision of the gates in the last round.
	rule runner.Rule
	// evict orders the eviction of the pod; evictFor is the pod that needs its room, if that is the reason.
	evict    *plan.Eviction
	evictFor *manifests.Key
}

// desiredPod is a pod of the desired state.
type desiredPod struct {
	// round is the latest round with this pod. If it differs from that of the Pool, the pod is not desired.
	round uint64
	// written is the desired manifest, pod the same with resolved references.
	written, pod *manifests.Pod
	// ports reports whether the pod requests host ports, selects whether it selects nodes.
	ports, selects bool
	// requests are the requests of pod.
	requests admit.Requests
	// priority is the priority of pod.
	priority manifests.Priority
}

// follow sets the desired manifest. resolved reports that the objects are those of the previous round.
func (e *entry) follow(pod *manifests.Pod, objects *manifests.Objects, round uint64, resolved bool) {
	was := e.desired
	if was.written != pod {
		e.desired.written, e.desired.ports = pod, len(admit.HostPorts(pod)) > 0
		e.desired.selects = len(pod.Object.Spec.NodeSelector) > 0 || manifests.RequiredNodes(&pod.Object.Spec) != nil
	}
	if was.written != pod || was.round != round-1 || !resolved {
		e.desired.pod = manifests.WithRefs(pod, e.assignment.desired, objects)
		e.desired.priority, e.desired.requests = manifests.PriorityOf(e.desired.pod), admit.PodRequests(e.desired.pod)
	}
	e.desired.round = round
}

// report is what a worker reports to the pool.
type report struct {
	status podstatus.Status
	seen   bool
	holds  *manifests.Pod
	// uid is the uid of the sandbox.
	uid types.UID
	// place is PodState.Place.
	place *manifests.Pod
}

// of reports whether the recorded manifest, if any, is from place.
func (r report) of(place manifests.Origin) bool {
	return r.holds == nil || r.holds.Origin.Source == place.Source && r.holds.Origin.File == place.File
}

// New returns a Pool. It does nothing until Run is called.
func New(rt runner.Runtime, cfg Config) *Pool {
	cfg = cfg.withDefaults()
	return &Pool{
		rt:      rt,
		starts:  turns.New(cfg.MaxConcurrent),
		stops:   turns.New(cfg.MaxConcurrent),
		trigger: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		lost:     make(chan struct{}, 1),
		beats:    make(chan struct{}),
		registry: registry{cfg: cfg, entries: map[manifests.Key]*entry{}, watchers: map[*Subscription]struct{}{}},
	}
}

// Update replaces the desired state. It never blocks; of several consecutive updates only the last counts.
func (p *Pool) Update(d model.Desired) {
	p.mu.Lock()
	if p.objects == nil || !slices.Equal(p.desired.Objects, d.Objects) {
		p.objects = manifests.NewObjectsIn(p.cfg.Spaces, d.Objects)
	}
	p.desired, p.settled = d, true
	p.mu.Unlock()
	signal(p.trigger)
}

// change changes the registry, and has assignments distributed again.
func (p *Pool) change(edit func()) {
	p.mu.Lock()
	edit()
	p.mu.Unlock()
	signal(p.trigger)
}

// Graces sets the grace periods of pods that are removed, by uid, instead of those of their manifests. Other pods keep theirs. It never
// blocks and also applies to pods that are already stopping.
func (p *Pool) Graces(byUID map[string]time.Duration) {
	p.change(func() { p.graces = byUID })
}

// Conditions sets the conditions that others have set on pods, by uid; readiness gates use them. It never blocks.
func (p *Pool) Conditions(byUID map[string][]corev1.PodCondition) {
	p.change(func() { p.given = byUID })
}

// SetNodeLabels replaces the labels that pods select nodes by. If they are nil, only the platform matters. lost reports that the node may have
// more labels: pods that select by others wait. Existing pods stay, as in Kubernetes; waiting pods that match now start. The map must not be
// modified afterwards. It never blocks.
func (p *Pool) SetNodeLabels(labels map[string]string, lost bool) {
	p.change(func() { p.cfg.NodeLabels, p.cfg.LabelsLost = labels, lost })
}

// givenLocked returns the conditions that others have set on a pod.
func (p *registry) givenLocked(e *entry) []corev1.PodCondition {
	if e.report.status.Pod == nil || len(p.given) == 0 {
		return nil
	}
	return p.given[string(e.report.status.Pod.UID)]
}

// Run works until ctx ends, then returns nil once all goroutines have ended. The pods keep running.
func (p *Pool) Run(ctx context.Context) error {
	defer p.end()
	p.group.Go(func() { p.list(ctx) })
	p.group.Go(func() { p.watchRuntime(ctx) })
	settle := time.NewTimer(p.cfg.SettleAfter)
	defer settle.Stop()
	// While many pods start that wait for each other's ports, each change would check all of them: spend at most a tenth of the time on that.
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

// settle ends the wait for a first Update: existing pods are kept as they are.
func (p *Pool) settle() {
	p.mu.Lock()
	first := !p.settled
	if first {
		p.settled = true
	}
	p.mu.Unlock()
	if first {
		p.cfg.Log.Warn("no manifests read yet; existing pods are kept as they are")
		signal(p.trigger)
	}
}

// list finds the pods of the runtime: at startup, and after each interruption those that are unknown because they were created at its very
// end, when their removal did not see them.
func (p *Pool) list(ctx context.Context) {
	for {
		p.retry(ctx, "cannot list the pods of the runtime", func() error {
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

// watchRuntime passes on the runtime's events until ctx ends. After each interruption every worker observes its pod again.
func (p *Pool) watchRuntime(ctx context.Context) {
	p.retry(ctx, "cannot watch the events of the runtime", func() error {
		err := p.rt.Watch(ctx, p.notify)
		p.notify(manifests.Key{})
		if err == nil && ctx.Err() == nil {
			err = errors.New("the stream has ended")
		}
		return err
	})
}

// retry calls f until it succeeds or ctx ends. It logs each error once.
func (p *Pool) retry(ctx context.Context, what string, f func() error) {
	last := ""
	for try := 1; ; try++ {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		wait := retry.Doubled(100*time.Millisecond, 5*time.Second, try)
		if err.Error() != last {
			p.cfg.Log.Warn(what, "err", err, "retry_in", wait)
			last, try = err.Error(), 1
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// pause waits for d and reports whether ctx is still alive.
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

// notify wakes the worker of a pod, or with the zero key all of them. Failed steps are then retried at once: an image may have arrived, or
// containerd may have come back.
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

// ensureLocked returns the entry of a pod and creates it if it is missing.
func (p *Pool) ensureLocked(key manifests.Key) *entry {
	e, ok := p.entries[key]
	if !ok {
		e = &entry{worker: newWorker(p, key)}
		p.entries[key] = e
	}
	return e
}

// handOut gives every worker its assignment and starts new workers.
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
			e.evict, e.evictFor = nil, nil // it makes room anyway; by the time it may run again, the order is obsolete
		}
		p.anyHeld = p.anyHeld || e.rule.Wait != nil
	}
	p.floorLocked()
	decided := p.admitLocked()
	if p.countermandLocked(decided) {
		decided = p.admitLocked() // resources that were about to become free do not become free
	}
	p.preemptLocked(decided.Preempted)
	p.anyHeld = p.anyHeld || len(decided.Held) > 0
	removable, keeps := p.desired.Removable, p.desired.Keeps
	for key, e := range p.entries {
		a := assignment{settled: p.settled && p.listed, objects: objects, graces: p.graces, given: p.givenLocked(e), removable: removable, keeps: keeps}
		if e.desired.round == p.round {
			a.desired = e.desired.pod
		} else {
			e.desired.written, e.desired.pod = nil, nil
		}
		if e.report.holds == nil {
			a.place = e.place
		}
		a.halt, a.evict, a.held = e.rule.Halt, e.evict, e.rule.Wait
		if h, ok := decided.Held[key]; ok {
			waits := h // only if the pod does wait
			a.held = &waits
		}
		p.assignLocked(e, a)
		if !e.running {
			e.running = true
			p.group.Go(func() { e.worker.run(ctx) })
		}
	}
}

// follow calls Config.Follow with the desired state, once it is known.
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

// assignLocked stores an assignment and wakes the worker if it differs. For a pod that is not desired, or is recorded from another place,
// it always counts as different, because removable and keeps cannot be compared.
func (p *Pool) assignLocked(e *entry, a assignment) {
	old := e.assignment
	sameHeld := (a.held == nil || old.objects == a.objects) && (old.held == nil) == (a.held == nil) && (a.held == nil || *old.held == *a.held)
	same := e.running && old.settled == a.settled && a.desired != nil && old.desired == a.desired && sameHeld && sameHalt(a.halt, old.halt) && a.evict == old.evict && a.place == old.place && slices.Equal(a.given, old.given) && e.report.of(a.desired.Origin)
	e.assignment = a
	if a.removes(old.desired) {
		e.worker.doing.Remove() // the worker itself may be waiting for them
	}
	if e.report.status.Pod == nil {
		p.setStatusLocked(e, podstatus.Of(podstatus.Input{
			Now: p.cfg.Now(), Key: e.worker.key, Desired: a.desired, Held: a.held, Since: e.worker.since, Node: p.node(), Observed: plan.Observed{Halt: a.halt},
		}))
	}
	if !same {
		p.wakeLocked(e.worker, e.worker.assign)
	}
}

// assignment returns the latest assignment of a worker. It empties the channel first, so that no later one is missed.
func (p *registry) assignment(w *worker) assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.assign:
	default:
	}
	return p.entries[w.key].assignment
}

// report stores a worker's report.
func (p *Pool) report(w *worker, r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[w.key]
	changed := e.report.seen != r.seen || e.report.holds != r.holds || e.report.uid != r.uid || e.report.place != r.place || e.report.idle() != r.idle()
	if a := e.assignment; !e.report.seen && a.desired != nil && !r.of(a.desired.Origin) {
		signal(w.assign) // assignLocked did not know it before
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
		e.evict, e.evictFor = nil, nil // the order has been carried out
	}
	p.setStatusLocked(e, r.status)
	if changed && (p.anyHeld || p.gate != nil || p.barrier != nil) {
		signal(p.freed)
	}
}

// reportCrash shows in the status that the worker of the pod has crashed.
func (p *Pool) reportCrash(w *worker, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.entries[w.key].report.status
	s.Trouble = model.Trouble{Text: "internal error: " + printer.FirstLine(err.Error())}
	s.Why = s.Trouble.Text
	p.setStatusLocked(p.entries[w.key], s)
}

func (p *registry) node() podstatus.Node {
	return podstatus.Node{Name: p.cfg.NodeName, IPs: p.cfg.NodeIPs()}
}

// retire ends a worker whose pod is gone, unless the pod has become desired meanwhile.
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
	w.refuseLocked(errNotRunning(w.key))
	delete(p.entries, w.key)
	p.goneLocked(w.key, e.report.status)
	if p.anyHeld {
		signal(p.freed)
	}
	return true
}

// Pods returns all desired and existing pods, sorted by namespace and name. They share memory with the pool and must not be changed.
func (p *registry) Pods() []podstatus.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]podstatus.Status, 0, len(p.entries))
	for _, e := range p.entries {
		if e.report.status.Pod != nil {
			s := e.report.status
			s.Probes, s.Doing = e.worker.probeStatuses(), e.worker.doing.List()
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Key().Compare(all[j].Key()) < 0 })
	return all
}

// Reach returns why the runtime does not answer now; nil if it does. Statuses are then those of the previous observation.
func (p *Pool) Reach(ctx context.Context) error {
	_, err := p.rt.List(ctx)
	return err
}

// Beat waits until the loop of Run responds. The error is that of ctx: the loop is stuck or does not run.
func (p *Pool) Beat(ctx context.Context) error {
	select {
	case p.beats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Seen reports whether the pods of the runtime are known and each of them has been observed, as has each pod of wanted: a pod passed to
// Update is carried out later.
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
