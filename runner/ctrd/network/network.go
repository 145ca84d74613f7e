// Package network connects pods. It owns the default network, with its bridge, links, addresses, rules and repair, and the calls of CNI plugins
// if the host has a CNI configuration; it must not know containers, nor decide when a pod is connected or disconnected.
//
// Goroutines: the caller of Watch, and one that receives kernel events for it.
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

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/filter"
	"monopod/runner/ctrd/network/hostcni"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/network/lease"
	"monopod/runner/ctrd/network/link"
	"monopod/runner/ctrd/network/nat"
	"monopod/runner/ctrd/network/services"
)

// Config of a Network.
type Config struct {
	// ConfDir may contain a CNI configuration, which is used instead of the default network; empty: none is used.
	ConfDir string
	// OwnConfDir is where the configuration of the default network is written.
	OwnConfDir string
	// BinDirs contain the CNI plugins.
	BinDirs []string
	// DataDir contains the IP allocations of the default network, in the format of host-local, and the cache of libcni. It also identifies
	// this monopod among several on one host.
	DataDir string
	// PodCIDR is the subnet of the default network: IPv4, IPv6, or one of each separated by a comma.
	PodCIDR string
	// Bridge is the bridge of the default network; empty: monopod0, or a name derived from PodCIDR if monopod0 belongs to another subnet.
	Bridge string
	// Resolver opens the DNS port of the bridge's addresses in the firewall.
	Resolver bool
	// API opens the Kubernetes API of this machine for pods, with an unspecified address at the bridge's addresses; the zero value: nothing.
	API netip.AddrPort
	// PortsDir is the directory, on a tmpfs, in which all monopods of the machine claim host ports; empty: ports are not claimed.
	PortsDir string
	// Listeners returns the processes that listen on wanted ports. Nil: ports of processes are not respected.
	Listeners func(wanted func(port int) bool) ([]hostports.Process, error)
	// Notice, which may be nil, is called for damage and repairs. It must not block.
	Notice func(Notice)
	// Chosen, which may be nil, is called with the network that Init has chosen. It must not block.
	Chosen func(Choice)
	// Checked, which may be nil, is called when a periodic check begins. It must not block.
	Checked func()
	Log     *slog.Logger
}

// Choice is the network of new pods. One field is set.
type Choice struct {
	// CNI is the name of a CNI network of the host.
	CNI string
	// Bridge is that of the default network.
	Bridge string
}

// Network connects pods. It is safe for concurrent use.
type Network struct {
	cfg Config
	*current
	*keeper
	plugins *plugins
	pods    *pods
	claims  *hostports.Store
	// removing is what Destroy has begun to remove. Only Init may create it again, a Setup must not. It is guarded by work.
	removing *defaultNet
}

// current is the configuration in use.
type current struct {
	// work serializes Init, Destroy and repairs.
	work sync.Mutex

	mu sync.Mutex
	// conf is nil until Init has succeeded. What it points to never changes.
	conf *active
}

// active is the configuration that Init chose. One field is set.
type active struct {
	// foreign is a CNI configuration of the host.
	foreign *libcni.NetworkConfigList
	own     *defaultNet
}

func (a *active) choice() Choice {
	if a.foreign != nil {
		return Choice{CNI: a.foreign.Name}
	}
	return Choice{Bridge: a.own.bridge.Name}
}

func (c *current) active() *active {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conf
}

// own returns the default network, or nil if it is not in use.
func (c *current) own() *defaultNet {
	if conf := c.active(); conf != nil {
		return conf.own
	}
	return nil
}

func (c *current) set(conf *active) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conf = conf
}

// New returns a Network. It does no I/O.
func New(cfg Config) *Network {
	c := &current{}
	p := &pods{leases: lease.New(filepath.Join(allocationDir(cfg.DataDir), OwnName), link.Interface), log: cfg.Log}
	return &Network{
		cfg: cfg, current: c, pods: p, plugins: newPlugins(cfg),
		keeper: &keeper{current: c, pods: p, notice: cfg.Notice, checked: cfg.Checked, log: cfg.Log},
		claims: hostports.New(cfg.PortsDir, cfg.DataDir, cfg.Listeners),
	}
}

// Init chooses a CNI configuration of the host, or creates the default network. It rejects a PodCIDR that overlaps a foreign route of the host.
// It may be called again, and does not affect running pods. After a failed Init each Setup tries again, because the cause may be gone.
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
	n.set(conf)
	if n.cfg.Chosen != nil {
		n.cfg.Chosen(conf.choice())
	}
	return nil
}

func (n *Network) choose(ctx context.Context) (*active, error) {
	if err := dropDamagedResults(filepath.Join(n.cfg.DataDir, "results")); err != nil {
		return nil, fmt.Errorf("clean up results of CNI plugins: %w", err)
	}
	list, err := hostcni.Find(n.cfg.ConfDir, n.cfg.BinDirs)
	if err != nil {
		return nil, err
	}
	if list != nil {
		n.cfg.Log.Info("using a CNI configuration of the host", "directory", n.cfg.ConfDir, "network", list.Name)
		return &active{foreign: list}, n.plugins.check(list)
	}
	if n.cfg.ConfDir != "" {
		n.cfg.Log.Warn("the configured directory has no CNI configuration, and the default network is used", "directory", n.cfg.ConfDir)
	}
	return n.chooseOwn(ctx)
}

// chooseOwn creates the default network, with another bridge if another monopod has just created that one.
func (n *Network) chooseOwn(ctx context.Context) (*active, error) {
	a, err := n.makeOwn(ctx)
	for tries := 0; errors.Is(err, bridge.ErrTaken) && tries < 3; tries++ {
		if err := os.Remove(n.ownConfPath()); err != nil { // it has the name of that bridge
			return nil, err
		}
		a, err = n.makeOwn(ctx)
	}
	return a, err
}

