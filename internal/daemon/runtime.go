package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"monopod/internal/config"
	"monopod/internal/logfile"
	"monopod/internal/needs"
	"monopod/node/netinfo"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/network/hostports"
	"monopod/runner/spec"
)

const shimName = "containerd-shim-monopod-v2"

// OpenCtrd opens the containerd runtime that the configuration describes.
func OpenCtrd(ctx context.Context, cfg *config.Loaded, log *slog.Logger) (Runtime, error) {
	c, err := ctrdConfig(cfg, log)
	if err != nil {
		return nil, err
	}
	rt, err := ctrd.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return ctrdRuntime{rt}, nil
}

// ctrdRuntime is a Runtime.
type ctrdRuntime struct{ *ctrd.Runtime }

// Images implements Runtime.
func (r ctrdRuntime) Images() needs.ImageService { return r.Runtime.Images() }

// ctrdConfig translates the configuration and finds the programs.
func ctrdConfig(cfg *config.Loaded, log *slog.Logger) (ctrd.Config, error) {
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
		ShimCgroups:    cfg.ShimCgroups,
		Handlers:       func(handler string) (string, error) { return f.handler(cfg.RuntimeHandlers, handler) },

		RootDirectory: cfg.RootDirectory, StateDirectory: cfg.StateDirectory, PodLogsDir: cfg.PodLogsDir,
		ContainerLogsDir: logfile.ContainerLogsDir(cfg.PodLogsDir),
		Endpoint:         cfg.ContainerRuntimeEndpoint, Snapshotter: cfg.Snapshotter, OCIRuntime: oci, ShimPath: shim, CgroupParent: cfg.CgroupRoot,
		NodeName: cfg.NodeName, NodeIPs: nodeIPs(netinfo.Addresses, log), ClusterDNS: cfg.ClusterDNS, Resolver: cfg.Resolver, Connection: cfg.Containerd, ClusterDomain: cfg.ClusterDomain, ResolvConf: cfg.ResolvConf,
		CgroupDriver: spec.CgroupDriver(cfg.CgroupDriver), Enforce: enforcement(&cfg.Config), ReservedCPUs: cfg.ReservedSystemCPUs, PodsLimits: cfg.PodsLimits,
		SeccompProfileRoot: cfg.SeccompProfileRoot, SeccompDefault: cfg.SeccompDefault,
		Network: network.Config{
			ConfDir: cfg.CNIConfDir, OwnConfDir: filepath.Join(cfg.StateDirectory, "cni"), BinDirs: f.cniDirs(cfg.CNIBinDirs),
			DataDir: filepath.Join(cfg.RootDirectory, "cni"), PodCIDR: cfg.PodCIDR, Bridge: cfg.BridgeName, Resolver: cfg.Resolver != nil,
			PortsDir: hostPortsDir, Listeners: portListeners, Log: log,
		},
		Image: imagestore.Config{Snapshotter: cfg.Snapshotter, Access: cfg.RegistryAccess(log), Limits: cfg.PullLimits(), Rules: cfg.ImageRules(), PreloadDirs: cfg.PreloadDirectories, Disk: bounded.Disk{Keep: config.EvictsBelow(pressure.Thresholds)}, Log: log},
		Logs:  config.LogLimits(&cfg.Config), Events: cfg.Events,
		Log: log,
	}, nil
}

// hostPortsDir is where the monopods of this machine claim host ports.
const hostPortsDir = "/run/monopod-hostports"

// portListeners lists the processes that listen on the host ports wanted. This process is one of them only where it
// means to keep a port for itself: it holds UDP ports for pods, and answers names on addresses that only pods ask.
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

// enforcement translates how resources are enforced.
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

// finder looks for the programs that monopod starts.
type finder struct {
	// beside is the directory of monopod itself, with the programs that came with it.
	beside string
}

func newFinder() finder {
	exe, err := os.Executable()
	if err != nil {
		return finder{}
	}
	return finder{beside: filepath.Dir(exe)}
}

// systemDirs are searched besides PATH, which lacks sbin for many callers.
func systemDirs() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

func (f finder) shim(configured string) (string, error) {
	if configured != "" {
		return configuredProgram("shimPath", configured)
	}
	if path := firstProgram(shimName, append([]string{f.beside}, pathDirs()...)); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside monopod nor in PATH; install it there or set shimPath", shimName)
}

// ociRuntime prefers the system's runc, which its distribution keeps up to date, to the one we carry.
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

// shippedRuntime is the runc we carry, for what the usual runtime cannot do; empty when there is none, or it is the usual one.
func (f finder) shippedRuntime(usual string) string {
	path := firstProgram("runc", []string{f.beside})
	if path == usual {
		return ""
	}
	return path
}

// wellKnownRuntimes are the programs that common handlers of RuntimeClasses stand for.
func wellKnownRuntimes() map[string]string {
	return map[string]string{"runc": "runc", "crun": "crun", "youki": "youki", "runsc": "runsc", "nvidia": "nvidia-container-runtime"}
}

// handler finds the OCI runtime of a RuntimeClass.
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

// configuredProgram checks a configured path.
func configuredProgram(key, path string) (string, error) {
	if _, err := exec.LookPath(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fs.ErrNotExist
		}
		return "", fmt.Errorf("%s %s: %w", key, path, err)
	}
	return path, nil
}

// firstProgram returns the first executable of that name; empty when there is none.
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
