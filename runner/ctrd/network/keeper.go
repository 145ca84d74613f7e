package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/repair"
	"monopod/runner/ctrd/network/watch"
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
		o.sortRules(d, e)
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

// sortRules notes what an event about the firewall may have damaged.
func (o *ownNet) sortRules(d *dirt, e watch.Event) {
	switch {
	case strings.HasPrefix(e.Table, nat.TablePrefix), e.Table == "nat" && o.nat.Name() != nat.NFTables:
		d.add(func(s *scope) { s.ports = true })
	case e.Table == "filter" && len(o.filter.sets) > 0:
		d.add(func(s *scope) { s.filter = true })
	}
}

// keep looks at what was noted, and repairs it.
func (n *Network) keep(ctx context.Context, d *dirt) {
	slow := time.NewTicker(checkEvery)
	defer slow.Stop()
	poll := n.newPoll()
	defer func() { poll.stop() }()
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
		if poll.ticker == nil { // Init may have worked since
			poll = n.newPoll()
		}
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

// Repair looks at everything and repairs what it can.
func (n *Network) Repair(ctx context.Context) error {
	n.work.Lock()
	defer n.work.Unlock()
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
	n.work.Lock()
	defer n.work.Unlock()
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
	gone := false
	n.members.change(func() { gone = m.gone })
	if gone {
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
	case repair.Limit:
		return shape(m.link.NetNS, m.pod.Bandwidth)
	}
	return fmt.Errorf("unknown action %s", a)
}