func (n *Network) makeOwn(ctx context.Context) (*active, error) {
	cidrs, err := bridge.ParsePodCIDR(n.cfg.PodCIDR)
	if err != nil {
		return nil, err
	}
	spec, err := n.chooseBridge(cidrs)
	if err != nil {
		return nil, err
	}
	o := &defaultNet{bridge: spec}
	rules := nat.Config{Bridge: spec.Name, CIDRs: cidrs, ID: bridge.SubnetID(cidrs)}
	filters := filter.Config{Bridge: spec.Name, CIDRs: cidrs, Resolver: n.cfg.Resolver, API: n.cfg.API}
	if o.nat, err = nat.Choose(ctx, rules); err != nil {
		return nil, err
	}
	filters.Loopback = o.nat.Name() != nat.NFTables
	o.filter = filter.New(ctx, filters)
	raw, err := ownConf{bridge: spec.Name, cidrs: cidrs, mtu: spec.MTU, dataDir: n.cfg.DataDir}.list()
	if err != nil {
		return nil, err
	}
	// The file is written first, so that after a crash a bridge without alias and pods is recognized.
	if err := writeFile(n.ownConfPath(), raw); err != nil {
		return nil, fmt.Errorf("write CNI configuration: %w", err)
	}
	if err := n.pods.leases.DropEmpty(); err != nil {
		return nil, fmt.Errorf("clean up IP allocations: %w", err)
	}
	n.cfg.Log.Debug("using the default network", "bridge", spec.Name, "hostPorts", o.nat.Name(), "filter", o.filter.Backend())
	return &active{own: o}, o.ensure(ctx)
}

// Gateways returns the addresses of the bridge of the default network with their subnets, before or after it is created. It returns none if a
// CNI configuration of the host is used instead.
func Gateways(cfg Config) ([]netip.Prefix, error) {
	list, err := hostcni.Find(cfg.ConfDir, cfg.BinDirs)
	if err != nil || list != nil {
		return nil, err
	}
	cidrs, err := bridge.ParsePodCIDR(cfg.PodCIDR)
	if err != nil {
		return nil, err
	}
	for i, c := range cidrs {
		cidrs[i] = bridge.Gateway(c)
	}
	return cidrs, nil
}

// chooseBridge chooses the bridge, and removes unused ones of a former podCIDR.
func (n *Network) chooseBridge(cidrs []netip.Prefix) (bridge.Spec, error) {
	facts, err := bridge.ReadHost()
	if err != nil {
		return bridge.Spec{}, err
	}
	stored, err := atomicfile.Read(n.ownConfPath(), atomicfile.MaxState)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.cfg.Log.Warn("the network configuration of the last run cannot be read and is rewritten", "err", err)
	}
	c := bridge.Choice{CIDRs: cidrs, Configured: n.cfg.Bridge, Stored: storedBridge(stored, cidrs), Owner: bridgeAlias(n.cfg.DataDir)}
	for _, name := range c.Outdated(facts) {
		if err := bridge.DeleteDevice(name); err != nil {
			return bridge.Spec{}, err
		}
		facts = facts.Without(name)
	}
	name, err := c.Bridge(facts)
	if err != nil && name == "" {
		return bridge.Spec{}, err
	}
	if err != nil {
		n.cfg.Log.Warn("the subnet of the pods overlaps another one; it is kept because pods use it", "err", err)
	}
	return bridge.Spec{Name: name, Alias: c.Owner, MTU: facts.MTU, CIDRs: cidrs}, nil
}

// bridgeAlias returns the alias of the bridge, which identifies this monopod. The kernel limits it to 255 bytes.
func bridgeAlias(dataDir string) string {
	alias := bridge.AliasPrefix + dataDir
	return alias[:min(len(alias), 255)]
}

func (n *Network) ownConfPath() string { return filepath.Join(n.cfg.OwnConfDir, ownConfName) }

// errRemoved is the error of a Setup after Destroy.
var errRemoved = errors.New("the pod network of this instance is being removed")

// Destroy removes bridge, firewall rules, including those of Services, and configuration. All pods must have been disconnected, and none is
// connected before the next Init.
func (n *Network) Destroy(ctx context.Context) error {
	n.work.Lock()
	defer n.work.Unlock()
	if err := services.Remove(services.TableName(n.cfg.DataDir)); err != nil {
		return err
	}
	if o := n.own(); o != nil {
		n.removing = o
	}
	if n.removing == nil {
		return nil
	}
	n.set(nil) // otherwise Watch would repair what is removed, also after a failure
	o := n.removing
	err := errors.Join(o.nat.Remove(ctx), o.filter.Remove(ctx), bridge.DeleteDevice(o.bridge.Name), removeFile(n.ownConfPath()))
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

// ready returns the configuration, and calls Init again if necessary.
func (n *Network) ready(ctx context.Context) (*active, error) {
	if conf := n.active(); conf != nil {
		return conf, nil
	}
	n.work.Lock()
	defer n.work.Unlock()
	if n.removing != nil {
		return nil, errRemoved
	}
	if conf := n.active(); conf != nil { // a concurrent Setup succeeded
		return conf, nil
	}
	if err := n.initLocked(ctx); err != nil {
		return nil, err
	}
	return n.active(), nil
}

// Free returns an error if a subnet, in the format of Config.PodCIDR, overlaps an address or a route of this machine.
func Free(podCIDR string) error {
	cidrs, err := bridge.ParsePodCIDR(podCIDR)
	if err != nil {
		return err
	}
	facts, err := bridge.ReadHost()
	if err != nil {
		return err
	}
	return bridge.Choice{CIDRs: cidrs}.Overlap(facts)
}
