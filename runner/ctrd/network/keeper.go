package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/pause"
	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/repair"
	"monopod/runner/ctrd/network/watch"
)

const (
	// gather is how long events are collected before a check, because rules and links are often removed together.
	gather = 20 * time.Millisecond
	// checkEvery is the interval of complete checks without events.
	checkEvery = 2 * time.Minute
	// pollEvery is the polling interval for iptables-legacy, which reports no events.
	pollEvery = 500 * time.Millisecond
	// passes limits how often a repair is followed by another check.
	passes = 3
	// busy limits gather during continuous events, so that a repair begins within a second.
	busy = 500 * time.Millisecond
	// A pod whose network is damaged repeatedly, perhaps by itself, is repaired less and less often.
	freely     = 10 // repairs without a penalty
	minPenalty = time.Second
	maxPenalty = 30 * time.Second
	// calm is how long there must be no damage until gather and penalties are reset.
	calm = 10 * time.Second
)

// Notice reports damage of the default network.
type Notice struct {
	// Sandbox is the affected sandbox; empty: all.
	Sandbox string
	// Damage describes the damage.
	Damage string
	// Err is why it could not be repaired, or nil.
	Err error
}

// keeper detects and repairs damage of the default network.
type keeper struct {
	*current
	pods    *pods
	reports reports
	// notice and checked may be nil.
	notice  func(Notice)
	checked func()
	log     *slog.Logger
}

// Watch repairs the default network when the kernel reports damage, and periodically, until ctx ends. Running pods must have been adopted.
func (k *keeper) Watch(ctx context.Context) error {
	d := &pending{wake: make(chan struct{}, 1)}
	d.add(func(s *scope) { s.all = true })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { k.followKernel(ctx, d); return nil })
	g.Go(func() error { k.loop(ctx, d); return nil })
	return g.Wait()
}

// followKernel collects kernel events. While they are unavailable only the periodic checks run.
func (k *keeper) followKernel(ctx context.Context, d *pending) {
	for delay := time.Second; ctx.Err() == nil; delay = min(2*delay, time.Minute) {
		w, err := watch.Open()
		if err == nil {
			d.add(func(s *scope) { s.all = true }) // damage before the subscription
			err = w.Run(ctx, func(e watch.Event) { k.sort(d, e) })
		}
		if ctx.Err() != nil {
			return
		}
		k.log.Warn("network events are unavailable", "err", err, "retry_in", delay)
		pause.For(ctx, delay)
	}
}

// sort adds to the scope what an event may have damaged. Most events concern other networks, or report something new.
func (k *keeper) sort(d *pending, e watch.Event) {
	o := k.own()
	if o == nil {
		return
	}
	if e.Kind == watch.Lost {
		d.add(func(s *scope) { s.all = true })
		return
	}
	if e.Kind == watch.Rules {
		o.addRules(d, e)
		return
	}
	bridge := o.lastIndex.Load()
	if e.NSID == watch.Host && e.Index == int(bridge) && bridge > 0 {
		if e.Deleted || e.Kind == watch.Route || e.Kind == watch.Link && !e.Up {
			d.add(func(s *scope) { s.host = true })
		}
		return
	}
	if !e.Deleted && (e.Kind != watch.Link || e.Up && (e.NSID != watch.Host || e.Master == int(bridge))) {
		return
	}
	if id, ok := k.pods.byEvent(e); ok {
		d.add(func(s *scope) { s.pods[id] = true })
	}
}

// loop checks and repairs what is pending.
func (k *keeper) loop(ctx context.Context, d *pending) {
	slow := time.NewTicker(checkEvery)
	defer slow.Stop()
	poll := k.newPoll()
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
			if k.checked != nil {
				k.checked()
			}
			continue
		case <-later.C:
			again, due := p.due(time.Now()), k.reports.pending()
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
		pause.For(ctx, delay)
		last, delay = time.Now(), min(2*delay, busy)
		if poll.ticker == nil { // Init may have succeeded since
			poll = k.newPoll()
		}
		damaged := k.check(ctx, p.deferred(d.take(), last))
		if next := p.add(damaged, time.Now()); next > 0 || k.reports.pending() {
			later.Reset(max(next, retryAfter(k.reports.pending())))
		}
	}
}

