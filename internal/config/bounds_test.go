package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// defaults returns the configuration without a file, on a machine with a host name.
func defaults(t *testing.T) Config {
	t.Helper()
	l := &configLoader{keys: Keys(), env: Environment{WorkDir: "/", Hostname: func() (string, error) { return "edge", nil }}}
	cfg, err := l.finish()
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Config
}

// problemsOf returns the problems of a configuration that was changed after it was loaded.
func problemsOf(base Config, change func(*Config)) Problems {
	base.StaticPodURLHeader, base.RuntimeHandlers = maps.Clone(base.StaticPodURLHeader), maps.Clone(base.RuntimeHandlers)
	change(&base)
	return checkConfig(&base, nil)
}

// TestNumbersAreAcceptedUpToTheirBounds: the least and the greatest value work, the next one beyond is refused with the name of its key.
func TestNumbersAreAcceptedUpToTheirBounds(t *testing.T) {
	t.Parallel()
	base := defaults(t)
	const second, day = int64(time.Second), int64(24 * time.Hour)
	for key, c := range map[string]struct {
		set       func(c *Config, v int64)
		low, high int64
	}{
		"fileCheckFrequency":             {func(c *Config, v int64) { c.FileCheckFrequency = time.Duration(v) }, second, day},
		"httpCheckFrequency":             {func(c *Config, v int64) { c.HTTPCheckFrequency = time.Duration(v) }, second, day},
		"autoRollback.readyDeadline":     {func(c *Config, v int64) { c.AutoRollback.ReadyDeadline = time.Duration(v) }, second, day},
		"autoRollback.soak":              {func(c *Config, v int64) { c.AutoRollback.Soak = time.Duration(v) }, 0, day},
		"streamingConnectionIdleTimeout": {func(c *Config, v int64) { c.StreamingConnectionIdleTimeout = time.Duration(v) }, second, day},
		"evictionCheckFrequency":         {func(c *Config, v int64) { c.EvictionCheckFrequency = time.Duration(v) }, second, int64(5 * time.Minute)},
		"evictionPressureTransitionPeriod": {
			func(c *Config, v int64) { c.EvictionPressureTransitionPeriod = time.Duration(v) }, 0, day,
		},
		"crashLoopBackOff.maxContainerRestartPeriod": {
			func(c *Config, v int64) { c.CrashLoopBackOff.MaxContainerRestartPeriod = time.Duration(v) }, second, 300 * second,
		},
		"cpuCFSQuotaPeriod":              {func(c *Config, v int64) { c.CPUCFSQuotaPeriod = time.Duration(v) }, int64(time.Millisecond), second},
		"maxPods":                        {func(c *Config, v int64) { c.MaxPods = int(v) }, 1, 10000},
		"maxConcurrentStarts":            {func(c *Config, v int64) { c.MaxConcurrentStarts = int(v) }, 1, 64},
		"maxConnections":                 {func(c *Config, v int64) { c.MaxConnections = int(v) }, 2, 10000},
		"containerLogMaxFiles":           {func(c *Config, v int64) { c.ContainerLogMaxFiles = int(v) }, 2, 1000},
		"evictionMaxPodGracePeriod":      {func(c *Config, v int64) { c.EvictionMaxPodGracePeriod = int(v) }, 0, 3600},
		"readOnlyPort":                   {func(c *Config, v int64) { c.ReadOnlyPort = int(v) }, 0, 65535},
		"healthzPort":                    {func(c *Config, v int64) { c.HealthzPort = int(v) }, 0, 65535},
		"tracing.samplingRatePerMillion": {func(c *Config, v int64) { c.Tracing.SamplingRatePerMillion = int(v) }, 0, 1_000_000},
		"nodeLeaseDurationSeconds":       {func(c *Config, v int64) { c.NodeLeaseDurationSeconds = int(v) }, 1, 3600},
		"eventRecordQPS":                 {func(c *Config, v int64) { c.EventRecordQPS = int(v) }, 0, 10000},
		"eventBurst":                     {func(c *Config, v int64) { c.EventBurst = int(v) }, 1, 10000},
		"imageGCHighThresholdPercent":    {func(c *Config, v int64) { c.ImageGCHighThresholdPercent = int(v) }, 81, 100},
		"imageGCLowThresholdPercent":     {func(c *Config, v int64) { c.ImageGCLowThresholdPercent = int(v) }, 0, 84},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			for _, v := range []int64{c.low, c.high} {
				if p := problemsOf(base, func(cfg *Config) { c.set(cfg, v) }); len(p) > 0 {
					t.Errorf("%d is refused: %v", v, p)
				}
			}
			for _, v := range []int64{c.low - 1, c.high + 1} {
				p := problemsOf(base, func(cfg *Config) { c.set(cfg, v) })
				if len(p) == 0 || !slices.ContainsFunc(p, func(p Problem) bool {
					return p.Key == key || strings.HasPrefix(key, "imageGC") && strings.HasPrefix(p.Key, "imageGC")
				}) {
					t.Errorf("%d: %v", v, p)
				}
			}
		})
	}
}

