package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"monopod/internal/config"
	"monopod/internal/daemon/imageservice"
	"monopod/internal/logfile"
	"monopod/node/netinfo"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/ctrd/network/services"
	"monopod/runner/spec"
)

// ShimName is the file name of the shim, and the name of its processes.
const ShimName = "containerd-shim-monopod-v2"

// OpenCtrd opens the configured containerd, embedded or external.
func OpenCtrd(ctx context.Context, cfg *config.Loaded, d Deps) (Runtime, error) {
	c, err := CtrdConfig(cfg, d)
	if err != nil {
		return nil, err
	}
	rt, err := ctrd.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return ctrdRuntime{rt}, nil
}

// ctrdRuntime is a ctrd.Runtime with the result types that Runtime has.
type ctrdRuntime struct{ *ctrd.Runtime }

// Images implements Runtime.
func (r ctrdRuntime) Images() imageservice.Service { return r.Runtime.Images() }

// CtrdConfig returns the configuration of the containerd runtime, with the paths of its programs.
func CtrdConfig(cfg *config.Loaded, d Deps) (ctrd.Config, error) {
	f := newFinder()
	shim, err := f.shim(cfg.ShimPath)
	if err != nil {
		return ctrd.Config{}, err
	}
	oci, err := f.ociRuntime(cfg.OCIRuntime)
	if err != nil {
		return ctrd.Config{}, err
	}
	pressure, err := cfg.Pressure(false)
	if err != nil {
		return ctrd.Config{}, err
	}
	return ctrd.Config{
		ShippedRuntime: f.shippedRuntime(oci),
		ShimCgroups:    d.ShimCgroups,
		Handlers:       func(handler string) (string, error) { return f.handler(cfg.RuntimeHandlers, handler) },

		RootDirectory: cfg.RootDirectory, StateDirectory: cfg.StateDirectory, PodLogsDir: cfg.PodLogsDir,
		ContainerLogsDir: logfile.ContainerLogsDir(cfg.PodLogsDir),
		Endpoint:         cfg.ContainerRuntimeEndpoint, Snapshotter: cfg.Snapshotter, OCIRuntime: oci, ShimPath: shim, CgroupParent: cfg.CgroupRoot,
		NodeName: cfg.NodeName, NodeIPs: NodeIPs(netinfo.Addresses, d.Log), ClusterDNS: cfg.ClusterDNS, Resolver: d.NameServers, Connection: d.Connection, ClusterDomain: cfg.ClusterDomain, Services: d.Services, API: d.API, ResolvConf: cfg.ResolvConf,
		CgroupDriver: spec.CgroupDriver(cfg.CgroupDriver), Enforce: enforcement(&cfg.Config), ReservedCPUs: cfg.ReservedSystemCPUs, PodsLimits: d.PodsLimits,
		SeccompProfileRoot: cfg.SeccompProfileRoot, SeccompDefault: cfg.SeccompDefault, IDRangesDir: idRangesDir,
		Network: network.Config{
			ConfDir: cfg.CNIConfDir, OwnConfDir: filepath.Join(cfg.StateDirectory, "cni"), BinDirs: f.cniDirs(cfg.CNIBinDirs),
			DataDir: cniDataDir(&cfg.Config), PodCIDR: cfg.PodCIDR, Bridge: cfg.BridgeName, Resolver: d.NameServers != nil, API: apiForPods(cfg.APIServer.Address),
			PortsDir: hostPortsDir, Listeners: portListeners, Chosen: d.chosen, Checked: d.Checked, Log: d.Log,
		},
		Image: imagestore.Config{Snapshotter: cfg.Snapshotter, Access: cfg.RegistryAccess(d.Log), Limits: cfg.PullLimits(), Rules: cfg.ImageRules(), PreloadDirs: cfg.PreloadDirectories, Disk: bounded.Disk{Keep: config.EvictsBelow(pressure.Thresholds)}, Log: d.Log},
		Logs:  config.LogLimits(&cfg.Config), Events: d.Events,
		ObjectFilesMemory: cfg.ObjectFilesBytes(), Log: d.Log,
	}, nil
}

func (d Deps) chosen(c network.Choice) {
	if d.Networked != nil {
		d.Networked(c.CNI, c.Bridge)
	}
}

// hostPortsDir and idRangesDir have the claims of host ports and of user ids by all instances on this machine.
const (
	hostPortsDir = "/run/monopod-hostports"
	idRangesDir  = "/run/monopod-idranges"
)

// portListeners lists the processes that listen on the wanted host ports. Two kinds of sockets of this process are left out, because
// pods may use their ports: UDP ports reserved for pods, and the DNS server, which listens on addresses of the bridge only.
func portListeners(wanted func(port int) bool) ([]hostports.Process, error) {
	all, err := netinfo.Listeners("/proc", 0, wanted)
	if err != nil {
		return nil, err
	}
	var out []hostports.Process
	for _, l := range all {
		const domain = 53
		if l.PID == os.Getpid() && (l.Protocol == "UDP" || l.Addr.Port() == domain) {
			continue
		}
		p := hostports.Process{Port: hostports.Port{Protocol: strings.ToLower(l.Protocol), Port: l.Addr.Port()}, Name: l.Name, PID: l.PID}
		if a := l.Addr.Addr(); !a.IsUnspecified() {
			p.Port.IP = a
		}
		out = append(out, p)
	}
	return out, nil
}

