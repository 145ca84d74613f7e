package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"monopod/internal/boottime"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/rollout/packed"
)

const (
	// saveAfter is how long states that may be lost are held back, so that changes in quick succession are written once.
	saveAfter = time.Second
	// saveAgain is the interval of retries after a failed write.
	saveAgain = time.Minute
)

// Config configures a Controller.
type Config struct {
	Store   *Store
	Options Options
	Log     *slog.Logger
	// Clock returns the current time, including the boot id.
	Clock func() boottime.Moment
	// Changed, which may be nil, is called with each transition after it was recorded. Like Notify and the hand function of Update, it must
	// not block, and may call no method of the Controller but Update, Observe, Blind and View.
	Changed func(Transition)
	// Notify, which may be nil, is called when the result of View has changed for any pod.
	Notify func()
	// Images, which may be nil, receives the sorted digests of the images that the kept revisions ran with: once all stored states have been
	// read, and after each change. It must not block.
	Images func(digests []string)
}

// request is a call of Update.
type request struct {
	// Desired are the pods to run without any rollback.
	model.Desired
	// hand receives Desired with the pods to run, now and whenever they change.
	hand func(model.Desired)
}

// View is the rollout state of a pod for display.
type View struct {
	Active, Wanted int
	// Written is Revision.Hash of the wanted revision.
	Written  string
	Rollback *Rollback
	Trial    *Trial
	// Base is the revision to return to if the trial fails.
	Base int
	// Waits is the pod that must be Ready first; zero means none.
	Waits manifests.Key
}

// Controller decides on revisions while an agent runs. Its methods may be called from any goroutine. Rollback waits for the disk; State
// waits while a state that must be stored first is being written.
type Controller struct {
	cfg Config
	// trigger wakes the loop of Run; the loop sends to beat when it is idle.
	trigger, beat chan struct{}

	// work guards the states. It is held while states are written that must be stored before they are acted on, but not while others are
	// written. inbox may be locked while work is held, never the other way around.
	work sync.Mutex
	saver
	inbox
	pods map[manifests.Key]*followed
	// timed are the units with a time for the next decision, none before soonest; awake are the fresh and the busy units.
	units, timed, awake map[string]*unit
	soonest             time.Duration
	wanted              request
	// listed are the pods that follow saw last. passing is the number of these that are not followed because they are not Stable.
	listed  []*manifests.Pod
	passing int
	// apart are the pods that must not run the written revision.
	apart  map[manifests.Key]bool
	images digests
	// moved reports that the pods to run may differ from those handed out; imagesTold reports that Config.Images has been called.
	moved, imagesTold bool
}

// inbox is what other goroutines pass to a Controller, and what they read from it. Its mutex may be locked while Controller.work is held,
// never the other way around.
type inbox struct {
	// wake makes the Controller read the inbox.
	wake func()

	mu sync.Mutex
	// next is the latest request; nil if there is no new one.
	next *request
	seen map[manifests.Key]Observed
	// noted are the pods observed since the last turn, busy the pods whose observations matter.
	noted, busy map[manifests.Key]bool
	views       map[manifests.Key]View
}

// Observe records the state of a pod; nil means that it cannot be observed now.
func (b *inbox) Observe(key manifests.Key, o *Observed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o == nil {
		delete(b.seen, key)
	} else {
		b.seen[key] = *o
	}
	if b.noted[key] = true; b.busy[key] {
		b.wake()
	}
}

// Blind drops the state of all pods: another runner has taken over and has not observed them yet.
func (b *inbox) Blind() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen)
}

// View returns the rollout state of a pod for display; false if it has none.
func (b *inbox) View(key manifests.Key) (View, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok := b.views[key]
	return v, ok
}

// empty takes the content of the inbox.
func (b *inbox) empty() (next *request, noted map[manifests.Key]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, noted = b.next, b.noted
	b.next, b.noted = nil, map[manifests.Key]bool{}
	return next, noted
}

// sight returns the latest observation of a pod.
func (b *inbox) sight(key manifests.Key, f *followed) *Seen {
	b.mu.Lock()
	o, ok := b.seen[key]
	b.mu.Unlock()
	if !ok {
		return nil
	}
	if o.Recorded == nil {
		o.Hash = ""
		return &o.Seen
	}
	switch {
	case f.carried == o.Recorded:
	case f.pod == o.Recorded:
		f.carried, f.hashed = f.pod, f.hash
	default:
		f.carried, f.hashed = o.Recorded, Hash(o.Recorded.Object)
	}
	o.Hash = f.hashed
	return &o.Seen
}

