// Package services translates connections to Services in the kernel.
//
// It owns one nftables table per address family, named after the instance, and the conntrack entries of UDP flows to Services. It must not
// know Services or pods, only a service.Table, and must not touch rules of other programs. Rules.Watch starts a goroutine, and waits for
// it.
package services

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/network/watch"
	"monopod/runner/service"
)

// TablePrefix is the name prefix of the tables of all instances.
const TablePrefix = "monopod-services-"

// TableName returns the name of the tables of an instance, which its data directory identifies.
func TableName(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return TablePrefix + hex.EncodeToString(sum[:])[:6]
}

// Config of Rules.
type Config struct {
	// Table is the name of the tables.
	Table string
	// Pods are the subnets of the pods. Cluster IPs work only for pods in these subnets and for this machine, so that two instances may
	// have the same. If empty, they work for all clients.
	Pods []netip.Prefix
	Log  *slog.Logger
}

// Rules are the tables of one instance. Its methods may be called concurrently.
type Rules struct {
	cfg Config

	mu sync.Mutex
	// have is the known content of the kernel's tables by address family, guarded by mu.
	have map[bool]*layout
}

// New returns Rules. It does no I/O.
func New(cfg Config) *Rules { return &Rules{cfg: cfg, have: map[bool]*layout{}} }

// Supported returns an error if the kernel cannot translate connections to Services.
func (r *Rules) Supported() error {
	self := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	w := newWant(service.Table{IPs: []netip.Addr{self}, Ranges: []netip.Prefix{netip.PrefixFrom(self, self.BitLen())}}, false)
	p := service.Port{Sticky: time.Minute, To: []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), 1)}}
	p.Protocol, p.Addr = service.TCP, netip.IPv4Unspecified()
	w.enter(&p)
	p.Addr = self
	p.From = []netip.Prefix{netip.PrefixFrom(p.Addr, p.Addr.BitLen())}
	w.enter(&p)
	probe := New(Config{Table: r.cfg.Table + "-probe", Pods: r.cfg.Pods})
	if err := probe.layout(false, w).try(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// Apply updates the kernel to translate connections according to the table, with one transaction per address family.
func (r *Rules) Apply(ctx context.Context, t service.Table) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, v6 := range []bool{false, true} {
		if err := r.applyLocked(v6, newWant(t, v6)); err != nil {
			delete(r.have, v6)
			errs = append(errs, fmt.Errorf("nftables table %s: %w", r.cfg.Table, err))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func (r *Rules) applyLocked(v6 bool, w *want) error {
	have := r.have[v6]
	if have != nil && have.want.equal(w) {
		return nil
	}
	l := r.layout(v6, w)
	if w.empty() {
		if err := removeTable(l.f.family, r.cfg.Table); err != nil {
			return err
		}
		r.have[v6] = l
		return nil
	}
	err := l.change(have)
	if err != nil {
		err = l.replaceUnless()
	}
	if err != nil {
		return err
	}
	r.have[v6] = l
	var before *want
	if have != nil {
		before = have.want
	}
	r.forget(v6, before, w)
	return nil
}

// forget drops UDP flows that lead elsewhere now.
func (r *Rules) forget(v6 bool, before, now *want) {
	if err := forgetFlows(v6, before, now); err != nil {
		r.cfg.Log.Warn("UDP flows to Services cannot be dropped", "err", err)
	}
}

// Repair restores the tables if they differ from what was applied. It reports whether they were damaged.
func (r *Rules) Repair(ctx context.Context) (damaged bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v6 := range []bool{false, true} {
		l := r.have[v6]
		if l == nil || l.want.empty() || ctx.Err() != nil {
			continue
		}
		ok, err := l.matches()
		if err == nil && !ok {
			damaged = true
			if err = l.replace(l.clients()); err == nil {
				r.forget(v6, nil, l.want) // clients that began meanwhile have entries without translation
			}
		}
		if err != nil {
			return damaged, fmt.Errorf("nftables table %s: %w", r.cfg.Table, err)
		}
	}
	return damaged, ctx.Err()
}

// Watch calls damaged, which must not block, whenever parts of the tables are removed, also by Apply, until ctx ends.
func (r *Rules) Watch(ctx context.Context, damaged func()) error {
	w, err := watch.OpenRules()
	if err != nil {
		return err
	}
	damaged() // before the subscription
	return w.Run(ctx, func(e watch.Event) {
		if e.Kind == watch.Lost || e.Table == r.cfg.Table {
			damaged()
		}
	})
}

// Remove removes the tables of an instance. It is idempotent.
func Remove(table string) error {
	return errors.Join(removeTable(nftables.TableFamilyIPv4, table), removeTable(nftables.TableFamilyIPv6, table))
}

// Remove removes the tables.
func (r *Rules) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.have)
	return Remove(r.cfg.Table)
}

// removeTable removes a table. A kernel without nftables has none.
func removeTable(family nftables.TableFamily, name string) error {
	c, err := connect()
	if err != nil {
		return err
	}
	t := &nftables.Table{Family: family, Name: name}
	c.AddTable(t) // so that the delete cannot fail because it is missing
	c.DelTable(t)
	if err := c.Flush(); err != nil && !is(err, unix.EPROTONOSUPPORT) && !is(err, unix.EINVAL) && !is(err, unix.EAFNOSUPPORT) && !is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("remove nftables table %s: %w", name, err)
	}
	return nil
}