// enforcement returns how resource requests and limits are enforced.
func enforcement(cfg *config.Config) spec.Enforcement {
	return spec.Enforcement{
		NoCPUQuota:           !cfg.CPUCFSQuota,
		CPUPeriod:            uint64(cfg.CPUCFSQuotaPeriod.Microseconds()),
		LimitedSwap:          cfg.MemorySwap.SwapBehavior == "LimitedSwap",
		SingleProcessOOMKill: cfg.SingleProcessOOMKill,
		MemoryThrottling:     cfg.MemoryThrottlingFactor,
		ReserveMemory:        cfg.MemoryReservationPolicy == "TieredReservation",
		StaticCPUs:           cfg.CPUManagerPolicy == "static",
		PodPidsLimit:         cfg.PodPidsLimit,
	}
}

// finder finds the programs that monopod starts.
type finder struct {
	// beside is the directory of the monopod binary and of the programs shipped with it.
	beside string
}

func newFinder() finder {
	exe, err := os.Executable()
	if err != nil {
		return finder{}
	}
	return finder{beside: filepath.Dir(exe)}
}

// systemDirs are searched after PATH, which often lacks sbin.
func systemDirs() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

func (f finder) shim(configured string) (string, error) {
	if configured != "" {
		return configuredProgram("shimPath", configured)
	}
	if path := firstProgram(ShimName, append([]string{f.beside}, pathDirs()...)); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither next to monopod nor in PATH; install it there or set shimPath", ShimName)
}

// ociRuntime prefers the runc of the distribution, which gets security updates, to the shipped one.
func (f finder) ociRuntime(configured string) (string, error) {
	if strings.Contains(configured, "/") {
		return configuredProgram("ociRuntime", configured)
	}
	name := cmp.Or(configured, "runc")
	if path := firstProgram(name, append(pathDirs(), f.beside)); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("the OCI runtime %s is not in PATH; install it (apt install %s) or set ociRuntime", name, name)
}

// shippedRuntime returns the shipped runc, for features that the usual runtime lacks; empty: there is none, or it is the usual one.
func (f finder) shippedRuntime(usual string) string {
	path := firstProgram("runc", []string{f.beside})
	if path == usual {
		return ""
	}
	return path
}

// wellKnownRuntimes are the programs of common RuntimeClass handlers.
func wellKnownRuntimes() map[string]string {
	return map[string]string{"runc": "runc", "crun": "crun", "youki": "youki", "runsc": "runsc", "nvidia": "nvidia-container-runtime"}
}

// handler returns the OCI runtime of a RuntimeClass handler.
func (f finder) handler(configured map[string]string, handler string) (string, error) {
	name := cmp.Or(configured[handler], wellKnownRuntimes()[handler])
	if name == "" {
		return "", fmt.Errorf("there is no OCI runtime for handler %q; set runtimeHandlers: {%s: /path/of/runtime}", handler, handler)
	}
	if strings.Contains(name, "/") {
		return configuredProgram("runtimeHandlers: "+handler+":", name)
	}
	if path := firstProgram(name, append(pathDirs(), f.beside)); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("the OCI runtime %s for handler %q is not in PATH; install it or set runtimeHandlers: {%s: /path/of/runtime}", name, handler, handler)
}

func (f finder) cniDirs(configured []string) []string {
	if len(configured) > 0 {
		return configured
	}
	var dirs []string
	if f.beside != "" {
		dirs = append(dirs, f.beside, filepath.Join(f.beside, "cni"))
	}
	return append(dirs, "/opt/cni/bin", "/usr/lib/cni")
}

func pathDirs() []string { return append(filepath.SplitList(os.Getenv("PATH")), systemDirs()...) }

// configuredProgram checks that a configured path is an executable program.
func configuredProgram(key, path string) (string, error) {
	if _, err := exec.LookPath(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fs.ErrNotExist
		}
		return "", fmt.Errorf("%s %s: %w", key, path, err)
	}
	return path, nil
}

// firstProgram returns the first executable with a name; empty: there is none.
func firstProgram(name string, dirs []string) string {
	for _, d := range dirs {
		if d == "" || !filepath.IsAbs(d) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(d, name)); err == nil {
			return path
		}
	}
	return ""
}

// ServiceRules returns the kernel rules that translate connections to the Services of an instance. pods are the subnets of its pods; empty
// if unknown.
func ServiceRules(cfg *config.Config, pods []netip.Prefix, log *slog.Logger) Rules {
	return services.New(services.Config{Table: services.TableName(cniDataDir(cfg)), Pods: pods, Log: log})
}

// cniDataDir is the data directory of an instance's network, and identifies the instance.
func cniDataDir(cfg *config.Config) string { return filepath.Join(cfg.RootDirectory, "cni") }

// Gateways returns the gateway addresses of monopod's own bridge; none if a CNI configuration is used.
func Gateways(cfg *config.Config) ([]netip.Prefix, error) {
	return network.Gateways(network.Config{ConfDir: cfg.CNIConfDir, BinDirs: newFinder().cniDirs(cfg.CNIBinDirs), PodCIDR: cfg.PodCIDR})
}

// apiForPods returns where pods reach the API that listens on an address. It is the bridge if that is a loopback address or any; an address of a name
// is not known.
func apiForPods(address string) netip.AddrPort {
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil {
		return netip.AddrPort{}
	}
	ip, _ := netip.ParseAddr(host)
	if ip.IsLoopback() || host == "" || host == "localhost" {
		ip = netip.IPv4Unspecified()
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number))
}
