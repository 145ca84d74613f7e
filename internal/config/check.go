package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/manifests/policy"
	"monopod/runner/spec"
	"monopod/runner/spec/cpuset"
	"monopod/watcher/fetch"
)

// maxSocketPath is the longest path that fits into sockaddr_un with its terminating zero byte.
const maxSocketPath = 107

// configCheck collects the problems of values; sources has the file and line, variable or flag of each key.
type configCheck struct {
	sources  map[string]string
	problems Problems
}

func (c *configCheck) add(key, msg, hint string) {
	where := c.sources[key]
	if strings.HasPrefix(where, "default") {
		where = ""
	}
	c.problems = append(c.problems, Problem{Where: where, Key: key, Msg: msg, Hint: hint})
}

// checkConfig returns all problems of invalid values.
func checkConfig(cfg *Config, sources map[string]string) Problems {
	c := &configCheck{sources: sources}
	c.sourceValues(cfg)
	c.directories(cfg)
	c.network(cfg)
	c.runtime(cfg)
	c.images(cfg)
	c.numbers(cfg)
	c.logSizes(cfg)
	c.security(cfg)
	c.server(&cfg.Server)
	c.kubeAPI(&cfg.APIServer)
	c.tracing(&cfg.Tracing)
	c.resources(cfg)
	c.node(cfg)
	c.pressure(cfg)
	c.shutdown(cfg)
	c.apiServer(cfg)
	c.access(&cfg.Server, cfg.Kubeconfig)
	c.oneOf("logging.format", cfg.Logging.Format, "text", "json")
	c.oneOf("logging.level", cfg.Logging.Level, "debug", "info", "warn", "error")
	return c.problems
}

func (c *configCheck) sourceValues(cfg *Config) {
	c.remoteSources(cfg)
	c.sourceOrder(cfg)
	c.spaces(cfg)
	if cfg.StaticPodURL != "" {
		u, err := url.Parse(cfg.StaticPodURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			c.add("staticPodURL", fmt.Sprintf("%q is not an http or https URL", fetch.RedactURL(cfg.StaticPodURL)), "")
		}
	} else if len(cfg.StaticPodURLHeader) > 0 {
		c.add("staticPodURLHeader", "has no effect without staticPodURL", "set staticPodURL, or remove the headers")
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.StaticPodURLHeader)) {
		if errs := validation.IsHTTPHeaderName(name); len(errs) > 0 {
			c.add("staticPodURLHeader", fmt.Sprintf("%q is not a header name", beforeColon(name)), "")
		}
		if slices.ContainsFunc(cfg.StaticPodURLHeader[name], func(v string) bool { return strings.ContainsAny(v, "\r\n\x00") }) {
			c.add("staticPodURLHeader", fmt.Sprintf("a value of %s has a line break", beforeColon(name)), "")
		}
	}
	if errs := validation.IsDNS1123Subdomain(cfg.NodeName); len(errs) > 0 {
		c.add("nodeName", fmt.Sprintf("%q is not a node name", cfg.NodeName), "use lower-case letters, digits, - and .")
	}
}

// sourceOrder checks that sourceOrder lists existing sources, each once.
func (c *configCheck) sourceOrder(cfg *Config) {
	all := cfg.allSources()
	seen := map[string]bool{}
	for _, name := range cfg.SourceOrder {
		if seen[name] {
			c.add("sourceOrder", fmt.Sprintf("%q is listed twice", name), "")
		}
		seen[name] = true
		c.oneOf("sourceOrder", name, all...)
	}
}

func (c *configCheck) directories(cfg *Config) {
	for _, d := range []struct{ key, path string }{
		{"rootDirectory", cfg.RootDirectory},
		{"stateDirectory", cfg.StateDirectory},
		{"podLogsDir", cfg.PodLogsDir},
		{"cniConfDir", cfg.CNIConfDir},
	} {
		if d.path == "" && d.key != "cniConfDir" || d.path == "/" {
			c.add(d.key, fmt.Sprintf("%q is not a directory of monopod's own", d.path), "")
		}
	}
	if cfg.RootDirectory == cfg.StateDirectory {
		c.add("stateDirectory", "is the same directory as rootDirectory", "give them different ones")
	}
	if len(cfg.Socket) > maxSocketPath {
		c.add("socket", fmt.Sprintf("%q is longer than the %d bytes a socket's path may have", cfg.Socket, maxSocketPath), "set socket to a shorter path")
	}
	for _, d := range []struct {
		key   string
		paths []string
	}{{"preloadDirectories", cfg.PreloadDirectories}, {"cniBinDirs", cfg.CNIBinDirs}} {
		if slices.Contains(d.paths, "") {
			c.add(d.key, "has an empty path", "")
		}
	}
}