// retryAfter returns when failed repairs are tried again; 0: none failed.
func retryAfter(pending bool) time.Duration {
	if pending {
		return calm
	}
	return 0
}

// Repair checks and repairs everything once.
func (k *keeper) Repair(ctx context.Context) error {
	k.work.Lock()
	defer k.work.Unlock()
	o := k.own()
	if o == nil {
		return nil
	}
	var errs []error
	k.repair(ctx, o, scope{all: true}, func(v Notice) { errs = append(errs, v.Err) })
	return errors.Join(errs...)
}

// check repairs what is in the scope, and returns the damaged pods; "" is the host.
func (k *keeper) check(ctx context.Context, s scope) (damaged []string) {
	k.work.Lock()
	defer k.work.Unlock()
	o := k.own()
	if o == nil || s.empty() {
		return nil
	}
	return k.repair(ctx, o, s, k.report)
}

func (k *keeper) report(v Notice) {
	if !k.reports.fresh(v) {
		return
	}
	if v.Err != nil {
		k.log.Error("the pod network is damaged", "sandbox", v.Sandbox, "damage", v.Damage, "err", v.Err)
	} else {
		k.log.Warn("the pod network was damaged and has been repaired", "sandbox", v.Sandbox, "damage", v.Damage)
	}
	if k.notice != nil {
		k.notice(v)
	}
}

// repair observes, plans and applies until no damage remains, for a limited number of passes, and reports the result.
func (k *keeper) repair(ctx context.Context, o *defaultNet, s scope, report func(Notice)) []string {
	found := map[string][]string{}
	failed := map[string]error{}
	for range passes {
		acts, err := k.observe(ctx, o, s)
		if err != nil {
			if ctx.Err() == nil {
				k.log.Warn("the pod network cannot be checked", "err", err)
			}
			break
		}
		clear(failed)
		if len(acts) == 0 {
			break
		}
		for _, a := range acts {
			if err := k.apply(ctx, o, a); err != nil {
				failed[a.Pod] = errors.Join(failed[a.Pod], err)
			}
			if text := found[a.Pod]; len(text) == 0 || text[len(text)-1] != a.Damage {
				found[a.Pod] = append(text, a.Damage)
			}
			if a.Kind == repair.MakeBridge { // its ports, and rules that name it, may be damaged too
				s.all = true
			}
		}
	}
	for pod, damage := range found {
		if ctx.Err() == nil {
			report(Notice{Sandbox: pod, Damage: strings.Join(damage, "; "), Err: failed[pod]})
		}
	}
	return slices.Collect(maps.Keys(found))
}

// apply executes an action.
func (k *keeper) apply(ctx context.Context, o *defaultNet, a repair.Action) error {
	switch a.Kind {
	case repair.GiveUp:
		return errors.New("it cannot be repaired")
	case repair.MakeBridge:
		return o.bridge.Ensure()
	case repair.SetFilter:
		return o.filter.Apply(ctx)
	case repair.SetPorts:
		o.rules.Lock()
		defer o.rules.Unlock()
		return o.nat.Replace(ctx, k.pods.openPorts())
	case repair.Drop:
		return link.DeleteIndex(a.Port)
	}
	m := k.pods.get(a.Pod)
	if m == nil {
		return nil
	}
	m.opMu.Lock()
	defer m.opMu.Unlock()
	gone := false
	k.pods.change(func() { gone = m.gone })
	if gone {
		return nil
	}
	return k.applyTo(o, m, a)
}

// applyTo executes an action for a pod whose work is held.
func (k *keeper) applyTo(o *defaultNet, m *podEntry, a repair.Action) error {
	switch a.Kind {
	case repair.Connect:
		ends, err := o.connect(m.link, m.pod.Bandwidth)
		if err == nil {
			k.pods.change(func() { m.ends = ends })
		}
		return err
	case repair.Attach:
		index, err := o.bridge.Index()
		if err != nil {
			return err
		}
		return link.Attach(m.link, a.Port, index)
	case repair.Complete:
		return link.Complete(m.link)
	case repair.Limit:
		return bandwidth.Apply(m.link.NetNS, m.pod.Bandwidth)
	}
	return fmt.Errorf("unknown action %s", a)
}
