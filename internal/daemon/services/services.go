// Package services allocates the addresses of Services, and keeps the kernel rules up to date that translate them to pods.
//
// It must not know how the kernel does that, nor decide which address a Service has: package runner/service does. Manager.Run starts a goroutine for
// events of the kernel, and waits for it.
package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/service"
)

const (
	// checkServices is the interval of checks of the rules without events, and of attempts to give Services addresses, and rewatch that of attempts to get events.
	checkServices = 2 * time.Minute
	rewatch       = time.Minute
	// gather is how long changes of pods are gathered before names and rules are updated. With many pods it is longer, at most longestGather, so
	// that updating takes at most a tenth of the time.
	gather        = 20 * time.Millisecond
	longestGather = time.Second
	// poll is the interval of polling at startup, while nothing announces a change.
	poll = 100 * time.Millisecond
)

// State is what Services and pods are read from: *state.Store.
type State interface {
	// Subscribe returns a channel that receives a value after each change, and a function that ends the subscription.
	Subscribe() (<-chan struct{}, func())
	// Endpoints returns the pods and the Services; ok is false while the pods are not known.
	Endpoints() (e model.Endpoints, ok bool)
	// Services returns the Services, which are known before the pods are; ok is false before that.
	Services() (services []*corev1.Service, ok bool)
	// ServiceOrigins returns their sources.
	ServiceOrigins() *model.Origins
}

// Config of a Network.
type Config struct {
	// Agent is the configuration of the agent.
	Agent *config.Loaded
	State State
	Log   *slog.Logger
	// Rules returns the kernel rules for pods in these subnets, or in any if there are none; if nil, a Service is only a DNS name for its
	// pods.
	Rules func(cfg *config.Config, pods []netip.Prefix, log *slog.Logger) containers.Rules
	// Gateways returns the addresses of monopod's own bridge. It may be nil.
	Gateways func(*config.Config) ([]netip.Prefix, error)
	// Addresses returns the addresses of this machine.
	Addresses func() ([]string, error)
	// API returns the backend addresses of the Service of the Kubernetes API, default/kubernetes; none if there is no such Service. It may
	// be nil.
	API func() []netip.AddrPort
	// Free returns an error if a range overlaps a network of the machine. It may be nil.
	Free func(subnet string) error
	// Checked is called when a periodic check begins. It may be nil.
	Checked func()
}

// variables are the environment variables of the Services in a namespace that pods of a source see.
type variables struct {
	source, namespace string
	// withoutAPI reports that the Service of the Kubernetes API is left out.
	withoutAPI bool
	all        map[string]string
}

// Manager manages the Services of an agent. Its methods may be called concurrently, after Prepare.
type Manager struct {
	cfg     Config
	file    string
	damaged chan struct{}

	mu sync.Mutex // guards those below
	// rules are nil while Services are only names: serviceSubnet is off, or the machine cannot do it now, which is tried again while waits is set.
	rules  containers.Rules
	waits  bool
	config service.Config
	memory service.Memory
	// exclusive are the ranges that no other network of the machine overlaps. Others have addresses that are not for Services.
	exclusive []netip.Prefix
	// from are the Services that given is made of; known reports whether they are all.
	from, given []*corev1.Service
	known       bool
	byKey       map[manifests.Key]*corev1.Service
	// noted are the current notes, with the time at which they were first made.
	noted map[service.Note]metav1.Time
	// lacks is why Services have no addresses although they should; empty: they have, or should not.
	lacks string
	// variables are those of given that were asked for last, for all containers of a namespace that start.
	variables variables

	// api is the Service of the Kubernetes API; nil until it is needed.
	api *corev1.Service

	// lastErr is the last error of update, the only one that uses it.
	lastErr string
	// over is the number of Services that the last plan had no room for.
	over int
}

// New returns the Services of an agent. It does no I/O.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, file: filepath.Join(cfg.Agent.RootDirectory, "services.json"), damaged: make(chan struct{}, 1), noted: map[service.Note]metav1.Time{},
	}
}

// Prepare determines whether Services can have addresses. It must return before any pod is created, because pods get the addresses.
func (n *Manager) Prepare(context.Context) {
	if n.cfg.Rules == nil {
		return
	}
	n.readMemory()
	rules, err := n.prepare()
	passes := err != nil && !errors.Is(err, errOverlap)
	if err != nil {
		n.cfg.Log.Warn("Services have no addresses: their names resolve to their pods, whose ports clients must use", "err", err)
	}
	if n.active() == nil && (!passes || !n.inUse()) { // clients of addresses in use are better served by the old rules than by none
		if err := rules.Remove(); err != nil {
			n.cfg.Log.Debug("the rules of Services cannot be removed", "err", err)
		}
	}
}