// show publishes the verdict about a pod and reports whether it has changed.
func (b *inbox) show(key manifests.Key, v Verdict, busy bool) bool {
	view := viewOf(v.State, v.Waits)
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.views[key]
	b.views[key] = view
	if b.busy[key] = busy; !busy {
		delete(b.busy, key)
	} else if b.noted[key] { // while the previous observation was decided on
		b.wake()
	}
	return old != view
}

// Observed is the state of a pod in the runner's terms; Seen is derived from it.
type Observed struct {
	// Recorded is the manifest that has been applied completely; nil if none has.
	Recorded *manifests.Pod
	Seen
}

// followed is a pod of the current request.
type followed struct {
	pod *manifests.Pod
	// hash is the hash of pod, hashed that of carried.
	hash, unit, hashed string
	// fresh reports that pod has not been decided on.
	fresh bool
	// old is the pod that runs instead, made from the revision with the number. carried is the recorded manifest.
	old, carried *manifests.Pod
	number       int
	origin       manifests.Origin
}

// unit is a set of pods that are decided on together.
type unit struct {
	id   string
	keys []manifests.Key
	// fresh reports that these pods have not been decided on yet.
	fresh, busy bool
	next        time.Duration
}

// New returns a Controller. It does nothing until Run is called.
func New(cfg Config) *Controller {
	c := &Controller{
		cfg: cfg, trigger: make(chan struct{}, 1), beat: make(chan struct{}), awake: map[string]*unit{}, apart: map[manifests.Key]bool{},
		pods: map[manifests.Key]*followed{}, units: map[string]*unit{}, timed: map[string]*unit{}, images: digests{},
	}
	c.saver = saver{cfg: &c.cfg, wake: c.wake, write: make(chan struct{}, 1), work: &c.work, states: map[manifests.Key]*State{}, unsaved: map[manifests.Key]bool{}, refused: map[manifests.Key]bool{}}
	c.inbox = inbox{wake: c.wake, seen: map[manifests.Key]Observed{}, noted: map[manifests.Key]bool{}, busy: map[manifests.Key]bool{}, views: map[manifests.Key]View{}}
	return c
}

// Update replaces the desired state. Run calls hand with d, in which rolled-back pods have their earlier revision, now and whenever they
// change; hand must not block. Update never blocks; of several consecutive updates only the last counts.
func (c *Controller) Update(d model.Desired, hand func(model.Desired)) {
	c.mu.Lock()
	c.next = &request{d, hand}
	c.mu.Unlock()
	c.wake()
}

// State returns the state of a pod, nil if it has none.
func (c *Controller) State(key manifests.Key) *State {
	c.work.Lock()
	defer c.work.Unlock()
	return c.states[key]
}

func (c *Controller) wake() { signal(c.trigger) }