// TestDefaultsNeedNoFile: what is written nowhere is valid, and paths are below the directories of monopod.
func TestDefaultsNeedNoFile(t *testing.T) {
	t.Parallel()
	cfg := defaults(t)
	for what, c := range map[string]struct{ got, want string }{
		"socket":             {cfg.Socket, cfg.StateDirectory + "/monopod.sock"},
		"registryConfig":     {cfg.RegistryConfig, cfg.RootDirectory + "/config.json"},
		"seccompProfileRoot": {cfg.SeccompProfileRoot, cfg.RootDirectory + "/seccomp"},
		"certDirectory":      {cfg.CertDirectory, cfg.RootDirectory + "/pki"},
		"nodeName":           {cfg.NodeName, "edge"},
		"appliedSecurity":    {cfg.AppliedSecurity, cfg.PodSecurity},
		"providers":          {cfg.ImageCredentialProviderBinDir, ""},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", what, c.got, c.want)
		}
	}
}

// TestEachMistakeIsNamedWithAWayOut has one mistake per row and compares the whole message.
func TestEachMistakeIsNamedWithAWayOut(t *testing.T) {
	t.Parallel()
	base := defaults(t)
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // one problem per line; empty: it is accepted
	}{
		"a URL with headers": {func(c *Config) {
			c.StaticPodURL, c.StaticPodURLHeader = "https://h/", map[string][]string{"X-A": {"b"}}
		}, ""},
		"a line break in a header": {func(c *Config) {
			c.StaticPodURL, c.StaticPodURLHeader = "https://h/", map[string][]string{"X-A": {"b\r\nX-C: d"}}
		}, "staticPodURLHeader: a value of X-A has a line break"},
		"a source in the order twice": {func(c *Config) { c.SourceOrder = []string{"http", "http"} }, `sourceOrder: "http" is listed twice`},
		"a source that is not there":  {func(c *Config) { c.SourceOrder = []string{"appliedd"} }, `sourceOrder: "appliedd" is none of file, http, applied; did you mean applied?`},
		"sharing with a source that is not there": {
			func(c *Config) { c.Sharing = map[string][]string{"flet": {"applied/shop"}} }, `sharing: "flet" is none of file, http, applied; did you mean file?`,
		},
		"sharing of a source that is not there": {
			func(c *Config) { c.Sharing = map[string][]string{"http": {"applied/shop", "applie"}} }, `sharing: "applie" is none of file, http, applied; did you mean applied?`,
		},
		"namespaces of a source that is not there": {
			func(c *Config) { c.Namespaces = map[string][]string{"flet": {"shop"}} }, `namespaces: "flet" is none of file, http, applied; did you mean file?`,
		},
		"namespaces that are none": {
			func(c *Config) { c.Namespaces = map[string][]string{"http": {"a/b", "shop"}} }, `namespaces: http: ["a/b" "shop"] is not a list of namespaces; leave a source out that may use any`,
		},
		"no namespaces at all": {
			func(c *Config) { c.Namespaces = map[string][]string{"http": {}} }, "namespaces: http: [] is not a list of namespaces; leave a source out that may use any",
		},
		"sharing of what is no namespace": {
			func(c *Config) { c.Sharing = map[string][]string{"http": {"applied/"}} }, `sharing: "applied/": "" is not a namespace; write source or source/namespace`,
		},
		"no root directory":                {func(c *Config) { c.RootDirectory = "" }, `rootDirectory: "" is not a directory of monopod's own`},
		"the whole disk for networks":      {func(c *Config) { c.CNIConfDir = "/" }, `cniConfDir: "/" is not a directory of monopod's own`},
		"an empty directory of images":     {func(c *Config) { c.PreloadDirectories = []string{"/a", ""} }, "preloadDirectories: has an empty path"},
		"an empty directory of plug-ins":   {func(c *Config) { c.CNIBinDirs = []string{""} }, "cniBinDirs: has an empty path"},
		"both families":                    {func(c *Config) { c.PodCIDR = "10.0.0.0/16, fd00::/64" }, ""},
		"an IPv4 subnet in IPv6":           {func(c *Config) { c.PodCIDR = "::ffff:10.0.0.0/112" }, "podCIDR: ::ffff:10.0.0.0/112 is IPv4 in IPv6; write it as an IPv4 subnet"},
		"a large IPv4 subnet":              {func(c *Config) { c.PodCIDR = "10.0.0.0/7" }, "podCIDR: 10.0.0.0/7 has no sensible size; use a mask from /8 to /29"},
		"a small IPv6 subnet":              {func(c *Config) { c.RunPodCIDR = "fd00::/126" }, "runPodCIDR: fd00::/126 has no sensible size; use a mask from /48 to /125"},
		"a bridge with a slash":            {func(c *Config) { c.BridgeName = "a/b" }, `bridgeName: "a/b" is not a name of a network interface; at most 15 characters, no slash, colon or space`},
		"a bridge of dots":                 {func(c *Config) { c.BridgeName = ".." }, `bridgeName: ".." is not a name of a network interface; at most 15 characters, no slash, colon or space`},
		"a remote containerd":              {func(c *Config) { c.ContainerRuntimeEndpoint, c.Snapshotter = "unix:///run/c.sock", "btrfs" }, ""},
		"a remote one without snapshotter": {func(c *Config) { c.ContainerRuntimeEndpoint, c.Snapshotter = "unix:///run/c.sock", "" }, "snapshotter: is empty"},
		"a socket with a relative path": {
			func(c *Config) { c.ContainerRuntimeEndpoint = "unix://run/c.sock" },
			`containerRuntimeEndpoint: "unix://run/c.sock" is not the address of a unix socket; write unix:///run/containerd/containerd.sock, or leave it empty`,
		},
		"the root of cgroups":         {func(c *Config) { c.CgroupRoot = "/" }, `cgroupRoot: "/" is not a cgroup of monopod's own; write it as /monopod`},
		"a runtime with arguments":    {func(c *Config) { c.OCIRuntime = "crun --debug" }, `ociRuntime: "crun --debug" is not a program; a name or a path, without arguments`},
		"a handler without a program": {func(c *Config) { c.RuntimeHandlers = map[string]string{"kata": ""} }, `runtimeHandlers: kata: "" is not a program; a name or a path, without arguments`},
		"a sysctl of all":             {func(c *Config) { c.AllowedUnsafeSysctls = []string{"net.*"} }, ""},
		"a pid limit":                 {func(c *Config) { c.PodPidsLimit = 1 }, ""},
		"no throttling":               {func(c *Config) { c.MemoryThrottlingFactor = 0 }, ""},
		"more than all memory":        {func(c *Config) { c.MemoryThrottlingFactor = 1.5 }, "memoryThrottlingFactor: 1.5 is not between 0 and 1; write 0.9 to slow containers down at nine tenths of their limit"},
		"static without reserve": {
			func(c *Config) { c.CPUManagerPolicy = "static" },
			"reservedSystemCPUs: is empty: with cpuManagerPolicy static the machine itself needs a processor; write 0 to keep the first one",
		},
		"static with one":                {func(c *Config) { c.CPUManagerPolicy, c.ReservedSystemCPUs = "static", "0" }, ""},
		"another policy":                 {func(c *Config) { c.CPUManagerPolicy = "statik" }, `cpuManagerPolicy: "statik" is none of none, static; did you mean static?`},
		"another driver":                 {func(c *Config) { c.CgroupDriver = "system" }, `cgroupDriver: "system" is none of cgroupfs, systemd; did you mean systemd?`},
		"none beside pods":               {func(c *Config) { c.EnforceNodeAllocatable = []string{"pods", "none"} }, "enforceNodeAllocatable: none stands beside others"},
		"pods twice over":                {func(c *Config) { c.EnforceNodeAllocatable = []string{"pod"} }, `enforceNodeAllocatable: "pod" is none of pods, none; did you mean pods?`},
		"a certificate without its key":  {func(c *Config) { c.TLSCertFile = "/c" }, "tlsCertFile: needs tlsPrivateKeyFile, and vice versa; set both, or none for a self-signed certificate"},
		"a port twice":                   {func(c *Config) { c.ReadOnlyPort, c.HealthzPort = 10255, 10255 }, "healthzPort: 10255 is readOnlyPort already"},
		"a name as address":              {func(c *Config) { c.Address = "localhost" }, `address: "localhost" is not an IP address; 0.0.0.0 and :: are all addresses`},
		"a port that nobody may use":     {func(c *Config) { c.Port = 10250 }, "port: clients could not authenticate; set authentication.x509.clientCAFile or authentication.tokenFile"},
		"a port for certificates":        {func(c *Config) { c.Port, c.Authentication.X509.ClientCAFile = 10250, "/ca" }, ""},
		"nobody with all rights":         {func(c *Config) { c.Authentication.Anonymous.Enabled = true }, "authentication.anonymous.enabled: gives no rights without authorization.mode Rules or Webhook; write authorization: {mode: Rules, rules: {'group:system:unauthenticated': [healthz]}}"},
		"an API server that is not":      {func(c *Config) { c.Authorization.Mode = AuthorizeWebhook }, "authorization.mode: no API server is configured; set kubeconfig"},
		"an API server that is":          {func(c *Config) { c.Authorization.Mode, c.Kubeconfig = AuthorizeWebhook, "/k" }, ""},
		"pods of no API server":          {func(c *Config) { c.APIServerPods = true }, "apiServerPods: has no effect without kubeconfig; set kubeconfig to the file that names the API server"},
		"Services of no API server":      {func(c *Config) { c.APIServerServices = true }, "apiServerServices: has no effect without apiServerPods; set apiServerPods: true"},
		"a collector without port":       {func(c *Config) { c.Tracing.Endpoint = "localhost" }, `tracing.endpoint: "localhost" is not host:port; write localhost:4317`},
		"a collector without host":       {func(c *Config) { c.Tracing.Endpoint = ":4317" }, `tracing.endpoint: ":4317" is not host:port; write localhost:4317`},
		"fewer than no pulls":            {func(c *Config) { c.RegistryBurst = -1 }, "registryBurst: -1 is less than 0; 0 is no limit"},
		"one pull at a time, or two":     {func(c *Config) { c.SerializeImagePulls, c.MaxParallelImagePulls = true, 2 }, "maxParallelImagePulls: 2 pulls at once contradict serializeImagePulls; set serializeImagePulls: false"},
		"a slow line":                    {func(c *Config) { c.ImagePullBandwidth = "1Ki" }, ""},
		"a line that is too slow":        {func(c *Config) { c.ImagePullBandwidth = "1023" }, `imagePullBandwidth: "1023" is not a number of bytes, at least 1Ki; write it as 512Ki or 2Mi`},
		"younger than new":               {func(c *Config) { c.ImageMinimumGCAge = -time.Second }, "imageMinimumGCAge: -1s is less than 0s"},
		"too old before it may go":       {func(c *Config) { c.ImageMaximumGCAge = time.Minute }, "imageMaximumGCAge: 1m is not more than imageMinimumGCAge, which is 2m; 0s disables it"},
		"a shutdown of a moment":         {func(c *Config) { c.ShutdownGracePeriod = time.Millisecond }, "shutdownGracePeriod: 1ms is neither 0 nor between 1s and 1h"},
		"more for critical ones":         {func(c *Config) { c.ShutdownGracePeriod, c.ShutdownGracePeriodCriticalPods = time.Minute, time.Hour }, "shutdownGracePeriodCriticalPods: 1h is more than shutdownGracePeriod (1m), which includes it"},
		"two kinds of shutdown":          {func(c *Config) { c.ShutdownGracePeriod, c.ShutdownGraces = time.Minute, []ShutdownGrace{{0, 5}} }, "shutdownGracePeriodByPodPriority: replaces shutdownGracePeriod and shutdownGracePeriodCriticalPods; set one or the other"},
		"a priority twice":               {func(c *Config) { c.ShutdownGraces = []ShutdownGrace{{1, 5}, {1, 6}} }, "shutdownGracePeriodByPodPriority[1].priority: 1 is not a priority, or is listed twice"},
		"a priority that is none":        {func(c *Config) { c.ShutdownGraces = []ShutdownGrace{{1 << 31, 5}} }, "shutdownGracePeriodByPodPriority[0].priority: 2147483648 is not a priority, or is listed twice"},
		"more than an hour":              {func(c *Config) { c.ShutdownGraces = []ShutdownGrace{{1, 3601}} }, "shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: 3601 is not between 0 and 3600"},
		"another agent without a lock":   {func(c *Config) { c.ExitOnLockContention = true }, "exitOnLockContention: has no effect without lockFile; set lockFile"},
		"the cgroup of all as its own":   {func(c *Config) { c.KubeletCgroups = "/" }, `kubeletCgroups: "/" is not a cgroup of monopod's own; write it as /agent`},
		"the least that monopod needs":   {func(c *Config) { c.AgentMemoryBudget, c.AgentCPUBudget = "48Mi", "50m" }, ""},
		"a budget that is a word":        {func(c *Config) { c.AgentCPUBudget = "half" }, `agentCPUBudget: "half" is not 50m of a processor or more; write 500m`},
		"no log at all":                  {func(c *Config) { c.ContainerLogMaxSize = "" }, `containerLogMaxSize: "" is not a size; write it as 10Mi, or "-1" for no limit`},
		"a threshold without its period": {func(c *Config) { c.EvictionSoft = map[string]string{"memory.available": "1Gi"} }, "evictionSoft: memory.available has no evictionSoftGracePeriod"},
		"a signal that is none":          {func(c *Config) { c.EvictionHard = map[string]string{"memory.free": "1Gi"} }, "evictionHard: "},
		"a share of a resource":          {func(c *Config) { c.SystemReserved = map[string]string{"cpu": "10%"} }, "systemReserved: "},
		"a resource that is none":        {func(c *Config) { c.KubeReserved = map[string]string{"cpus": "1"} }, "kubeReserved: "},
		"a machine of nothing":           {func(c *Config) { c.NodeCapacity = map[string]string{"cpu": "many"} }, "nodeCapacity: "},
		"a label that is none":           {func(c *Config) { c.NodeLabels = map[string]string{"a b": "c"} }, "nodeLabels: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := problemsOf(base, c.change).Error()
			if c.want != got && (!strings.HasSuffix(c.want, ": ") || !strings.HasPrefix(got, c.want)) {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
