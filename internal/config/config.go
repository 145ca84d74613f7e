// Package config owns monopod's configuration: its keys with their documentation, the layers that set them (file, drop-ins, environment,
// flags), their validation, and how they are printed.
//
// It must not start anything or decide anything about pods. It has no goroutines.
package config

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"monopod/manifests/policy"
	"monopod/node/apiserver/mirror"
)

// Config is the effective configuration. Its keys are described in Keys, from which the file loader, the environment variables, the flags
// and docs/config.md are generated; a test keeps the two in sync.
type Config struct {
	Kubeconfig                string        `koanf:"kubeconfig"`
	BootstrapKubeconfig       string        `koanf:"bootstrapKubeconfig"`
	APIServerPods             bool          `koanf:"apiServerPods"`
	APIServerServices         bool          `koanf:"apiServerServices"`
	CertDirectory             string        `koanf:"certDirectory"`
	RotateCertificates        bool          `koanf:"rotateCertificates"`
	ServerTLSBootstrap        bool          `koanf:"serverTLSBootstrap"`
	RegisterNode              bool          `koanf:"registerNode"`
	RegisterWithTaints        []string      `koanf:"registerWithTaints"`
	NodeLeaseDurationSeconds  int           `koanf:"nodeLeaseDurationSeconds"`
	NodeStatusUpdateFrequency time.Duration `koanf:"nodeStatusUpdateFrequency"`
	NodeStatusReportFrequency time.Duration `koanf:"nodeStatusReportFrequency"`
	EventRecordQPS            int           `koanf:"eventRecordQPS"`
	EventBurst                int           `koanf:"eventBurst"`

	StaticPodPath            string              `koanf:"staticPodPath"`
	StaticPodURL             string              `koanf:"staticPodURL"`
	StaticPodURLHeader       map[string][]string `koanf:"staticPodURLHeader"`
	RemoteSources            []RemoteSource      `koanf:"sources"`
	SourceOrder              []string            `koanf:"sourceOrder"`
	Sharing                  map[string][]string `koanf:"sharing"`
	Namespaces               map[string][]string `koanf:"namespaces"`
	FileCheckFrequency       time.Duration       `koanf:"fileCheckFrequency"`
	HTTPCheckFrequency       time.Duration       `koanf:"httpCheckFrequency"`
	RootDirectory            string              `koanf:"rootDirectory"`
	StateDirectory           string              `koanf:"stateDirectory"`
	Socket                   string              `koanf:"socket"`
	PodLogsDir               string              `koanf:"podLogsDir"`
	ContainerLogMaxSize      string              `koanf:"containerLogMaxSize"`
	ContainerLogMaxFiles     int                 `koanf:"containerLogMaxFiles"`
	PodLogsMaxSize           string              `koanf:"podLogsMaxSize"`
	NodeName                 string              `koanf:"nodeName"`
	ContainerRuntimeEndpoint string              `koanf:"containerRuntimeEndpoint"`
	OCIRuntime               string              `koanf:"ociRuntime"`
	RuntimeHandlers          map[string]string   `koanf:"runtimeHandlers"`
	ShimPath                 string              `koanf:"shimPath"`
	Snapshotter              string              `koanf:"snapshotter"`
	CgroupRoot               string              `koanf:"cgroupRoot"`
	PreloadDirectories       []string            `koanf:"preloadDirectories"`
	RegistryConfig           string              `koanf:"registryConfig"`
	PodCIDR                  string              `koanf:"podCIDR"`
	RunPodCIDR               string              `koanf:"runPodCIDR"`
	ServiceSubnet            string              `koanf:"serviceSubnet"`
	BridgeName               string              `koanf:"bridgeName"`
	CNIConfDir               string              `koanf:"cniConfDir"`
	CNIBinDirs               []string            `koanf:"cniBinDirs"`
	PodDNS                   string              `koanf:"podDNS"`
	ClusterDNS               []string            `koanf:"clusterDNS"`
	ClusterDomain            string              `koanf:"clusterDomain"`
	ResolvConf               string              `koanf:"resolvConf"`
	SeccompDefault           bool                `koanf:"seccompDefault"`
	SeccompProfileRoot       string              `koanf:"seccompProfileRoot"`
	AllowedUnsafeSysctls     []string            `koanf:"allowedUnsafeSysctls"`
	HelmHooks                bool                `koanf:"helmHooks"`
	PodSecurity              string              `koanf:"podSecurity"`
	StaticPodPathSecurity    string              `koanf:"staticPodPathSecurity"`
	StaticPodURLSecurity     string              `koanf:"staticPodURLSecurity"`
	StaticPodURLCriticalPods bool                `koanf:"staticPodURLCriticalPods"`
	AppliedSecurity          string              `koanf:"appliedSecurity"`
	MaxPods                  int                 `koanf:"maxPods"`
	NodeLabels               map[string]string   `koanf:"nodeLabels"`
	NodeCapacity             map[string]string   `koanf:"nodeCapacity"`
	SystemReserved           map[string]string   `koanf:"systemReserved"`
	KubeReserved             map[string]string   `koanf:"kubeReserved"`
	EnforceNodeAllocatable   []string            `koanf:"enforceNodeAllocatable"`

	EvictionHard                     map[string]string `koanf:"evictionHard"`
	MergeDefaultEvictionSettings     bool              `koanf:"mergeDefaultEvictionSettings"`
	EvictionSoft                     map[string]string `koanf:"evictionSoft"`
	EvictionSoftGracePeriod          map[string]string `koanf:"evictionSoftGracePeriod"`
	EvictionMaxPodGracePeriod        int               `koanf:"evictionMaxPodGracePeriod"`
	EvictionMinimumReclaim           map[string]string `koanf:"evictionMinimumReclaim"`
	EvictionPressureTransitionPeriod time.Duration     `koanf:"evictionPressureTransitionPeriod"`
	EvictionCheckFrequency           time.Duration     `koanf:"evictionCheckFrequency"`
	EvictCriticalPods                bool              `koanf:"evictCriticalPods"`

	CgroupDriver            string           `koanf:"cgroupDriver"`
	CPUCFSQuota             bool             `koanf:"cpuCFSQuota"`
	CPUCFSQuotaPeriod       time.Duration    `koanf:"cpuCFSQuotaPeriod"`
	CPUManagerPolicy        string           `koanf:"cpuManagerPolicy"`
	ReservedSystemCPUs      string           `koanf:"reservedSystemCPUs"`
	MemorySwap              MemorySwap       `koanf:"memorySwap"`
	MemoryThrottlingFactor  float64          `koanf:"memoryThrottlingFactor"`
	MemoryReservationPolicy string           `koanf:"memoryReservationPolicy"`
	SingleProcessOOMKill    bool             `koanf:"singleProcessOOMKill"`
	PodPidsLimit            int64            `koanf:"podPidsLimit"`
	ObjectFilesMemory       string           `koanf:"objectFilesMemory"`
	MaxConcurrentStarts     int              `koanf:"maxConcurrentStarts"`
	CrashLoopBackOff        CrashLoopBackOff `koanf:"crashLoopBackOff"`
	AutoRollback            AutoRollback     `koanf:"autoRollback"`
	Logging                 Logging          `koanf:"logging"`

	Server `koanf:",squash"`

	APIServer APIServer `koanf:"apiServer"`

	Tracing Tracing `koanf:"tracing"`

	ImageGCHighThresholdPercent int           `koanf:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent  int           `koanf:"imageGCLowThresholdPercent"`
	ImageMinimumGCAge           time.Duration `koanf:"imageMinimumGCAge"`
	ImageMaximumGCAge           time.Duration `koanf:"imageMaximumGCAge"`

	ShutdownGracePeriod             time.Duration   `koanf:"shutdownGracePeriod"`
	ShutdownGracePeriodCriticalPods time.Duration   `koanf:"shutdownGracePeriodCriticalPods"`
	ShutdownGraces                  []ShutdownGrace `koanf:"shutdownGracePeriodByPodPriority"`
	LockFile                        string          `koanf:"lockFile"`
	ExitOnLockContention            bool            `koanf:"exitOnLockContention"`
	LockContentionPods              string          `koanf:"lockContentionPods"`
	AgentMemoryBudget               string          `koanf:"agentMemoryBudget"`
	AgentCPUBudget                  string          `koanf:"agentCPUBudget"`
	KubeletCgroups                  string          `koanf:"kubeletCgroups"`

	RegistryHostsDirs             []string `koanf:"registryHostsDirs"`
	ImageCredentialProviderConfig string   `koanf:"imageCredentialProviderConfig"`
	ImageCredentialProviderBinDir string   `koanf:"imageCredentialProviderBinDir"`
	SerializeImagePulls           bool     `koanf:"serializeImagePulls"`
	MaxParallelImagePulls         int      `koanf:"maxParallelImagePulls"`
	RegistryPullQPS               int      `koanf:"registryPullQPS"`
	RegistryBurst                 int      `koanf:"registryBurst"`
	ImagePullBandwidth            string   `koanf:"imagePullBandwidth"`

	ImagePolicy []ImageRule `koanf:"imagePolicy"`

	StreamingConnectionIdleTimeout time.Duration `koanf:"streamingConnectionIdleTimeout"`
}

// CrashLoopBackOff bounds the wait between restarts of a crashing container.
type CrashLoopBackOff struct {
	MaxContainerRestartPeriod time.Duration `koanf:"maxContainerRestartPeriod"`
}

// AutoRollback configures whether failed changes are rolled back. Annotations of a pod override it.
type AutoRollback struct {
	Enabled       bool          `koanf:"enabled"`
	ReadyDeadline time.Duration `koanf:"readyDeadline"`
	Soak          time.Duration `koanf:"soak"`
}

// MemorySwap configures which containers may swap.
type MemorySwap struct {
	SwapBehavior string `koanf:"swapBehavior"`
}

// Logging configures monopod's own log on stderr.
type Logging struct {
	Format string `koanf:"format"`
	Level  string `koanf:"level"`
}

// derive fills in the values that depend on other keys or on the machine.
func (c *Config) derive(hostname func() (string, error)) error {
	c.Socket = cmp.Or(c.Socket, filepath.Join(c.StateDirectory, "monopod.sock"))
	c.RegistryConfig = cmp.Or(c.RegistryConfig, filepath.Join(c.RootDirectory, "config.json"))
	c.SeccompProfileRoot = cmp.Or(c.SeccompProfileRoot, filepath.Join(c.RootDirectory, "seccomp"))
	if c.ImageCredentialProviderBinDir == "" && c.ImageCredentialProviderConfig != "" {
		c.ImageCredentialProviderBinDir = filepath.Dir(c.ImageCredentialProviderConfig)
	}
	for _, source := range []*string{&c.StaticPodPathSecurity, &c.StaticPodURLSecurity, &c.AppliedSecurity} {
		*source = cmp.Or(*source, c.PodSecurity)
	}
	c.deriveSources()
	c.deriveAPIServer()
	if c.NodeName == "" {
		name, err := hostname()
		if err != nil {
			return err
		}
		c.NodeName = strings.ToLower(name)
	}
	return nil
}

// Names of the built-in sources.
const (
	SourceFile    = "file"
	SourceHTTP    = "http"
	SourceApplied = "applied"
)

// SourceAPIServer is the source of the pods that the API server binds to this node.
const SourceAPIServer = mirror.SourceName

// allSources returns the names of all sources in their default order.
func (c *Config) allSources() []string {
	all := []string{SourceFile, SourceHTTP}
	for _, s := range c.RemoteSources {
		all = append(all, s.Name)
	}
	all = append(all, SourceApplied)
	if c.APIServerPods {
		all = append(all, SourceAPIServer)
	}
	return all
}

// SourceNames returns the names of all sources by precedence: those of the local space first, in each of both groups those of sourceOrder,
// then the others.
func (c *Config) SourceNames() []string {
	order := slices.Clone(c.SourceOrder)
	for _, name := range c.allSources() {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	other := func(name string) bool { return !c.isLocal(name) }
	return append(slices.DeleteFunc(slices.Clone(order), other), slices.DeleteFunc(order, c.isLocal)...)
}

// Policy returns what pods and other objects of a source may be.
func (c *Config) Policy(source string) policy.Policy {
	p := policy.Policy{
		PodSecurity:          map[string]string{SourceFile: c.StaticPodPathSecurity, SourceApplied: c.AppliedSecurity}[source],
		AllowedUnsafeSysctls: c.AllowedUnsafeSysctls, HelmHooks: c.HelmHooks, NamespaceAccess: c.APIServer.NamespaceAccess, Namespaces: c.Namespaces[source],
	}
	for _, s := range c.Remotes() {
		if s.Name == source {
			p.PodSecurity, p.RefuseCritical = s.PodSecurity, !s.CriticalPods
		}
	}
	return p
}

// Environment is the input of Load besides files.
type Environment struct {
	Environ  []string
	WorkDir  string
	Hostname func() (string, error)
}

// Lookup returns the value of a variable, or "" if it is not set.
func (e Environment) Lookup(name string) string {
	for _, v := range e.Environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok && value != "" {
			return value
		}
	}
	return ""
}

// OSEnvironment returns the environment of this process.
func OSEnvironment() Environment {
	wd, err := os.Getwd()
	if err != nil {
		wd = "/"
	}
	return Environment{Environ: os.Environ(), WorkDir: wd, Hostname: os.Hostname}
}
