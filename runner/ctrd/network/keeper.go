package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/repair"
	"monopod/runner/ctrd/network/watch"
	"monopod/runner/ctrd/network/xtables"
)

const (
	// gather is how long events are gathered before the network is looked at: what removes one rule removes others too.
	gather = 20 * time.Millisecond
	// checkEvery is how often all is looked at although nothing was reported.
	checkEvery = 2 * time.Minute
	// pollEvery is how often iptables-legacy is looked at, which reports nothing.
	pollEvery = 500 * time.Millisecond
	// passes bounds how often a repair is followed by another look.
	passes = 3
	// busy bounds gather when there is no end of events: a repair still begins within a second.
	busy = 500 * time.Millisecond
	// A pod whose network is damaged again and again, by itself perhaps, is repaired ever less often.
	freely     = 10 // times
	minPenalty = time.Second
	maxPenalty = 30 * time.Second
	// calm is how long there must be peace for gather and penalties to begin again.
	calm = 10 * time.Second
)

// Notice is about damage of the default network.
type Notice struct {
	// Sandbox is the pod's; empty: all pods are concerned.
	Sandbox string
	// Damage is what was found.
	Damage string
	// Err is why it could not be repaired; nil: it was.
	Err error
}

// reports remembers what was reported, so that one damage is reported once.
type reports struct {
	mu   sync.Mutex
	open map[string]string // by sandbox: damage that could not be repaired
}

// fresh says whether a notice is news. What is repaired needs no further report.
func (r *reports) fresh(n Notice) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[string]string{}
	}
	if n.Err == nil {
		delete(r.open, n.Sandbox)
		return true
	}
	text := n.Damage + n.Err.Error()
	if r.open[n.Sandbox] == text {
		return false
	}
	r.open[n.Sandbox] = text
	return true
}

// pending says whether damage waits for another try.
func (r *reports) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open) > 0
}

// forget drops a pod that is gone.
func (r *reports) forget(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, sandbox)
}

// scope is what is to be looked at.
type scope struct {
	// all: everything, and what belongs to no pod.
	all  bool
	host bool
	// ports and filter are the two kinds of rules.
	ports, filter bool
	pods          map[string]bool
}

func (s scope) empty() bool { return !s.all && !s.host && !s.ports && !s.filter && len(s.pods) == 0 }

// dirt gathers what events are about until it is looked at.
type dirt struct {
	mu    sync.Mutex
	scope scope
	wake  chan struct{}
}

func (d *dirt) add(f func(*scope)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.scope.pods == nil {
		d.scope.pods = map[string]bool{}
	}
	f(&d.scope)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dirt) take() scope {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.scope
	d.scope = scope{}
	return s
}

// Watch repairs the default network whenever the kernel reports damage, and now and then unasked, until ctx ends. Pods
// that run already must have been adopted.
func (n *Network) Watch(ctx context.Context) error {
	d := &dirt{wake: make(chan struct{}, 1)}
	d.add(func(s *scope) { s.all = true })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { n.followKernel(ctx, d); return nil })
	g.Go(func() error { n.keep(ctx, d); return nil })
	return g.Wait()
}

