package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/libcni"

	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/bridge"
	"monopod/runner/ctrd/network/hostports"
)

// cleanupTimeout limits the teardown after a failed Setup.
const cleanupTimeout = 30 * time.Second

// PortMapping is a hostPort of a container.
type PortMapping struct {
	HostPort      int32
	ContainerPort int32
	Protocol      string // tcp, udp, sctp
	HostIP        string
}

// Pod is a sandbox.
type Pod struct {
	SandboxID string
	NetNS     string
	// Pin is a namespace that exists as long as the pod; empty: NetNS.
	Pin          string
	Namespace    string
	Name         string
	UID          string
	PortMappings []PortMapping
	Bandwidth    bandwidth.Limits
}

// Setup connects a pod, to the default network or by CNI ADD, and returns its addresses, IPv4 first. lo must be up already. A host port that is
// in use is a *hostports.HeldError. After an error the pod is disconnected, or if that failed too the caller must call Teardown before it
// tries again.
func (n *Network) Setup(ctx context.Context, p Pod) ([]string, error) {
	ips, err := n.setup(ctx, p)
	if err == nil {
		return ips, nil
	}
	// Clean up even if ctx has ended: a partial network would make the next attempt fail.
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
		return n.pods.connect(ctx, conf.own, p)
	}
	return n.plugins.add(ctx, conf.foreign, p)
}

// Teardown disconnects a pod from the default network and by CNI DEL, whichever it was connected by. The caller unpins the network namespace
// next, and with it the link; or it calls Setup, which replaces the link. It is idempotent, and the namespace may be missing.
func (n *Network) Teardown(ctx context.Context, p Pod) error {
	if err := n.teardown(ctx, p); err != nil {
		return fmt.Errorf("tear down network of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (n *Network) teardown(ctx context.Context, p Pod) error {
	var foreign *libcni.NetworkConfigList
	if conf := n.active(); conf != nil {
		foreign = conf.foreign
	}
	err := n.pods.disconnect(ctx, n.own(), p)
	n.reports.forget(p.SandboxID)
	if err := errors.Join(err, n.plugins.remove(ctx, foreign, p)); err != nil {
		return err // the ports stay claimed, because they may still be forwarded to the pod
	}
	return n.claims.Drop(p.SandboxID)
}

// Adopt adds pods that were connected by an earlier process. Their host ports are claimed, and those of the default network are watched and
// repaired. It is called once, before any Setup, with all connected pods.
func (n *Network) Adopt(pods []Pod) error {
	cidrs, err := bridge.ParsePodCIDR(n.cfg.PodCIDR)
	if err != nil {
		cidrs = nil // Init reports it
	}
	mtu := 0
	if o := n.own(); o != nil {
		mtu = o.bridge.MTU
	}
	var errs []error
	for _, p := range pods {
		errs = append(errs, n.claims.Keep(p.claim(n.cfg.DataDir)), n.pods.adopt(p, cidrs, mtu))
	}
	return errors.Join(errs...)
}

// Limit sets the bandwidth of a pod on the default network, also while it runs. With a CNI configuration of the host the limit is applied by a
// plugin, and only when the pod is connected.
func (n *Network) Limit(p Pod) error {
	if n.own() == nil {
		return nil
	}
	if err := n.pods.limit(p); err != nil {
		return fmt.Errorf("limit bandwidth of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// claim returns the claim of the host ports of a pod.
func (p Pod) claim(owner string) hostports.Claim {
	c := hostports.Claim{Owner: owner, Pod: p.Namespace + "/" + p.Name, Sandbox: p.SandboxID, Pin: cmp.Or(p.Pin, p.NetNS)}
	for _, m := range hostPorts(p) {
		port := hostports.Port{Protocol: m.Protocol, Port: uint16(m.HostPort)}
		if ip, err := netip.ParseAddr(m.HostIP); err == nil && !ip.IsUnspecified() {
			port.IP = ip.Unmap()
		}
		c.Ports = append(c.Ports, port)
	}
	return c
}

// ClaimHost claims the ports of a pod on the host network, whose processes open them. A port that is in use by a pod of another monopod is a
// *hostports.HeldError.
func (n *Network) ClaimHost(p Pod) error { return n.claims.Take(p.claim(n.cfg.DataDir), false) }

// Unclaim releases the claims of ClaimHost.
func (n *Network) Unclaim(sandbox string) error { return n.claims.Drop(sandbox) }
