package network

import (
	"net/netip"
	"slices"
	"sync"

	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/watch"
)

// members are the pods of the default network, as they should be connected.
type members struct {
	mu  sync.Mutex // guards the fields
	all map[string]*member
	// count is how many there have been.
	count int
}

// member is one pod. Set-up, repair and teardown of it hold work, one after the other; the fields are guarded by the
// members' mu, and change only while work is held too.
type member struct {
	work sync.Mutex

	id string
	// number orders the members: the latest of two that have a port has it.
	number int
	pod    Pod
	link   link.Pod
	ports  []nat.Port
	ends   link.Ends
	// ready says that it is connected, gone that its teardown has begun.
	ready, gone bool
}

// enter returns the member of a pod with its work held; one whose teardown has begun is replaced.
func (m *members) enter(p Pod) *member {
	m.mu.Lock()
	if m.all == nil {
		m.all = map[string]*member{}
	}
	e := m.all[p.SandboxID]
	if e == nil {
		m.count++
		e = &member{id: p.SandboxID, number: m.count, pod: p, ends: link.Ends{NSID: watch.Host}}
		m.all[p.SandboxID] = e
	}
	m.mu.Unlock()
	e.work.Lock()
	return e
}

// leave removes a pod and returns it, nil when there is none; whoever worked on it has finished.
func (m *members) leave(id string) *member {
	m.mu.Lock()
	e := m.all[id]
	delete(m.all, id)
	if e != nil {
		e.gone = true
	}
	m.mu.Unlock()
	if e != nil {
		e.work.Lock()
		e.work.Unlock() //nolint:staticcheck // waits for a repair under way
	}
	return e
}

// change changes a member, whose work the caller holds.
func (m *members) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// get returns a member, nil when there is none.
func (m *members) get(id string) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[id]
}

// list returns the members that are connected, the latest first.
func (m *members) list() []*member {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*member
	for _, e := range m.all {
		if e.ready {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *member) int { return b.number - a.number })
	return out
}

// hostNames are the host ends of all members, also of those that are being connected.
func (m *members) hostNames() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for id := range m.all {
		out[link.HostName(id)] = true
	}
	return out
}

// openPorts are the ports of all members that are connected. A port may be there twice: the sandbox that replaces
// another one of the same pod comes before that is torn down.
func (m *members) openPorts() []nat.Port {
	var out []nat.Port
	for _, e := range m.list() {
		m.change(func() { out = append(out, e.ports...) })
	}
	return out
}

// whose returns the id of the pod that an event of a link is about: by its host end, or by its namespace.
func (m *members) whose(e watch.Event) (id string, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.all {
		if p.ready && (e.NSID != watch.Host && p.ends.NSID == e.NSID || e.NSID == watch.Host && p.ends.Index == e.Index && e.Index > 0) {
			return id, true
		}
	}
	return "", false
}

// portsOf translates the host ports of a pod with these addresses. A port for one address of the host leads to the
// pod's address of that family.
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