// signal wakes the receiver of a channel of size one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Run decides until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.load()
	c.tellImages()
	var writer sync.WaitGroup
	writer.Go(func() { c.writeLate(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			writer.Wait()
			c.flush()
			return nil
		case c.beat <- struct{}{}:
			continue
		case <-c.trigger:
		case <-timer.C:
		}
		if wait := c.turn(); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// Beat waits until the loop of Run responds. The error means that it has not before ctx ended.
func (c *Controller) Beat(ctx context.Context) error {
	select {
	case <-c.beat:
		return nil
	case <-ctx.Done():
		return errors.New("the rollout loop does not respond")
	}
}

func (c *Controller) load() {
	c.work.Lock()
	defer c.work.Unlock()
	if c.cfg.Store == nil {
		return
	}
	states, err := c.cfg.Store.Load()
	if err != nil {
		c.cfg.Log.Error("revisions are lost; the pods run their current manifests", "err", err)
	}
	maps.Copy(c.states, states)
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range states {
		c.note(nil, s)
		c.put(key, s)
		c.views[key] = viewOf(s, manifests.Key{})
	}
}

// turn decides on all that is new or due, and returns when to decide again; 0 means never.
func (c *Controller) turn() time.Duration {
	c.work.Lock()
	defer c.work.Unlock()
	now := c.cfg.Clock()
	next, noted := c.empty()
	if next != nil {
		c.wanted, c.moved = *next, true
		c.follow()
	}
	c.decide(now, c.due(now, next != nil, noted))
	c.hand()
	c.tellImages()
	c.retry(now)
	if c.late != 0 && now.Since >= c.late {
		c.late = 0
		signal(c.write)
	}
	return c.nextTurn(now)
}

// due returns the units to decide on, sorted by name.
func (c *Controller) due(now boottime.Moment, all bool, noted map[manifests.Key]bool) []*unit {
	var ids []string
	if all {
		ids = slices.Collect(maps.Keys(c.awake))
	}
	if now.Since >= c.soonest {
		for id, u := range c.timed {
			if now.Since >= u.next {
				ids = append(ids, id)
			}
		}
	}
	for key := range noted {
		if f := c.pods[key]; f != nil && c.units[f.unit].busy {
			ids = append(ids, f.unit)
		}
	}
	slices.Sort(ids)
	units := make([]*unit, 0, len(ids))
	for _, id := range slices.Compact(ids) {
		units = append(units, c.units[id])
	}
	return units
}

func (c *Controller) nextTurn(now boottime.Moment) time.Duration {
	at := c.late
	if at == 0 || c.again != 0 && c.again < at {
		at = c.again
	}
	if now.Since >= c.soonest {
		c.soonest = 0
		for _, u := range c.timed {
			c.sooner(u.next)
		}
	}
	if len(c.timed) > 0 && (at == 0 || c.soonest < at) {
		at = c.soonest
	}
	if at == 0 {
		return 0
	}
	return max(at-now.Since, time.Millisecond)
}

// sooner records that a unit must be decided on again at a time.
func (c *Controller) sooner(next time.Duration) {
	if c.soonest == 0 || next < c.soonest {
		c.soonest = next
	}
}

// Stable reports whether a pod keeps its name when it changes. Pods of Jobs do not: they run once. Rejected pods never run.
func Stable(pod *manifests.Pod) bool {
	refs := pod.Object.OwnerReferences
	return pod.Rejected == nil && (len(refs) == 0 || refs[0].Kind != "Job")
}

// follow processes the desired pods and groups them into units.
func (c *Controller) follow() {
	if c.edited() {
		return
	}
	pods := make(map[manifests.Key]*followed, len(c.wanted.Pods))
	units := make(map[string]*unit, len(c.units))
	c.passing = 0
	for _, p := range c.wanted.Pods {
		if !Stable(p) {
			c.passing++
			continue
		}
		if c.keeps(p) {
			continue
		}
		f := c.pods[p.Key()]
		if f == nil {
			f = &followed{}
		}
		if f.pod != p {
			c.take(f, p)
		}
		pods[p.Key()] = f
		u := units[f.unit]
		if u == nil {
			u = &unit{id: f.unit}
			units[f.unit] = u
		}
		u.keys = append(u.keys, p.Key())
		u.fresh = u.fresh || f.fresh
		f.fresh = false
	}
	c.regroup(units)
	c.pods = pods
	for key, s := range c.states {
		if pods[key] == nil && c.wanted.Removable(s.Origin) {
			c.forget(key)
		}
	}
	c.listed = append(c.listed[:0], c.wanted.Pods...)
}

// keeps reports whether a pod keeps running as it was written in another place.
func (c *Controller) keeps(p *manifests.Pod) bool {
	s := c.states[p.Key()]
	return s != nil && c.wanted.Keeps(s.Origin, p.Origin)
}

// regroup replaces the units; decisions stay valid for units with the same pods.
func (c *Controller) regroup(units map[string]*unit) {
	clear(c.timed)
	clear(c.awake)
	for id, u := range units {
		old := c.units[id]
		if old == nil || old.fresh || !slices.Equal(old.keys, u.keys) {
			u.fresh = true
			c.awake[id] = u
			continue
		}
		if u.next, u.busy = old.next, old.busy; u.next != 0 {
			c.timed[id] = u
		}
		if u.busy || u.fresh {
			c.awake[id] = u
		}
	}
	c.units = units
}

// unitOf returns the name of a pod's unit: an update group consists of pods of one space.
func (c *Controller) unitOf(p *manifests.Pod) string {
	if r, err := manifests.PodRollout(p.Object); err == nil && r.Group != "" {
		return "group " + p.Object.Namespace + "/" + r.Group + " of " + string(c.cfg.Options.Spaces.Of(p.Origin.Source))
	}
	return "pod " + p.Key().String()
}

// forget drops a pod that has been removed from its source.
func (c *Controller) forget(key manifests.Key) {
	c.note(c.states[key], nil)
	delete(c.states, key)
	delete(c.apart, key)
	c.dead = append(c.dead, key)
	c.soon()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.views, key)
	delete(c.busy, key)
}

// decide decides on units, and writes the states that must be stored before they are acted on.
func (c *Controller) decide(now boottime.Moment, units []*unit) {
	var happened []Transition
	var alone, sooner, later []Entry
	var p packed.Packer
	shown := false
	for _, u := range units {
		verdicts, next, busy := Decide(now, c.members(u), c.cfg.Options)
		u.next, u.busy, u.fresh = next, busy, false
		if delete(c.timed, u.id); next != 0 {
			c.timed[u.id] = u
			c.sooner(next)
		}
		if delete(c.awake, u.id); busy {
			c.awake[u.id] = u
		}
		for i, v := range verdicts {
			key := u.keys[i]
			happened = append(happened, v.Transitions...)
			shown = c.show(key, v, busy) || shown
			old := c.states[key]
			if old == v.State {
				continue
			}
			c.note(old, v.State)
			v.State.pack(&p)
			c.put(key, v.State)
			c.moved = c.moved || old == nil || old.Active != v.State.Active || old.Wanted != v.State.Wanted || !maps.Equal(old.pinned(), v.State.pinned())
			switch {
			case !v.First:
				c.hold(key)
			case len(u.keys) == 1:
				alone = append(alone, c.entry(key))
			case v.Changed:
				later = append(later, c.entry(key))
			default:
				sooner = append(sooner, c.entry(key))
			}
		}
	}
	// Errors have been logged. An order is needed only within a group.
	_ = c.save(alone, (*Store).SaveUnordered)
	_ = c.save(append(sooner, later...), (*Store).Save)
	for _, t := range happened {
		c.tell(t)
	}
	if shown && c.cfg.Notify != nil {
		c.cfg.Notify()
	}
}

func (c *Controller) tell(t Transition) {
	level := slog.LevelInfo
	switch {
	case t.Kind == RevisionFailed:
		level = slog.LevelWarn
	case t.Revision == 1 && t.Kind != RolledBack:
		level = slog.LevelDebug // the runner logs a new pod itself
	}
	c.cfg.Log.Log(context.Background(), level, t.Message, "pod", t.Key)
	if c.cfg.Changed != nil {
		c.cfg.Changed(t)
	}
}

func (c *Controller) members(u *unit) []Member {
	all := make([]Member, len(u.keys))
	for i, key := range u.keys {
		f := c.pods[key]
		all[i] = Member{Wanted: f.pod, Hash: f.hash, State: c.states[key], Seen: c.sight(key, f)}
	}
	return all
}

func viewOf(s *State, waits manifests.Key) View {
	return View{Active: s.Active, Wanted: s.Wanted, Written: s.Revision(s.Wanted).Hash, Rollback: s.Rollback, Trial: s.Trial, Base: s.Base, Waits: waits}
}

// hand hands out the pods to run if they may have changed.
func (c *Controller) hand() {
	if c.wanted.hand == nil || !c.moved {
		return
	}
	c.moved = false
	d := c.wanted.Desired
	d.Pods = slices.Clone(d.Pods)
	for i := 0; i < len(d.Pods) && len(c.apart) > 0; i++ {
		if c.apart[d.Pods[i].Key()] {
			d.Pods[i] = c.toRun(d.Pods[i])
		}
	}
	c.wanted.hand(d)
}

// toRun returns the pod as written, or the revision that it was rolled back to.
func (c *Controller) toRun(p *manifests.Pod) *manifests.Pod {
	f, s := c.pods[p.Key()], c.states[p.Key()]
	if f == nil || f.pod != p || s == nil || s.Active == s.Wanted {
		return p
	}
	if f.old != nil && f.number == s.Active && f.origin == p.Origin && f.old.Given == p.Given && maps.Equal(f.old.Images, s.pinned()) {
		return f.old
	}
	old, err := s.Revision(s.Active).Pod(p.Origin)
	if err != nil {
		c.cfg.Log.Error("a revision cannot be run; the current manifest is run", "pod", p.Key(), "err", err)
		return p
	}
	old.Given, f.old, f.number, f.origin = p.Given, old, s.Active, p.Origin
	return old
}

// Rollback rolls a pod back to a revision; see GoBack. When it returns, the decision is stored and handed out. An error that wraps
// ErrNotStored means that only storing it failed. Nothing is changed if admit returns an error for the revision.
func (c *Controller) Rollback(key manifests.Key, to int, admit func(*Revision) error) (*State, error) {
	c.work.Lock()
	defer c.work.Unlock()
	now, s := c.cfg.Clock(), c.states[key]
	if s == nil || c.pods[key] == nil {
		return nil, fmt.Errorf("pod %s: %w", key, ErrUnknown)
	}
	s, err := GoBack(now, s, to)
	if err == nil {
		if r := s.Revision(s.Active); foreign(c.cfg.Options.Spaces, r.Origin, c.pods[key].pod.Origin) {
			err = fmt.Errorf("revision %d is of source %s, which is another space; choose a newer one", r.Number, r.Origin.Source)
		} else {
			err = admit(r)
		}
	}
	if err != nil {
		return nil, err
	}
	c.put(key, s)
	c.moved = true
	if err = c.save([]Entry{c.entry(key)}, (*Store).Save); err != nil {
		err = fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	c.tell(Transition{Key: key, Kind: RolledBack, Revision: s.Active, Message: fmt.Sprintf("manually changed to revision %d", s.Active)})
	c.decide(now, []*unit{c.units[c.pods[key].unit]})
	c.hand()
	c.wake() // to schedule its unit
	return c.states[key], err
}
