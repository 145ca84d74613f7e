package network

import (
	"context"

	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/repair"
)

// observe checks what is in the scope, and returns the actions that repair it.
func (k *keeper) observe(ctx context.Context, o *defaultNet, s scope) ([]repair.Action, error) {
	want := repair.Desired{Bridge: o.bridge.Name}
	have := repair.Observed{Pods: map[string]link.State{}, Unlimited: map[string]bool{}, Ports: true, Filter: true}
	var err error
	if have.Bridge, err = o.bridge.Observe(); err != nil {
		return nil, err
	}
	o.lastIndex.Store(int64(have.Bridge.Index))
	if s.all {
		want.Names = k.pods.hostNames() // before the links, so that a pod that is connected meanwhile is known
	}
	if have.Links, err = link.Ports(); err != nil {
		return nil, err
	}
	for _, m := range k.pods.list() {
		if !s.all && !s.host && !s.pods[m.id] {
			continue
		}
		state, err := link.Inspect(m.link.NetNS)
		if err != nil {
			k.log.Warn("the network of a pod cannot be checked", "sandbox", m.id, "err", err)
			continue
		}
		have.Pods[m.id] = state
		if state.Exists {
			k.pods.change(func() { m.ends = link.Ends{Index: state.Host, NSID: state.NSID} })
		}
		if m.opMu.TryLock() { // otherwise it is being changed now
			have.Unlimited[m.id] = state.Exists && state.Veth && !bandwidth.Applied(m.link.NetNS, m.pod.Bandwidth)
			m.opMu.Unlock()
		}
		want.Pods = append(want.Pods, repair.Pod{ID: m.id, Addrs: m.link.Addrs, Gateways: m.link.Gateways})
	}
	if s.all || s.filter {
		have.Filter = o.filter.Present(ctx)
	}
	if s.all || s.ports {
		if have.Ports, err = k.portsIntact(ctx, o); err != nil {
			return nil, err
		}
	}
	return repair.Plan(want, have), nil
}

func (k *keeper) portsIntact(ctx context.Context, o *defaultNet) (bool, error) {
	o.rules.Lock()
	defer o.rules.Unlock()
	return o.nat.Intact(ctx, k.pods.openPorts())
}
