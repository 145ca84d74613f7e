package names

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// Limits of one client, which is a pod, so that none of them takes what the others need. Resolvers of libraries ask two
// questions at once for each search domain, and go on with the next when they are answered.
const (
	// maxWaiting is how many queries of one client are passed on at once, maxConnections how many connections it may have.
	maxWaiting     = 32
	maxConnections = 32
	// perSecond and burst are how many queries of one client are answered.
	perSecond = 1000
	burst     = 2000
	// maxClients is how many addresses are known at once; subnets of pods have fewer.
	maxClients = 4096
	// forgetAfter is when a client that asks nothing has room for all queries again, as if it were new.
	forgetAfter = burst * time.Second / perSecond
)

// clients counts what each client does now.
type clients struct {
	mu sync.Mutex
	// All below is guarded by mu.
	byAddr map[netip.Addr]*client
	// others share what one client has: they are those beyond maxClients.
	others client
	// forgot is when those that ask nothing were last looked for: not for each query, when a pod makes up addresses.
	forgot time.Time
}

// client is one of them. It has room for a number of queries, which fills up with time.
type client struct {
	busy int
	room float64
	at   time.Time
}

func newClients() *clients {
	return &clients{byAddr: map[netip.Addr]*client{}, others: client{room: burst}}
}

// getLocked returns a client.
func (c *clients) getLocked(a netip.Addr, now time.Time) *client {
	if k := c.byAddr[a]; k != nil {
		return k
	}
	if len(c.byAddr) >= maxClients && now.Sub(c.forgot) >= forgetAfter {
		c.forgot = now
		maps.DeleteFunc(c.byAddr, func(_ netip.Addr, k *client) bool { return k.busy == 0 && now.Sub(k.at) >= forgetAfter })
	}
	if len(c.byAddr) >= maxClients {
		return &c.others
	}
	k := &client{room: burst, at: now}
	c.byAddr[a] = k
	return k
}

// admits reports whether a query received at now is answered.
func (c *clients) admits(a netip.Addr, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.getLocked(a, now)
	k.room = min(burst, k.room+max(0, now.Sub(k.at).Seconds())*perSecond)
	k.at = now
	if k.room < 1 {
		return false
	}
	k.room--
	return true
}

// begin takes note of something that a client waits for, unless most of its kind are under way. end must follow.
func (c *clients) begin(a netip.Addr, most int) (end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.getLocked(a, time.Now())
	if k.busy >= most {
		return nil, false
	}
	k.busy++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		k.busy--
	}, true
}
