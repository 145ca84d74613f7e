package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

const (
	// podInterface is the name of the interface in the pod.
	podInterface = "eth0"
	// cleanupTimeout bounds the DEL after an ADD that did not work.
	cleanupTimeout = 30 * time.Second

	capPortMappings = "portMappings"
)

// PortMapping is one hostPort.
type PortMapping struct {
	HostPort      int32
	ContainerPort int32
	Protocol      string // tcp, udp, sctp
	HostIP        string
}

// Pod is a sandbox that is to be connected.
type Pod struct {
	SandboxID string
	NetNS     string
	// Pin is a namespace that exists as long as the pod; empty: NetNS.
	Pin          string
	Namespace    string
	Name         string
	UID          string
	PortMappings []PortMapping
	Bandwidth    Bandwidth
}

// Setup connects a pod and returns its addresses, IPv4 first: on the default network, or by CNI ADD where the host has
// a configuration. lo is up already: Pin did it. A host port that is another's is a *hostports.HeldError. After an error
// nothing of the pod is left behind, or Teardown is still to be called; repeating starts with Teardown.
func (n *Network) Setup(ctx context.Context, p Pod) ([]string, error) {
	ips, err := n.setup(ctx, p)
	if err == nil {
		return ips, nil
	}
	// Also when ctx has ended: half a network would block the next try.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return nil, fmt.Errorf("set up network of pod %s/%s: %w", p.Namespace, p.Name, errors.Join(err, n.teardown(cctx, p)))
}

func (n *Network) setup(ctx context.Context, p Pod) ([]string, error) {
	conf, err := n.ready(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.claims.Take(p.claim(n.cfg.DataDir), true); err != nil {
		return nil, err
	}
	if conf.own != nil {
		return n.connect(ctx, conf.own, p)
	}
	list := conf.foreign
	if len(hostPorts(p)) > 0 && !hasCapability(list, capPortMappings) {
		return nil, fmt.Errorf("the CNI configuration %q of %s has no plugin for hostPort; add portmap with the capability portMappings", list.Name, n.cfg.ConfDir)
	}
	if p.Bandwidth != (Bandwidth{}) && !hasCapability(list, capBandwidth) {
		return nil, fmt.Errorf("the CNI configuration %q of %s has no plugin that limits bandwidth; add bandwidth with the capability bandwidth", list.Name, n.cfg.ConfDir)
	}
	return n.add(ctx, list, p)
}

func (n *Network) add(ctx context.Context, list *libcni.NetworkConfigList, p Pod) ([]string, error) {
	result, err := n.cni.AddNetworkList(ctx, list, runtimeConf(p, p.NetNS))
	if err != nil {
		return nil, err
	}
	return addresses(result)
}

func hasCapability(list *libcni.NetworkConfigList, name string) bool {
	for _, p := range list.Plugins {
		if p.Network.Capabilities[name] {
			return true
		}
	}
	return false
}

// portMapEntry is a port mapping as CNI's conventions spell it.
type portMapEntry struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

func hostPorts(p Pod) []portMapEntry {
	var out []portMapEntry
	for _, m := range p.PortMappings {
		if m.HostPort <= 0 {
			continue
		}
		protocol := strings.ToLower(m.Protocol)
		if protocol == "" {
			protocol = "tcp"
		}
		out = append(out, portMapEntry{m.HostPort, m.ContainerPort, protocol, m.HostIP})
	}
	return out
}

// runtimeConf has the arguments that containerd's CRI gives.
func runtimeConf(p Pod, netns string) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{
		ContainerID: p.SandboxID,
		NetNS:       netns,
		IfName:      podInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.Namespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.SandboxID},
			{"K8S_POD_UID", p.UID},
		},
	}
	args := map[string]any{}
	if ports := hostPorts(p); len(ports) > 0 {
		args[capPortMappings] = ports
	}
	if p.Bandwidth != (Bandwidth{}) {
		args[capBandwidth] = p.Bandwidth.entry()
	}
	if len(args) > 0 {
		rt.CapabilityArgs = args
	}
	return rt
}

// addresses returns those of the pod's interface, IPv4 first.
func addresses(r types.Result) ([]string, error) {
	result, err := types100.NewResultFromResult(r)
	if err != nil {
		return nil, fmt.Errorf("result of the CNI plugins: %w", err)
	}
	var v4, v6 []string
	for _, ip := range result.IPs {
		if !inPod(result, ip.Interface) {
			continue
		}
		if isV4(ip.Address.IP) {
			v4 = append(v4, ip.Address.IP.String())
		} else {
			v6 = append(v6, ip.Address.IP.String())
		}
	}
	if len(v4)+len(v6) == 0 {
		return nil, fmt.Errorf("the CNI plugins gave %s no address", podInterface)
	}
	return append(v4, v6...), nil
}

// inPod says whether index means the pod's interface; plugins may leave it out when there is only one.
func inPod(r *types100.Result, index *int) bool {
	if index == nil {
		return true
	}
	return *index >= 0 && *index < len(r.Interfaces) && r.Interfaces[*index].Name == podInterface
}

func isV4(ip net.IP) bool { return ip.To4() != nil }

// Teardown undoes Setup: what the pod has of the default network, and what CNI plugins gave it, by the configuration of
// its ADD, which libcni has kept; where that is lost, by the present one of the host. The link of the default network goes with the namespace, which the caller unpins
// next, unless Setup follows, which replaces it. It is idempotent; a namespace that is gone already is not an error.
func (n *Network) Teardown(ctx context.Context, p Pod) error {
	if err := n.teardown(ctx, p); err != nil {
		return fmt.Errorf("tear down network of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (n *Network) teardown(ctx context.Context, p Pod) error {
	err := errors.Join(n.disconnect(ctx, p), n.undoPlugins(ctx, p))
	if err != nil {
		return err // the ports stay claimed while something may lead to the pod
	}
	return n.claims.Drop(p.SandboxID)
}

func (n *Network) undoPlugins(ctx context.Context, p Pod) error {
	netns := p.NetNS
	if !isNamespace(netns) {
		netns = "" // gone, by a reboot for example: plugins then release what is not in it
	}
	kept, err := n.cni.GetCachedAttachments(p.SandboxID)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range kept {
		list, err := libcni.NetworkConfFromBytes(k.Config)
		if err != nil {
			errs = append(errs, fmt.Errorf("kept configuration of network %s: %w", k.Network, err))
			continue
		}
		rt := &libcni.RuntimeConf{ContainerID: p.SandboxID, NetNS: netns, IfName: k.IfName, Args: k.CniArgs, CapabilityArgs: k.CapabilityArgs}
		errs = append(errs, n.del(ctx, list, rt))
	}
	if conf := n.active(); len(kept) == 0 && conf != nil && conf.foreign != nil {
		errs = append(errs, n.del(ctx, conf.foreign, runtimeConf(p, netns)))
	}
	return errors.Join(errs...)
}

func (n *Network) del(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	err := n.cni.DelNetworkList(ctx, list, rt)
	if err == nil || !alreadyGone(err, rt.NetNS) {
		return err
	}
	// libcni has kept the cached result for another try, which would end the same way.
	return removeFile(filepath.Join(n.cfg.DataDir, "results", fmt.Sprintf("%s-%s-%s", list.Name, rt.ContainerID, rt.IfName)))
}
