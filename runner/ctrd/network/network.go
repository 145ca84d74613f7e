// Package network gives sandboxes their namespaces and their network.
//
// It owns the namespace pins, the default network with its bridge, links, addresses and rules, and the calls of CNI
// plugins where the host has a configuration for them. It must not know containers, nor decide when a network is set
// up or torn down.
//
// Watch is one loop with the goroutines of its netlink sockets. Otherwise there are none beyond a call's, and one OS
// thread per Pin, which ends with it.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"monopod/internal/atomicfile"
	"monopod/internal/cause"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/network/lease"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
)

// Config of a Network.
type Config struct {
	// ConfDir is looked at first; when it holds a CNI configuration, that one is used.
	ConfDir string
	// OwnConfDir is where our own configuration is written otherwise.
	OwnConfDir string
	// BinDirs hold the CNI plugins.
	BinDirs []string
	// DataDir is where host-local keeps its allocations (our own configuration only) and libcni its cache.
	// It also identifies this monopod among several on one host.
	DataDir string
	// PodCIDR is the subnet of our own configuration: IPv4, IPv6, or one of each with a comma between.
	PodCIDR string
	// Bridge is the bridge of our own configuration; empty: monopod0, or a name made from PodCIDR when
	// monopod0 belongs to another subnet.
	Bridge string
	// Resolver says that a resolver listens on the bridge's addresses: its port is opened in the firewall.
	Resolver bool
	// PortsDir is where all monopods of the machine claim host ports, in memory; empty: nothing is claimed.
	PortsDir string
	// Listeners lists the processes that listen on the ports wanted; nil: a pod may take their ports.
	Listeners func(wanted func(port int) bool) ([]hostports.Process, error)
	// Notice, which may be nil, hears of damage and repairs; it must not block.
	Notice func(Notice)
	Log    *slog.Logger
}

// Network connects pods. Its methods may be called concurrently.
type Network struct {
	cfg    Config
	cni    *libcni.CNIConfig
	leases *lease.Store
	claims *hostports.Store
	// members are the pods of the default network.
	members members
	reports reports
	// work lets one go on at a time of Init, Destroy and a look at the default network with its repairs.
	work sync.Mutex
	// removing is what Destroy removes, for another try; only Init may make it again, not a Setup. It is guarded by work.
	removing *ownNet

	mu sync.Mutex // guards the pointer; what it points to never changes
	// conf is nil until Init has worked.
	conf *active
}

// active is the configuration that Init chose: one of the two.
type active struct {
	// foreign is a CNI configuration of the host.
	foreign *libcni.NetworkConfigList
	own     *ownNet
}

// New returns a Network. It does no I/O.
func New(cfg Config) *Network {
	exec := &invoke.DefaultExec{
		RawExec:       &invoke.RawExec{Stderr: pluginLog{cfg.Log}},
		PluginDecoder: version.PluginDecoder{},
	}
	return &Network{
		cfg: cfg, cni: libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, cfg.DataDir, exec),
		leases: lease.New(filepath.Join(allocationDir(cfg.DataDir), ownNetwork), link.Inside),
		claims: hostports.New(cfg.PortsDir, cfg.DataDir, cfg.Listeners),
	}
}

// pluginLog takes what plugins say on stderr.
type pluginLog struct{ log *slog.Logger }

func (l pluginLog) Write(p []byte) (int, error) {
	l.log.Warn("CNI plugin says", "text", string(p))
	return len(p), nil
}

// Init picks or writes the configuration. It refuses a PodCIDR that overlaps a route of the host which is not
// ours. It may be called again; pods that run are not touched. After an Init that failed each Setup tries it
// again: what was missing at boot may be there by then.
func (n *Network) Init(ctx context.Context) error {
	n.work.Lock()
	defer n.work.Unlock()
	n.removing = nil
	return n.initLocked(ctx)
}

func (n *Network) initLocked(ctx context.Context) error {
	conf, err := n.choose(ctx)
	if err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	n.mu.Lock()
	n.conf = conf
	n.mu.Unlock()
	return nil
}

func (n *Network) choose(ctx context.Context) (*active, error) {
	if err := dropDamagedResults(filepath.Join(n.cfg.DataDir, "results")); err != nil {
		return nil, fmt.Errorf("clean up results of CNI plugins: %w", err)
	}
	list, err := foreignConf(n.cfg.ConfDir, n.cfg.BinDirs)
	if err != nil {
		return nil, err
	}
	if list != nil {
		n.cfg.Log.Info("using a CNI configuration of the host", "directory", n.cfg.ConfDir, "network", list.Name)
		return &active{foreign: list}, n.checkPlugins(list)
	}
	return n.chooseOwn(ctx)
}

// chooseOwn writes our own configuration and makes what it needs. Where another monopod was faster with the bridge, it takes another one.
func (n *Network) chooseOwn(ctx context.Context) (*active, error) {
	a, err := n.makeOwn(ctx)
	for tries := 0; errors.Is(err, errTaken) && tries < 3; tries++ {
		if err := os.Remove(n.ownConfPath()); err != nil { // it names that bridge
			return nil, err
		}
		a, err = n.makeOwn(ctx)
	}
	return a, err
}

