package network

import (
	"time"

	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/xtables"
)

// poll detects changes of iptables-legacy rules.
type poll struct {
	ticker *time.Ticker
	sizes  []xtables.Size
}

// newPoll returns a poll that never ticks if the kernel reports changes.
func (k *keeper) newPoll() *poll {
	o := k.own()
	if o == nil || !o.filter.Legacy && o.nat.Name() == nat.NFTables {
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

// changed reports whether the number or size of rules differs from the last call.
func (p *poll) changed() bool {
	now := xtables.Sizes()
	same := len(now) == len(p.sizes)
	for i := range now {
		same = same && now[i] == p.sizes[i]
	}
	p.sizes = now
	return !same
}
