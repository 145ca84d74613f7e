package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"monopod/internal/cause"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/network/bandwidth"
	"monopod/runner/ctrd/network/link"
)

const (
	capPortMappings = "portMappings"
)

func hasCapability(list *libcni.NetworkConfigList, name string) bool {
	for _, p := range list.Plugins {
		if p.Network.Capabilities[name] {
			return true
		}
	}
	return false
}

// portMapEntry is a port mapping in CNI's conventions.
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

// runtimeConf returns the arguments that containerd's CRI plugin passes.
func runtimeConf(p Pod, netns string) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{
		ContainerID: p.SandboxID,
		NetNS:       netns,
		IfName:      link.Interface,
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
	if p.Bandwidth != (bandwidth.Limits{}) {
		args[bandwidth.Capability] = p.Bandwidth.Entry()
	}
	if len(args) > 0 {
		rt.CapabilityArgs = args
	}
	return rt
}

// addresses returns the addresses of the pod's interface, IPv4 first.
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
		return nil, fmt.Errorf("the CNI plugins gave %s no address", link.Interface)
	}
	return append(v4, v6...), nil
}

// inPod reports whether index is the pod's interface. Plugins may omit it if there is only one.
func inPod(r *types100.Result, index *int) bool {
	if index == nil {
		return true
	}
	return *index >= 0 && *index < len(r.Interfaces) && r.Interfaces[*index].Name == link.Interface
}

func isV4(ip net.IP) bool { return ip.To4() != nil }

// plugins calls CNI plugins.
type plugins struct {
	cni              *libcni.CNIConfig
	confDir, dataDir string
	binDirs          []string
}

func newPlugins(cfg Config) *plugins {
	exec := &invoke.DefaultExec{
		RawExec:       &invoke.RawExec{Stderr: pluginLog{cfg.Log}},
		PluginDecoder: version.PluginDecoder{},
	}
	return &plugins{cni: libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, cfg.DataDir, exec), confDir: cfg.ConfDir, dataDir: cfg.DataDir, binDirs: cfg.BinDirs}
}

// pluginLog logs what plugins print on stderr.
type pluginLog struct{ log *slog.Logger }

func (l pluginLog) Write(p []byte) (int, error) {
	l.log.Warn("CNI plugin says", "text", string(p))
	return len(p), nil
}

// check returns an error for missing plugins of a configuration.
func (c *plugins) check(list *libcni.NetworkConfigList) error {
	var errs []error
	for _, p := range list.Plugins {
		name := p.Network.Type
		if _, err := invoke.FindInPath(name, c.binDirs); err != nil {
			errs = append(errs, cause.Wrap(fmt.Errorf("CNI plugin %s is missing: %w", name, err), cause.Cause{Kind: cause.CNIPlugin, Program: name}))
		}
	}
	return errors.Join(errs...)
}

// add calls CNI ADD and returns the addresses of the pod.
func (c *plugins) add(ctx context.Context, list *libcni.NetworkConfigList, p Pod) ([]string, error) {
	if len(hostPorts(p)) > 0 && !hasCapability(list, capPortMappings) {
		return nil, fmt.Errorf("the CNI configuration %q of %s has no plugin for hostPort; add portmap with the capability portMappings", list.Name, c.confDir)
	}
	if p.Bandwidth != (bandwidth.Limits{}) && !hasCapability(list, bandwidth.Capability) {
		return nil, fmt.Errorf("the CNI configuration %q of %s has no plugin that limits bandwidth; add bandwidth with the capability bandwidth", list.Name, c.confDir)
	}
	result, err := c.cni.AddNetworkList(ctx, list, runtimeConf(p, p.NetNS))
	if err != nil {
		return nil, err
	}
	return addresses(result)
}

// remove calls CNI DEL for the networks that libcni has recorded for a pod, with their recorded configurations. Without records it uses the
// configuration of the host, if there is one.
func (c *plugins) remove(ctx context.Context, foreign *libcni.NetworkConfigList, p Pod) error {
	netns := p.NetNS
	if !linuxns.IsNamespace(netns) {
		netns = "" // missing, for example after a reboot: plugins then release what is outside of it
	}
	kept, err := c.cni.GetCachedAttachments(p.SandboxID)
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
		errs = append(errs, c.del(ctx, list, rt))
	}
	if len(kept) == 0 && foreign != nil {
		errs = append(errs, c.del(ctx, foreign, runtimeConf(p, netns)))
	}
	return errors.Join(errs...)
}

func (c *plugins) del(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	err := c.cni.DelNetworkList(ctx, list, rt)
	if err == nil || !alreadyGone(err, rt.NetNS) {
		return err
	}
	// libcni keeps the cached result after an error, and the next attempt would fail in the same way.
	return removeFile(filepath.Join(c.dataDir, "results", fmt.Sprintf("%s-%s-%s", list.Name, rt.ContainerID, rt.IfName)))
}