func (c *configCheck) network(cfg *Config) {
	c.subnets("podCIDR", cfg.PodCIDR)
	c.subnets("runPodCIDR", cfg.RunPodCIDR)
	if cfg.ServiceSubnet != podDNSOff {
		c.subnets("serviceSubnet", cfg.ServiceSubnet)
	}
	c.oneOf("podDNS", cfg.PodDNS, PodDNSAuto, podDNSOff)
	if len(cfg.BridgeName) > 15 || strings.ContainsAny(cfg.BridgeName, "/ :\t\n") || cfg.BridgeName == "." || cfg.BridgeName == ".." {
		c.add("bridgeName", fmt.Sprintf("%q is not a name of a network interface", cfg.BridgeName), "at most 15 characters, no slash, colon or space")
	}
	for _, ip := range cfg.ClusterDNS {
		if _, err := netip.ParseAddr(ip); err != nil {
			c.add("clusterDNS", fmt.Sprintf("%q is not an IP address", ip), "")
		}
	}
	if len(cfg.ClusterDNS) > 3 {
		c.add("clusterDNS", fmt.Sprintf("%d name servers; the resolver uses 3 at most", len(cfg.ClusterDNS)), "")
	}
	if errs := validation.IsDNS1123Subdomain(cfg.ClusterDomain); len(errs) > 0 {
		c.add("clusterDomain", fmt.Sprintf("%q is not a domain", cfg.ClusterDomain), "use lower-case letters, digits, - and .")
	}
}

// subnets checks for a subnet of either address family, or one of each.
func (c *configCheck) subnets(key, value string) {
	families := map[bool]bool{}
	for part := range strings.SplitSeq(value, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		least, most := 8, 29
		if p.Addr().Is6() {
			least, most = 48, 125
		}
		switch {
		case err != nil:
			c.add(key, fmt.Sprintf("%q is not a subnet", strings.TrimSpace(part)), "write it as 10.87.0.0/16, or with an IPv6 subnet after a comma")
		case p.Addr().Is4In6():
			c.add(key, fmt.Sprintf("%s is IPv4 in IPv6", p), "write it as an IPv4 subnet")
		case p != p.Masked():
			c.add(key, fmt.Sprintf("%s has bits set after its mask", p), "write "+p.Masked().String())
		case p.Bits() < least || p.Bits() > most:
			c.add(key, fmt.Sprintf("%s has no sensible size", p), fmt.Sprintf("use a mask from /%d to /%d", least, most))
		case families[p.Addr().Is6()]:
			c.add(key, fmt.Sprintf("%s is the second subnet of its address family", p), "at most one of each")
		}
		if err == nil {
			families[p.Addr().Is6()] = true
		}
	}
}

func (c *configCheck) runtime(cfg *Config) {
	if e := cfg.ContainerRuntimeEndpoint; e != "" {
		sock, ok := strings.CutPrefix(e, "unix://")
		if !ok || !path.IsAbs(sock) {
			c.add("containerRuntimeEndpoint", fmt.Sprintf("%q is not the address of a unix socket", e), "write unix:///run/containerd/containerd.sock, or leave it empty")
		}
		if cfg.Snapshotter == "" {
			c.add("snapshotter", "is empty", "")
		}
	} else {
		c.embedded(cfg)
	}
	if r := cfg.CgroupRoot; !path.IsAbs(r) || path.Clean(r) != r || r == "/" {
		c.add("cgroupRoot", fmt.Sprintf("%q is not a cgroup of monopod's own", r), "write it as /monopod")
	}
	if strings.ContainsAny(cfg.OCIRuntime, " \t\n") {
		c.add("ociRuntime", fmt.Sprintf("%q is not a program", cfg.OCIRuntime), "a name or a path, without arguments")
	}
	for _, handler := range slices.Sorted(maps.Keys(cfg.RuntimeHandlers)) {
		if msgs := validation.IsDNS1123Label(handler); len(msgs) > 0 {
			c.add("runtimeHandlers", fmt.Sprintf("%q is not the handler of a RuntimeClass", handler), msgs[0])
		}
		if p := cfg.RuntimeHandlers[handler]; p == "" || strings.ContainsAny(p, " \t\n") {
			c.add("runtimeHandlers", fmt.Sprintf("%s: %q is not a program", handler, p), "a name or a path, without arguments")
		}
	}
}

// embedded checks keys that only the embedded containerd uses.
func (c *configCheck) embedded(cfg *Config) {
	if !slices.Contains([]string{"overlayfs", "native"}, cfg.Snapshotter) {
		c.add("snapshotter", fmt.Sprintf("the containerd inside monopod has no snapshotter %q", cfg.Snapshotter), "use overlayfs or native, or set containerRuntimeEndpoint")
	}
}