func (n *Network) makeOwn(ctx context.Context) (*active, error) {
	cidrs, err := parsePodCIDR(n.cfg.PodCIDR)
	if err != nil {
		return nil, err
	}
	spec, err := n.chooseBridge(cidrs)
	if err != nil {
		return nil, err
	}
	o := &ownNet{bridge: spec}
	rules := nat.Config{Bridge: spec.name, CIDRs: cidrs, ID: subnetID(cidrs)}
	filters := filterConfig{bridge: spec.name, cidrs: cidrs, resolver: n.cfg.Resolver}
	if o.nat, err = nat.Choose(ctx, rules); err != nil {
		return nil, err
	}
	filters.loopback = o.nat.Name() != nat.NFTables
	o.filter = newFilter(ctx, filters)
	raw, err := ownConf{bridge: spec.name, cidrs: cidrs, mtu: spec.mtu, dataDir: n.cfg.DataDir}.list()
	if err != nil {
		return nil, err
	}
	// The file first: it tells a run after a crash that a bridge without alias and pods is ours.
	if err := writeFile(n.ownConfPath(), raw); err != nil {
		return nil, fmt.Errorf("write CNI configuration: %w", err)
	}
	if err := n.leases.DropEmpty(); err != nil {
		return nil, fmt.Errorf("clean up IP allocations: %w", err)
	}
	n.cfg.Log.Debug("using the default network", "bridge", spec.name, "hostPorts", o.nat.Name(), "filter", o.filter.backend())
	return &active{own: o}, o.ensure(ctx)
}

// Gateways returns the addresses of the bridge of our own configuration, each with its subnet; none when the host
// has a configuration that is used instead. Neither need exist yet.
func Gateways(cfg Config) ([]netip.Prefix, error) {
	list, err := foreignConf(cfg.ConfDir, cfg.BinDirs)
	if err != nil || list != nil {
		return nil, err
	}
	cidrs, err := parsePodCIDR(cfg.PodCIDR)
	if err != nil {
		return nil, err
	}
	for i, c := range cidrs {
		cidrs[i] = gateway(c)
	}
	return cidrs, nil
}

// chooseBridge decides on the bridge and removes those of a former podCIDR that nobody uses.
func (n *Network) chooseBridge(cidrs []netip.Prefix) (bridgeSpec, error) {
	facts, err := readHost()
	if err != nil {
		return bridgeSpec{}, err
	}
	stored, err := atomicfile.Read(n.ownConfPath(), atomicfile.MaxState)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.cfg.Log.Warn("the network configuration of the last run cannot be read and is written again", "err", err)
	}
	c := choice{cidrs: cidrs, configured: n.cfg.Bridge, stored: storedBridge(stored, cidrs), owner: bridgeAlias(n.cfg.DataDir)}
	for _, name := range c.outdated(facts) {
		if err := deleteLink(name); err != nil {
			return bridgeSpec{}, err
		}
		facts = facts.without(name)
	}
	name, err := c.bridge(facts)
	if err != nil && name == "" {
		return bridgeSpec{}, err
	}
	if err != nil {
		n.cfg.Log.Warn("the pods' subnet is used twice; it is kept because pods run on it", "error", err)
	}
	return bridgeSpec{name: name, alias: c.owner, mtu: facts.MTU, cidrs: cidrs}, nil
}

// bridgeAlias marks a bridge as ours. The kernel keeps 255 bytes.
func bridgeAlias(dataDir string) string {
	alias := aliasPrefix + dataDir
	return alias[:min(len(alias), 255)]
}

func (n *Network) ownConfPath() string { return filepath.Join(n.cfg.OwnConfDir, ownConfName) }

// checkPlugins fails for the plugins of a configuration that are not there.
func (n *Network) checkPlugins(list *libcni.NetworkConfigList) error {
	var errs []error
	for _, p := range list.Plugins {
		errs = append(errs, n.needPlugin(p.Network.Type))
	}
	return errors.Join(errs...)
}

func (n *Network) needPlugin(name string) error {
	if _, err := invoke.FindInPath(name, n.cfg.BinDirs); err != nil {
		return cause.Wrap(fmt.Errorf("CNI plugin %s is missing: %w", name, err), cause.Cause{Kind: cause.CNIPlugin, Program: name})
	}
	return nil
}

// errRemoved says that Destroy was called.
var errRemoved = errors.New("the pod network of this instance is being removed")

// Destroy removes what Init made: bridge, firewall rules and configuration. All pods must have been torn down, and none
// gets a network before the next Init.
func (n *Network) Destroy(ctx context.Context) error {
	n.work.Lock()
	defer n.work.Unlock()
	if conf := n.active(); conf != nil && conf.own != nil {
		n.removing = conf.own
	}
	if n.removing == nil {
		return nil
	}
	n.mu.Lock()
	n.conf = nil // or Watch would repair what goes, also after a failure
	n.mu.Unlock()
	o := n.removing
	err := errors.Join(o.nat.Remove(ctx), o.filter.remove(ctx), deleteLink(o.bridge.name), removeFile(n.ownConfPath()))
	if err != nil {
		return fmt.Errorf("remove pod network: %w", err)
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ready returns the configuration, if need be by another Init.
func (n *Network) ready(ctx context.Context) (*active, error) {
	if conf := n.active(); conf != nil {
		return conf, nil
	}
	n.work.Lock()
	defer n.work.Unlock()
	if n.removing != nil {
		return nil, errRemoved
	}
	if conf := n.active(); conf != nil { // another Setup was faster
		return conf, nil
	}
	if err := n.initLocked(ctx); err != nil {
		return nil, err
	}
	return n.active(), nil
}

func (n *Network) active() *active {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conf
}

// Free returns an error when a subnet, written as Config.PodCIDR, overlaps an address or a route of this machine.
func Free(podCIDR string) error {
	cidrs, err := parsePodCIDR(podCIDR)
	if err != nil {
		return err
	}
	facts, err := readHost()
	if err != nil {
		return err
	}
	return choice{cidrs: cidrs}.overlap(facts)
}
