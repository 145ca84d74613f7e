package network

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"monopod/runner/ctrd/network/lease"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/watch"
)

// pods are the pods of the default network with their desired connections.
type pods struct {
	leases *lease.Store
	log    *slog.Logger

	mu  sync.Mutex // guards the fields below
	all map[string]*podEntry
	// count is the number of members that were ever created.
	count int
}

// podEntry is a pod of the default network. opMu serializes its set-up, repair and teardown. The other fields are guarded by pods.mu, and
// changed only while opMu is held too.
type podEntry struct {
	opMu sync.Mutex

	id string
	// number orders the members. Of two with the same host port the later one gets it.
	number int
	pod    Pod
	link   link.Pod
	ports  []nat.Port
	ends   link.Ends
	// ready reports whether it is connected, gone whether its teardown has begun.
	ready, gone bool
}

// acquire returns the entry of a pod with its opMu locked. An entry whose teardown has begun is replaced.
func (p *pods) acquire(pod Pod) *podEntry {
	p.mu.Lock()
	if p.all == nil {
		p.all = map[string]*podEntry{}
	}
	e := p.all[pod.SandboxID]
	if e == nil {
		p.count++
		e = &podEntry{id: pod.SandboxID, number: p.count, pod: pod, ends: link.Ends{NSID: watch.Host}}
		p.all[pod.SandboxID] = e
	}
	p.mu.Unlock()
	e.opMu.Lock()
	return e
}

// release removes the entry of a sandbox and returns it, or nil. It waits for a repair in progress.
func (p *pods) release(id string) *podEntry {
	p.mu.Lock()
	e := p.all[id]
	delete(p.all, id)
	if e != nil {
		e.gone = true
	}
	p.mu.Unlock()
	if e != nil {
		e.opMu.Lock()
		e.opMu.Unlock() //nolint:staticcheck // waits for a repair in progress
	}
	return e
}

// change calls f to change an entry whose opMu the caller holds.
func (p *pods) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// get returns an entry, or nil.
func (p *pods) get(id string) *podEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

// list returns the connected members, the latest first.
func (p *pods) list() []*podEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*podEntry
	for _, e := range p.all {
		if e.ready {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *podEntry) int { return b.number - a.number })
	return out
}

// hostNames returns the host ends of all members, including those that are being connected.
func (p *pods) hostNames() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]bool{}
	for id := range p.all {
		out[link.HostName(id)] = true
	}
	return out
}

// openPorts returns the host ports of all connected members. A port may occur twice, because a replacement sandbox is connected before the
// old one is torn down.
func (p *pods) openPorts() []nat.Port {
	var out []nat.Port
	for _, e := range p.list() {
		p.change(func() { out = append(out, e.ports...) })
	}
	return out
}

// byEvent returns the sandbox that a link event concerns, by its host end or its namespace.
func (p *pods) byEvent(e watch.Event) (id string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, m := range p.all {
		if m.ready && (e.NSID != watch.Host && m.ends.NSID == e.NSID || e.NSID == watch.Host && m.ends.Index == e.Index && e.Index > 0) {
			return id, true
		}
	}
	return "", false
}

// portsOf returns the host ports of a pod with these addresses. A port on one address of the host is forwarded to the pod's address of the
// same family.
func portsOf(p Pod, addrs []netip.Prefix) []nat.Port {
	var out []nat.Port
	for _, m := range hostPorts(p) {
		host, _ := netip.ParseAddr(m.HostIP)
		for _, a := range addrs {
			if host.IsValid() && host.Unmap().Is4() != a.Addr().Is4() {
				continue
			}
			port := nat.Port{Protocol: m.Protocol, HostPort: uint16(m.HostPort), To: netip.AddrPortFrom(a.Addr(), uint16(m.ContainerPort))}
			if host.IsValid() && !host.IsUnspecified() {
				port.HostIP = host.Unmap()
			}
			out = append(out, port)
		}
	}
	return out
}