// prepare gives Services addresses from now on, by the returned rules. An error is why they have none yet.
func (n *Manager) prepare() (containers.Rules, error) {
	var pods []netip.Prefix
	if n.cfg.Gateways != nil {
		if gateways, err := n.cfg.Gateways(&n.cfg.Agent.Config); err == nil && len(gateways) > 0 {
			pods = prefixes(n.cfg.Agent.PodCIDR)
		}
	}
	rules := n.cfg.Rules(&n.cfg.Agent.Config, pods, n.cfg.Log)
	ranges, err := n.ranges(pods, rules)
	exclusive := n.exclusiveOf(ranges)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waits = err != nil && !errors.Is(err, errOverlap); err != nil {
		if text := err.Error(); text != n.lacks {
			n.lacks, n.byKey = text, nil
		}
		return rules, err
	}
	if len(ranges) == 0 {
		return rules, nil
	}
	n.rules, n.config, n.byKey = rules, service.Config{Ranges: ranges, Instance: n.cfg.Agent.RootDirectory, Node: n.config.Node}, nil
	n.exclusive = exclusive
	return rules, nil
}

// exclusiveOf returns the ranges that no other network of the machine overlaps.
func (n *Manager) exclusiveOf(ranges []netip.Prefix) (out []netip.Prefix) {
	for _, r := range ranges {
		if n.cfg.Free == nil || n.cfg.Free(r.String()) == nil {
			out = append(out, r)
		}
	}
	return out
}

// readExclusive follows networks, such as those of a VPN, that come and go.
func (n *Manager) readExclusive() {
	n.mu.Lock()
	ranges, before := n.config.Ranges, n.exclusive
	n.mu.Unlock()
	now := n.exclusiveOf(ranges)
	if slices.Equal(before, now) {
		return
	}
	n.cfg.Log.Info("networks of the machine that overlap the addresses of Services have changed", "serviceSubnet", ranges, "exclusive", now)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.exclusive = now
}

// refusing returns the ranges whose addresses without a Service are refused.
func (n *Manager) refusing() []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exclusive
}

// active returns the rules; nil: Services are only names now.
func (n *Manager) active() containers.Rules {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rules
}

// inUse reports whether Services have addresses of the configured ranges.
func (n *Manager) inUse() bool {
	return slices.ContainsFunc(prefixes(n.cfg.Agent.ServiceSubnet), n.used)
}

// used reports whether Services have addresses of a range.
func (n *Manager) used(r netip.Prefix) bool {
	for _, g := range n.remembered().Services {
		if slices.ContainsFunc(g.IPs, r.Contains) {
			return true
		}
	}
	return false
}

// again tries once more to give Services addresses, and reports whether they have them now.
func (n *Manager) again() bool {
	n.mu.Lock()
	waits := n.waits
	n.mu.Unlock()
	if !waits {
		return false
	}
	if _, err := n.prepare(); err != nil {
		n.cfg.Log.Debug("Services still have no addresses", "err", err)
	}
	return n.active() != nil
}

// ranges returns the ranges of cluster IPs in the order of the subnets of the pods, without families that pods do not have; none if
// disabled. The error is the reason why there cannot be any.
func (n *Manager) ranges(pods []netip.Prefix, rules containers.Rules) ([]netip.Prefix, error) {
	all := prefixes(n.cfg.Agent.ServiceSubnet)
	out := all
	if len(pods) > 0 {
		out = nil
	}
	for _, p := range pods {
		for _, r := range all {
			if r.Overlaps(p) {
				return nil, fmt.Errorf("serviceSubnet %s overlaps podCIDR %s; %w", r, p, errOverlap)
			}
			if r.Addr().Is6() == p.Addr().Is6() {
				out = append(out, r)
			}
		}
	}
	for _, r := range out {
		if n.cfg.Free == nil {
			break
		}
		err := n.cfg.Free(r.String())
		if err != nil && n.used(r) { // a wider route, such as that of a VPN, does no harm: addresses are translated before they are routed
			n.cfg.Log.Warn("the addresses of Services overlap a network of the machine; those in use are kept", "serviceSubnet", r.String(), "err", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("set serviceSubnet to a free range, or to off: %w", err)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, rules.Supported()
}

// prefixes parses a list of subnets. Other words, like off, are omitted.
func prefixes(list string) (out []netip.Prefix) {
	for part := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(part)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// apiName is the Service of the Kubernetes API, in the namespace default.
const apiName = "kubernetes"
