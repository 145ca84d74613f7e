package services

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/runner/service"
)

// addAPIBackends adds the backends of the Service of the Kubernetes API, which has no pods, to the table.
func (n *Manager) addAPIBackends(t *service.Table) {
	if n.cfg.API == nil {
		return
	}
	behind := n.cfg.API()
	for i := range t.Ports {
		p := &t.Ports[i]
		if p.Service != corev1.NamespaceDefault+"/"+apiName || p.Port != 443 || len(p.To) > 0 {
			continue
		}
		for _, at := range behind {
			if at.Addr().Is6() == p.Addr.Is6() {
				p.To = append(p.To, at)
			}
		}
	}
}

// update updates the kernel rules for Services, and returns the Services with their addresses.
func (n *Manager) update(ctx context.Context, e model.Endpoints) ([]*corev1.Service, error) {
	n.readNode()
	rules, given := n.active(), n.assign(e.Services, true)
	if rules == nil {
		return given, nil
	}
	var t service.Table
	if slices.ContainsFunc(e.Pods, func(p *corev1.Pod) bool { return len(p.Status.PodIPs) > 0 }) { // without pods nothing of them may stay on the machine
		t = service.Plan(model.Endpoints{Services: given, Pods: e.Pods, Origins: e.Origins}, n.remembered())
		n.addAPIBackends(&t)
		t.Ranges = n.refusing()
	}
	n.over = logOver(n.cfg.Log, n.over, t.Over)
	err := rules.Apply(ctx, t)
	if ctx.Err() != nil {
		return given, nil
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != n.lastErr && err != nil {
		n.cfg.Log.Error("cannot update Service rules", "err", err)
	}
	n.lastErr = text
	return given, err
}

// logOver logs once that Services need too much of the kernel, and returns how many do.
func logOver(log *slog.Logger, before int, services []string) int {
	if len(services) > 0 && before == 0 {
		log.Warn("some ports of Services are not opened: all Services together have too many endpoints", "limit", service.MaxElements, "services", len(services), "first", services[0])
	}
	return len(services)
}

// repair checks the rules.
func (n *Manager) repair(ctx context.Context) {
	damaged, err := n.active().Repair(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		n.cfg.Log.Error("the rules of Services are damaged", "err", err)
	case damaged:
		n.cfg.Log.Warn("the rules of Services were damaged and have been repaired")
	}
}

// watch reports damage of the rules until ctx ends.
func (n *Manager) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.active().Watch(ctx, func() {
			select {
			case n.damaged <- struct{}{}:
			default: // a signal is pending
			}
		})
		if ctx.Err() == nil {
			n.cfg.Log.Debug("cannot watch nftables", "err", err)
		}
		pause.For(ctx, rewatch)
	}
}

// Run keeps names and rules up to date until ctx ends. named, which may be nil, is called with the pods and the Services whenever they have
// changed, after the rules. While pods cannot be observed, nothing changes.
func (n *Manager) Run(ctx context.Context, named func(model.Endpoints)) {
	n.mu.Lock()
	idle := n.rules == nil && !n.waits && named == nil
	n.mu.Unlock()
	if idle {
		return
	}
	var g sync.WaitGroup
	defer g.Wait()
	watch := sync.OnceFunc(func() { g.Go(func() { n.watch(ctx) }) })
	if n.active() != nil {
		watch()
	}
	changed, stop := n.cfg.State.Subscribe()
	defer stop()
	again, check := time.NewTimer(0), time.NewTicker(checkServices)
	defer again.Stop()
	defer check.Stop()
	for {
		damaged := false
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again.C:
		case <-check.C:
			if damaged = true; n.again() {
				watch()
			}
			n.readExclusive()
			if n.cfg.Checked != nil {
				n.cfg.Checked()
			}
		case <-n.damaged:
			damaged = true
		}
		began := time.Now()
		if wait := n.pass(ctx, named, damaged); wait > 0 {
			again.Reset(wait)
		}
		pause.For(ctx, max(gather, min(9*time.Since(began), longestGather)))
	}
}

// pass updates once, and returns when to update again; 0 means with the next change.
func (n *Manager) pass(ctx context.Context, named func(model.Endpoints), damaged bool) time.Duration {
	again := time.Duration(0)
	if e, ok := n.cfg.State.Endpoints(); ok {
		given, err := n.update(ctx, e)
		if err != nil {
			again = longestGather
		}
		if named != nil {
			named(model.Endpoints{Pods: e.Pods, Services: given, Origins: e.Origins})
		}
	} else {
		again = poll
	}
	if damaged && n.active() != nil {
		n.repair(ctx)
	}
	return again
}