// followKernel collects events. Without them there is the slow check.
func (n *Network) followKernel(ctx context.Context, d *dirt) {
	for delay := time.Second; ctx.Err() == nil; delay = min(2*delay, time.Minute) {
		w, err := watch.Open()
		if err == nil {
			d.add(func(s *scope) { s.all = true }) // what happened before
			err = w.Run(ctx, func(e watch.Event) { n.sort(d, e) })
		}
		if ctx.Err() != nil {
			return
		}
		n.cfg.Log.Warn("changes of the network are not reported", "err", err, "again_in", delay)
		wait(ctx, delay)
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// sort notes what an event may have damaged; most are about nothing of ours, or about something that came.
func (n *Network) sort(d *dirt, e watch.Event) {
	conf := n.active()
	if conf == nil || conf.own == nil {
		return
	}
	o := conf.own
	if e.Kind == watch.Lost {
		d.add(func(s *scope) { s.all = true })
		return
	}
	if e.Kind == watch.Rules {
		switch {
		case strings.HasPrefix(e.Table, nat.TablePrefix), e.Table == "nat" && o.nat.Name() != nat.NFTables:
			d.add(func(s *scope) { s.ports = true })
		case e.Table == "filter" && len(o.filter.sets) > 0:
			d.add(func(s *scope) { s.filter = true })
		}
		return
	}
	bridge := o.lastIndex.Load()
	if e.NSID == watch.Host && e.Index == int(bridge) && bridge > 0 {
		if e.Deleted || e.Kind == watch.Link && !e.Up {
			d.add(func(s *scope) { s.host = true })
		}
		return
	}
	if !e.Deleted && (e.Kind != watch.Link || e.Up && (e.NSID != watch.Host || e.Master == int(bridge))) {
		return
	}
	if id, ok := n.members.whose(e); ok {
		d.add(func(s *scope) { s.pods[id] = true })
	}
}

// keep looks at what was noted, and repairs it.
func (n *Network) keep(ctx context.Context, d *dirt) {
	slow := time.NewTicker(checkEvery)
	defer slow.Stop()
	poll := n.newPoll(ctx)
	defer poll.stop()
	later := time.NewTimer(checkEvery)
	defer later.Stop()
	var last time.Time
	delay := gather
	p := penalties{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-slow.C:
			d.add(func(s *scope) { s.all = true })
			continue
		case <-later.C:
			again, due := p.due(time.Now()), n.reports.pending()
			d.add(func(s *scope) {
				s.all = s.all || due
				for _, id := range again {
					s.pods[id] = true
				}
			})
			continue
		case <-poll.c():
			if poll.changed() {
				d.add(func(s *scope) { s.ports, s.filter = true, true })
			}
			continue
		}
		if time.Since(last) > calm {
			delay = gather
		}
		wait(ctx, delay)
		last, delay = time.Now(), min(2*delay, busy)
		damaged := n.check(ctx, p.defers(d.take(), last))
		if next := p.punish(damaged, time.Now()); next > 0 || n.reports.pending() {
			later.Reset(max(next, retryAfter(n.reports.pending())))
		}
	}
}

// retryAfter is when what could not be repaired is tried again.
func retryAfter(pending bool) time.Duration {
	if pending {
		return calm
	}
	return 0
}

// penalties keep a pod that damages its own network from keeping the agent busy.
type penalties map[string]*penalty

type penalty struct {
	times int
	delay time.Duration
	until time.Time
	// waiting says that events of it were put off.
	waiting bool
}

// defers takes the pods out of a scope whose time has not come. A look at all is rare enough.
func (p penalties) defers(s scope, now time.Time) scope {
	for id := range s.pods {
		if e := p[id]; e != nil && now.Before(e.until) {
			e.waiting = true
			delete(s.pods, id)
		}
	}
	return s
}

// punish notes which pods were damaged, and returns in how long one that was put off is due; 0: none.
func (p penalties) punish(damaged []string, now time.Time) (next time.Duration) {
	for _, id := range damaged {
		if id == "" {
			continue
		}
		e := p[id]
		if e == nil {
			e = &penalty{}
			p[id] = e
		}
		if e.times++; e.times > freely {
			e.delay = min(max(2*e.delay, minPenalty), maxPenalty)
		}
		e.until = now.Add(e.delay)
	}
	for id, e := range p {
		if now.After(e.until.Add(calm)) {
			delete(p, id)
		}
		if left := e.until.Sub(now); e.waiting && (next == 0 || left < next) {
			next = max(left, time.Millisecond)
		}
	}
	return next
}

// due returns the pods that were put off and are due.
func (p penalties) due(now time.Time) []string {
	var out []string
	for id, e := range p {
		if e.waiting && !now.Before(e.until) {
			e.waiting = false
			out = append(out, id)
		}
	}
	return out
}

// Repair looks at everything and repairs what it can.
func (n *Network) Repair(ctx context.Context) error {
	conf := n.active()
	if conf == nil || conf.own == nil {
		return nil
	}
	var errs []error
	n.repair(ctx, conf.own, scope{all: true}, func(v Notice) { errs = append(errs, v.Err) })
	return errors.Join(errs...)
}

// check repairs what is in the scope, and returns the pods that were damaged; "" is the host.
func (n *Network) check(ctx context.Context, s scope) (damaged []string) {
	conf := n.active()
	if conf == nil || conf.own == nil || s.empty() {
		return nil
	}
	return n.repair(ctx, conf.own, s, n.notice)
}

func (n *Network) notice(v Notice) {
	if !n.reports.fresh(v) {
		return
	}
	if v.Err != nil {
		n.cfg.Log.Error("the pod network is damaged", "sandbox", v.Sandbox, "damage", v.Damage, "err", v.Err)
	} else {
		n.cfg.Log.Warn("the pod network was damaged and has been repaired", "sandbox", v.Sandbox, "damage", v.Damage)
	}
	if n.cfg.Notice != nil {
		n.cfg.Notice(v)
	}
}

// repair plans and applies until there is nothing left to do, or the passes are used up, and reports the outcome.
func (n *Network) repair(ctx context.Context, o *ownNet, s scope, tell func(Notice)) []string {
	found := map[string][]string{}
	failed := map[string]error{}
	for range passes {
		acts, err := n.look(ctx, o, s)
		if err != nil {
			if ctx.Err() == nil {
				n.cfg.Log.Warn("the pod network cannot be looked at", "err", err)
			}
			break
		}
		clear(failed)
		if len(acts) == 0 {
			break
		}
		for _, a := range acts {
			if err := n.apply(ctx, o, a); err != nil {
				failed[a.Pod] = errors.Join(failed[a.Pod], err)
			}
			if text := found[a.Pod]; len(text) == 0 || text[len(text)-1] != a.Damage {
				found[a.Pod] = append(text, a.Damage)
			}
			if a.Kind == repair.MakeBridge { // ports, and rules that name it, may be damaged with it
				s.all = true
			}
		}
	}
	for pod, damage := range found {
		if ctx.Err() == nil {
			tell(Notice{Sandbox: pod, Damage: strings.Join(damage, "; "), Err: failed[pod]})
		}
	}
	return slices.Collect(maps.Keys(found))
}

// look observes what is in the scope and plans.
func (n *Network) look(ctx context.Context, o *ownNet, s scope) ([]repair.Action, error) {
	want := repair.Desired{Bridge: o.bridge.name}
	have := repair.Observed{Pods: map[string]link.State{}, Ports: true, Filter: true}
	var err error
	if have.Bridge, err = o.observe(); err != nil {
		return nil, err
	}
	o.lastIndex.Store(int64(have.Bridge.Index))
	if s.all {
		want.Names = n.members.hostNames() // before the links: what comes between is known
	}
	if have.Links, err = link.Ports(); err != nil {
		return nil, err
	}
	for _, m := range n.members.list() {
		if !s.all && !s.host && !s.pods[m.id] {
			continue
		}
		state, err := link.Inspect(m.link.NetNS)
		if err != nil {
			n.cfg.Log.Warn("the network of a pod cannot be looked at", "sandbox", m.id, "err", err)
			continue
		}
		have.Pods[m.id] = state
		if state.Exists {
			n.members.change(func() { m.ends = link.Ends{Index: state.Host, NSID: state.NSID} })
		}
		want.Pods = append(want.Pods, repair.Pod{ID: m.id, Addrs: m.link.Addrs, Gateways: m.link.Gateways})
	}
	if s.all || s.filter {
		have.Filter = o.filter.present(ctx)
	}
	if s.all || s.ports {
		if have.Ports, err = n.portsIntact(ctx, o); err != nil {
			return nil, err
		}
	}
	return repair.Plan(want, have), nil
}

func (n *Network) portsIntact(ctx context.Context, o *ownNet) (bool, error) {
	o.rules.Lock()
	defer o.rules.Unlock()
	return o.nat.Intact(ctx, n.members.openPorts())
}

// observe looks at the bridge.
func (o *ownNet) observe() (repair.Bridge, error) {
	dev, err := netlink.LinkByName(o.bridge.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return repair.Bridge{}, nil
	}
	if err != nil {
		return repair.Bridge{}, fmt.Errorf("bridge %s: %w", o.bridge.name, err)
	}
	b := repair.Bridge{Index: dev.Attrs().Index}
	alias := dev.Attrs().Alias
	switch _, isBridge := dev.(*netlink.Bridge); {
	case !isBridge:
		b.Foreign = "a device of that name exists and is no bridge; remove it"
		return b, nil
	case alias != o.bridge.alias && strings.HasPrefix(alias, aliasPrefix):
		b.Foreign = "it belongs to another monopod (" + strings.TrimPrefix(alias, aliasPrefix) + ")"
		return b, nil
	}
	l, err := o.bridge.lacks(dev)
	if err != nil {
		return b, err
	}
	b.Down = l.down
	for _, a := range l.addrs {
		b.Lost = append(b.Lost, fmt.Sprintf("address %s was removed", a))
	}
	if len(l.addrs) == 0 && !l.down { // they went with those
		for _, r := range l.routes {
			b.Lost = append(b.Lost, fmt.Sprintf("route %s was removed", r))
		}
	}
	for _, name := range o.bridge.settings() {
		if text, err := os.ReadFile(name); err == nil && len(text) > 0 && text[0] == '0' {
			b.Lost = append(b.Lost, name+" was 0")
		}
	}
	return b, nil
}

// apply does one action.
func (n *Network) apply(ctx context.Context, o *ownNet, a repair.Action) error {
	switch a.Kind {
	case repair.GiveUp:
		return errors.New("it cannot be repaired")
	case repair.MakeBridge:
		return errors.Join(ensureBridge(o.bridge), o.bridge.forward())
	case repair.SetFilter:
		return o.filter.apply(ctx)
	case repair.SetPorts:
		o.rules.Lock()
		defer o.rules.Unlock()
		return o.nat.Replace(ctx, n.members.openPorts())
	case repair.Drop:
		l, err := netlink.LinkByIndex(a.Port)
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		return netlink.LinkDel(l)
	}
	m := n.members.get(a.Pod)
	if m == nil {
		return nil
	}
	m.work.Lock()
	defer m.work.Unlock()
	if m.gone {
		return nil
	}
	return n.applyTo(o, m, a)
}

// applyTo does what is to be done for a pod whose work is held.
func (n *Network) applyTo(o *ownNet, m *member, a repair.Action) error {
	switch a.Kind {
	case repair.Connect:
		ends, err := o.connect(m.link, m.pod.Bandwidth)
		if err == nil {
			n.members.change(func() { m.ends = ends })
		}
		return err
	case repair.Attach:
		bridge, err := o.index()
		if err != nil {
			return err
		}
		return link.Attach(m.link, a.Port, bridge)
	case repair.Complete:
		return link.Complete(m.link)
	}
	return fmt.Errorf("unknown action %s", a)
}

// poll looks for changes of iptables-legacy.
type poll struct {
	ticker *time.Ticker
	sizes  []xtables.Size
}

// newPoll returns one that never ticks where the kernel reports changes.
func (n *Network) newPoll(ctx context.Context) *poll {
	conf, err := n.ready(ctx)
	if err != nil || conf.own == nil || !conf.own.filter.legacy && conf.own.nat.Name() == nat.NFTables {
		return &poll{}
	}
	return &poll{ticker: time.NewTicker(pollEvery)}
}

func (p *poll) c() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

func (p *poll) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}

// changed says whether the number or size of rules differs from last time.
func (p *poll) changed() bool {
	now := xtables.Sizes()
	same := len(now) == len(p.sizes)
	for i := range now {
		same = same && now[i] == p.sizes[i]
	}
	p.sizes = now
	return !same
}
