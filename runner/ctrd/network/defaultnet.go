package network

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"

	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/filter"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/watch"
)

// defaultNet is the part of the default network that pods share.
type defaultNet struct {
	bridge bridge.Spec
	filter *filter.Rules
	// lastIndex is the last known index of the bridge.
	lastIndex atomic.Int64

	// rules serializes changes of host ports.
	rules sync.Mutex
	nat   nat.Backend
}

// ensure creates missing parts of bridge and rules.
func (o *defaultNet) ensure(ctx context.Context) error {
	if err := o.bridge.Ensure(); err != nil {
		return err
	}
	if o.filter.Present(ctx) {
		return nil
	}
	return o.filter.Apply(ctx)
}

// connect creates the veth pair of a pod. If the bridge disappears meanwhile, it is created again once.
func (o *defaultNet) connect(l link.Pod, b bandwidth.Limits) (link.Ends, error) {
	var ends link.Ends
	for try := range 2 {
		index, err := o.bridge.Index()
		if err != nil {
			return ends, err
		}
		if ends, err = link.Connect(l, index); err == nil {
			break
		}
		if _, gone := netlink.LinkByIndex(index); try > 0 || gone == nil {
			return ends, err
		}
	}
	if b == (bandwidth.Limits{}) {
		return ends, nil
	}
	return ends, bandwidth.Apply(l.NetNS, b)
}

// addRules adds the rules that a firewall event may have damaged to the scope.
func (o *defaultNet) addRules(d *pending, e watch.Event) {
	switch {
	case strings.HasPrefix(e.Table, nat.TablePrefix), e.Table == "nat" && o.nat.Name() != nat.NFTables:
		d.add(func(s *scope) { s.ports = true })
	case e.Table == "filter" && len(o.filter.Sets) > 0:
		d.add(func(s *scope) { s.filter = true })
	}
}
