package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/repair"
)

// look observes what is in the scope and plans.
func (n *Network) look(ctx context.Context, o *ownNet, s scope) ([]repair.Action, error) {
	want := repair.Desired{Bridge: o.bridge.name}
	have := repair.Observed{Pods: map[string]link.State{}, Unlimited: map[string]bool{}, Ports: true, Filter: true}
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
		if m.work.TryLock() { // else it is being changed now
			have.Unlimited[m.id] = state.Exists && state.Veth && !limited(m.link.NetNS, m.pod.Bandwidth)
			m.work.Unlock()
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