// batchBytes is the size of the largest transaction: about 20,000 endpoints.
const batchBytes = 4 << 20

// connect returns a connection with room for large transactions.
func connect() (*nftables.Conn, error) { return nftables.New(nftables.WithSockOptions(enlarge)) }

func enlarge[C interface {
	SetWriteBuffer(bytes int) error
	SetReadBuffer(bytes int) error
}](c C,
) error {
	return errors.Join(c.SetWriteBuffer(batchBytes), c.SetReadBuffer(batchBytes))
}

// is reports whether an error is the given errno.
func is(err error, number unix.Errno) bool { return errors.Is(err, number) }

// content is the content of a table for one kind of frontends. Keys and values are encoded as in the kernel.
type content struct {
	// services maps frontends with endpoints to chains.
	services map[string]string
	// endpoints holds the first endpoint of each frontend without session affinity, then the second, and so on.
	endpoints []map[string]string
	// refused are the frontends without endpoints.
	refused map[string]string
}

// want is the content of the table of one address family.
type want struct {
	// addrs are the frontends with an address, node those on all addresses of the machine.
	addrs, node content
	// ips are the cluster IPs, pods the pairs of each endpoint with itself.
	ips, pods map[string]string
	// ranges are the ranges of cluster IPs; none if no Service has one.
	ranges []netip.Prefix
	// limited are the chains of the frontends that are not for all clients, from the clients of each chain.
	limited map[string]string
	from    map[string][]netip.Prefix
	// spreads are chains for frontends by their number of endpoints, sticky those of frontends whose clients stay with an endpoint.
	spreads map[string]spread
	sticky  map[string]*service.Port
	// to are the endpoints of each frontend.
	to map[service.Frontend][]netip.AddrPort
}

// spread is a chain for frontends with the same number of endpoints.
type spread struct {
	node  bool
	count int
}

func newContent() content {
	return content{services: map[string]string{}, refused: map[string]string{}}
}

func newWant(t service.Table, v6 bool) *want {
	w := &want{
		addrs: newContent(), node: newContent(), ips: map[string]string{}, pods: map[string]string{}, spreads: map[string]spread{},
		limited: map[string]string{}, from: map[string][]netip.Prefix{}, sticky: map[string]*service.Port{}, to: map[service.Frontend][]netip.AddrPort{},
	}
	for _, ip := range t.IPs {
		if ip.Is6() == v6 {
			w.ips[string(ip.AsSlice())] = ""
		}
	}
	for _, r := range t.Ranges {
		if r.Addr().Is6() == v6 && len(t.IPs) > 0 { // a machine without Services has no rules
			w.ranges = append(w.ranges, r)
		}
	}
	for i := range t.Ports {
		if p := &t.Ports[i]; p.Addr.Is6() == v6 {
			w.enter(p)
		}
	}
	return w
}

// enter adds a frontend.
func (w *want) enter(p *service.Port) {
	w.to[p.Frontend] = p.To
	node := p.Addr.IsUnspecified()
	c, key := &w.addrs, frontendKey(p.Frontend)
	if node {
		c = &w.node
	}
	if len(p.From) > 0 && !node {
		name := fromChain(p.From)
		w.limited[key], w.from[name] = name, p.From
	}
	if len(p.To) == 0 {
		c.refused[key] = ""
		return
	}
	for n, to := range p.To {
		if p.Sticky <= 0 {
			if n == len(c.endpoints) {
				c.endpoints = append(c.endpoints, map[string]string{})
			}
			c.endpoints[n][key] = target(to)
		}
		w.pods[string(to.Addr().AsSlice())+string(to.Addr().AsSlice())] = ""
	}
	if p.Sticky > 0 {
		c.services[key] = stickyChain(p)
		w.sticky[stickyChain(p)] = p
		return
	}
	s := spread{node: node, count: len(p.To)}
	c.services[key] = s.name()
	w.spreads[s.name()] = s
}

func (s spread) name() string {
	if s.node {
		return fmt.Sprintf("node-spread-%d", s.count)
	}
	return fmt.Sprintf("spread-%d", s.count)
}

// stickyChain is the name of the chain of a frontend with session affinity, and endpointChain of the one for such an endpoint.
func stickyChain(p *service.Port) string {
	return "sticky-" + short(fmt.Sprintln(p.Frontend, p.Sticky))
}

func endpointChain(p *service.Port, to netip.AddrPort) string {
	return "to-" + short(fmt.Sprintln(p.Frontend, p.Sticky, to))
}

// fromChain is the name of the chain that drops connections of other clients.
func fromChain(all []netip.Prefix) string { return "from-" + short(fmt.Sprintln(all)) }

func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:12]
}

func (w *want) empty() bool { return len(w.to)+len(w.ips)+len(w.ranges) == 0 }

func (w *want) equal(o *want) bool {
	same := maps.Equal(w.addrs.services, o.addrs.services) && maps.Equal(w.node.services, o.node.services) // how clients stay, too
	same = same && slices.Equal(w.ranges, o.ranges)
	return same && maps.Equal(w.ips, o.ips) && maps.Equal(w.limited, o.limited) && maps.EqualFunc(w.to, o.to, slices.Equal)
}
