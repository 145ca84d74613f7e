package network

import (
	"time"

	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/xtables"
)

// poll looks for changes of iptables-legacy.
type poll struct {
	ticker *time.Ticker
	sizes  []xtables.Size
}

// newPoll returns one that never ticks where the kernel reports changes.
func (n *Network) newPoll() *poll {
	conf := n.active()
	if conf == nil || conf.own == nil || !conf.own.filter.legacy && conf.own.nat.Name() == nat.NFTables {
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