func (c *configCheck) security(cfg *Config) {
	for _, pattern := range cfg.AllowedUnsafeSysctls {
		if err := policy.CheckUnsafeSysctl(pattern); err != nil {
			c.add("allowedUnsafeSysctls", err.Error(), "")
		}
	}
	c.oneOf("podSecurity", cfg.PodSecurity, policy.PodSecurityLevels()...)
	for _, s := range []struct{ key, level string }{
		{"staticPodPathSecurity", cfg.StaticPodPathSecurity},
		{"staticPodURLSecurity", cfg.StaticPodURLSecurity},
		{"appliedSecurity", cfg.AppliedSecurity},
	} {
		if s.level != cfg.PodSecurity { // else it is that key's problem
			c.oneOf(s.key, s.level, policy.PodSecurityLevels()...)
		}
	}
}

func (c *configCheck) numbers(cfg *Config) {
	for _, d := range []struct {
		key string
		val time.Duration
		min time.Duration
		max time.Duration
	}{
		{"fileCheckFrequency", cfg.FileCheckFrequency, time.Second, 24 * time.Hour},
		{"httpCheckFrequency", cfg.HTTPCheckFrequency, time.Second, 24 * time.Hour},
		{"crashLoopBackOff.maxContainerRestartPeriod", cfg.CrashLoopBackOff.MaxContainerRestartPeriod, time.Second, 300 * time.Second},
		{"autoRollback.readyDeadline", cfg.AutoRollback.ReadyDeadline, time.Second, 24 * time.Hour},
		{"streamingConnectionIdleTimeout", cfg.StreamingConnectionIdleTimeout, time.Second, 24 * time.Hour},
		{"evictionPressureTransitionPeriod", cfg.EvictionPressureTransitionPeriod, 0, 24 * time.Hour},
		{"evictionCheckFrequency", cfg.EvictionCheckFrequency, time.Second, 5 * time.Minute},
		{"autoRollback.soak", cfg.AutoRollback.Soak, 0, 24 * time.Hour},
	} {
		if d.val < d.min || d.val > d.max {
			c.add(d.key, fmt.Sprintf("%s is not between %s and %s", DurationText(d.val), DurationText(d.min), DurationText(d.max)), "")
		}
	}
	c.between("maxPods", cfg.MaxPods, 1, 10000)
	c.between("maxConcurrentStarts", cfg.MaxConcurrentStarts, 1, 64)
	if cfg.PodPidsLimit != -1 && cfg.PodPidsLimit < 1 {
		c.add("podPidsLimit", fmt.Sprintf("%d is neither -1 (no limit) nor positive", cfg.PodPidsLimit), "")
	}
}

func (c *configCheck) resources(cfg *Config) {
	if d := cfg.CPUCFSQuotaPeriod; d < time.Millisecond || d > time.Second {
		c.add("cpuCFSQuotaPeriod", DurationText(d)+" is not between 1ms and 1s", "")
	}
	if f := cfg.MemoryThrottlingFactor; f < 0 || f > 1 {
		c.add("memoryThrottlingFactor", fmt.Sprintf("%g is not between 0 and 1", f), "write 0.9 to slow containers down at nine tenths of their limit")
	}
	c.oneOf("cpuManagerPolicy", cfg.CPUManagerPolicy, "none", "static")
	switch cpus, err := cpuset.Parse(cfg.ReservedSystemCPUs); {
	case err != nil:
		c.add("reservedSystemCPUs", err.Error(), "write it as 0-1,8")
	case len(cpus) == 0 && cfg.CPUManagerPolicy == "static":
		c.add("reservedSystemCPUs", "is empty: with cpuManagerPolicy static the machine itself needs a processor", "write 0 to keep the first one")
	}
	c.oneOf("cgroupDriver", cfg.CgroupDriver, string(spec.CgroupfsDriver), string(spec.SystemdDriver))
	c.oneOf("memorySwap.swapBehavior", cfg.MemorySwap.SwapBehavior, "NoSwap", "LimitedSwap")
	c.oneOf("memoryReservationPolicy", cfg.MemoryReservationPolicy, "None", "TieredReservation")
}

func (c *configCheck) between(key string, v, low, high int) {
	if v < low || v > high {
		c.add(key, fmt.Sprintf("%d is not between %d and %d", v, low, high), "")
	}
}

func (c *configCheck) oneOf(key, v string, allowed ...string) {
	if !slices.Contains(allowed, v) {
		c.add(key, fmt.Sprintf("%q is none of %s", v, strings.Join(allowed, ", ")), DidYouMean(v, allowed))
	}
}
