package config

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is the type of a configuration value.
type Kind string

const (
	kindString   Kind = "string"
	kindPath     Kind = "path"
	kindInt      Kind = "integer"
	kindBool     Kind = "boolean"
	kindNumber   Kind = "number"
	kindDuration Kind = "duration"
	// KindStrings is exported for help texts of other packages.
	KindStrings  Kind = "list of strings"
	kindPaths    Kind = "list of paths"
	kindHeaders  Kind = "map of lists of strings"
	kindLists    Kind = "map of lists"
	kindPrograms Kind = "map of programs"
	kindTexts    Kind = "map of strings"
	kindSources  Kind = "list of sources"
	kindGraces   Kind = "list of times by priority"
	kindRules    Kind = "list of rules"
	// kindSourceHeaders occurs only in entries of sources.
	kindSourceHeaders Kind = "list of headers"
)

// Key describes one key of the configuration.
type Key struct {
	// Path is the key as written in a file; a dot separates levels.
	Path string
	Kind Kind
	// def is the built-in default; nil means the zero value of the kind.
	def any
	// derived describes a default that is not a constant.
	derived string
	doc     string
	// secret keeps values out of messages.
	secret bool
	// names are cached names of the variable and the flag; nil while Keys is being built.
	names *keyNames
}

// keyNames are the names of a key in the environment and on the command line.
type keyNames struct{ env, flag string }

// Keys lists every key in the order in which they are printed. The list is built once; callers must not modify it.
var Keys = sync.OnceValue(func() []Key {
	keys := slices.Concat(sourceKeys(), runtimeKeys(), logKeys(), imageKeys(), nodeKeys(), pressureKeys(), resourceKeys(), securityKeys(), serverKeys(), kubeAPIKeys(), tracingKeys(), agentKeys(), machineKeys(), apiServerKeys())
	for i, k := range keys {
		keys[i].names = &keyNames{env: k.Env(), flag: k.Flag()}
	}
	return keys
})

func resourceKeys() []Key {
	return []Key{
		{Path: "cgroupDriver", Kind: kindString, def: "cgroupfs", doc: "Who creates cgroups: `cgroupfs`: monopod itself; `systemd`: systemd, as slices and scopes (`cgroupRoot: /monopod` becomes `monopod.slice`)."},
		{Path: "cpuCFSQuota", Kind: kindBool, def: true, doc: "Whether cpu limits are enforced."},
		{Path: "cpuCFSQuotaPeriod", Kind: kindDuration, def: 100 * time.Millisecond, doc: "Period of the CFS quota for cpu limits; 1ms to 1s. A shorter one shortens the time for which throttled containers wait."},
		{Path: "cpuManagerPolicy", Kind: kindString, def: "none", doc: "`static`: containers of Guaranteed pods that request whole cpus get exclusive ones. `none`: all containers share all cpus."},
		{Path: "reservedSystemCPUs", Kind: kindString, doc: "Processors that `cpuManagerPolicy: static` assigns to no container, as `0` or `0-1,8`; that policy needs at least one."},
		{Path: "memorySwap.swapBehavior", Kind: kindString, def: "NoSwap", doc: "`NoSwap`: containers do not swap. `LimitedSwap`: containers of Burstable pods may swap in proportion to the memory they request (cgroup v2)."},
		{Path: "memoryThrottlingFactor", Kind: kindNumber, def: float64(0), doc: "Point between the memory request and the limit of a container at which it is throttled (cgroup v2, memory.high), as 0.9. 0: disabled."},
		{Path: "memoryReservationPolicy", Kind: kindString, def: "None", doc: "`TieredReservation`: requested memory is protected from reclaim, fully in Guaranteed pods and as far as possible in Burstable ones (cgroup v2, memory.min and memory.low). `None`: it is not."},
		{Path: "singleProcessOOMKill", Kind: kindBool, def: false, doc: "Whether only a single process of a container is killed when it runs out of memory, instead of all of them. On cgroup v1, this is always so."},
		{Path: "podPidsLimit", Kind: kindInt, def: int64(-1), doc: "Maximum number of processes and threads of one pod. -1: no limit."},
		{Path: "objectFilesMemory", Kind: kindString, def: "64Mi", doc: "Memory for the content of ConfigMaps, Secrets and fields in the volumes and variables of all pods together, which no limit of a pod includes. A new pod that needs more waits; existing ones keep what they have. Negative: no limit."},
	}
}

func sourceKeys() []Key {
	return []Key{
		{Path: "staticPodPath", Kind: kindPath, def: "/etc/monopod/manifests", doc: "Directory, or single file, with the Pod manifests to run (`.yaml`, `.yml`, `.json`). Empty: no file source."},
		{Path: "staticPodURL", Kind: kindString, doc: "http or https URL of further manifests. Empty: no URL source."},
		{Path: "staticPodURLHeader", Kind: kindHeaders, doc: "Headers of each request to `staticPodURL`, as in `{Authorization: [\"Bearer ...\"]}`. The values are secrets: they are never printed."},
		{Path: "sources", Kind: kindSources, doc: "Further sources, each with a name. On conflict `sourceOrder` decides. The last good answer of each one, and of `staticPodURL`, is cached on disk, so that its pods start even while it is unreachable."},
		{Path: "sourceOrder", Kind: KindStrings, derived: "`file`, `http`, those of `sources`, `applied`", doc: "Precedence of the sources, by name: if two of them define the same object, the earlier one wins, but those with `podSecurity: privileged` always come before the others. `file` is `staticPodPath`, `http` is `staticPodURL`, `applied` is what `monopod apply` stored. Sources that are not listed follow in their usual order."},
		{Path: "sharing", Kind: kindLists, doc: "What pods of a source may use besides objects of their own space, as `source` or `source/namespace`: `{fleet: [applied/shop]}` lets pods of `fleet` use what was applied in namespace `shop`. All sources with `podSecurity: privileged` are one space, and each other source, including the API server, is one of its own. StorageClasses, RuntimeClasses and PriorityClasses of privileged sources are available to all."},
		{Path: "namespaces", Kind: kindLists, doc: "Namespaces in which a source may define objects: with `{fleet: [shop]}`, all others of `fleet`, and those that belong to no namespace, are refused, but of the API server only pods. Sources that are not listed may use any."},
		{Path: "fileCheckFrequency", Kind: kindDuration, def: 20 * time.Second, doc: "Interval at which `staticPodPath` is re-read, in addition to changes that the kernel reports."},
		{Path: "httpCheckFrequency", Kind: kindDuration, def: 20 * time.Second, doc: "Interval at which `staticPodURL` is requested."},
		{Path: "nodeName", Kind: kindString, derived: "the host name in lower case", doc: "Name of this machine: `spec.nodeName` of each pod, and the default host name of pods on the host network."},
	}
}

func runtimeKeys() []Key {
	return []Key{
		{Path: "rootDirectory", Kind: kindPath, def: "/var/lib/monopod", doc: "Directory for data that must survive a reboot: images, containers, volumes. Only one instance at a time may use it."},
		{Path: "stateDirectory", Kind: kindPath, def: "/run/monopod", doc: "Directory for data that need not survive a reboot: namespaces, sockets, the lock. Best on a tmpfs."},
		{Path: "socket", Kind: kindPath, derived: "`monopod.sock` in `stateDirectory`", doc: "Unix socket through which `monopod get`, `describe` and `logs` reach the daemon. Only root may use it."},
		{Path: "podLogsDir", Kind: kindPath, def: "/var/log/pods", doc: "Directory for the output of containers, as `<namespace>_<name>_<uid>/<container>/<n>.log`."},
		{Path: "containerRuntimeEndpoint", Kind: kindString, doc: "Socket of an existing containerd, as `unix:///run/containerd/containerd.sock`. Empty: containerd runs inside monopod."},
		{Path: "ociRuntime", Kind: kindString, derived: "the system's `runc`, else the one that came with monopod", doc: "OCI runtime: a name to look up in PATH, such as `crun`, or a path."},
		{Path: "runtimeHandlers", Kind: kindPrograms, derived: "`runc`, `crun`, `youki` and `runsc` are looked up in PATH, and for `nvidia` `nvidia-container-runtime`", doc: "OCI runtimes by the `handler` of RuntimeClasses, as in `{wasm: /usr/local/bin/crun-wasm}`: names to look up in PATH, or paths. They must have the command line of runc; containerd shims, such as kata's, cannot be used."},
		{Path: "shimPath", Kind: kindPath, derived: "`containerd-shim-monopod-v2` that came with monopod, beside it, or in PATH", doc: "Path of monopod's containerd shim."},
		{Path: "snapshotter", Kind: kindString, def: "overlayfs", doc: "containerd snapshotter. The containerd inside monopod has `overlayfs` and, for file systems without overlays, `native`, which copies everything."},
		{Path: "cgroupRoot", Kind: kindString, def: "/monopod", doc: "Parent cgroup of all pods."},
		{Path: "podCIDR", Kind: kindString, def: "10.87.0.0/16", doc: "Subnet of pods on monopod's own bridge: IPv4, IPv6, or one of each separated by a comma. Unused with a CNI configuration (`cniConfDir`)."},
		{Path: "runPodCIDR", Kind: kindString, def: "10.84.0.0/16", doc: "Range from which `monopod once` and `monopod up` take their subnets: each a /24 (IPv6: a /64) that is unused on this machine."},
		{Path: "serviceSubnet", Kind: kindString, def: "10.96.0.0/16,fd10:96::/112", doc: "Range of the cluster IPs of Services, at most one of each address family; families that the pod network lacks are ignored. `off`: Services are only DNS names for their pods."},
		{Path: "bridgeName", Kind: kindString, derived: "`monopod0`; another name if that bridge belongs to another subnet", doc: "Name of monopod's own bridge, at most 15 characters."},
		{Path: "cniConfDir", Kind: kindPath, doc: "Directory with a CNI configuration for pods, such as `/etc/cni/net.d`. Empty: monopod's own bridge; but if the key is not set, pods that are on a network of `/etc/cni/net.d` keep it, and new ones join them, with a warning."},
		{Path: "cniBinDirs", Kind: kindPaths, derived: "the plugins that came with monopod, `/opt/cni/bin`, `/usr/lib/cni`", doc: "Directories with CNI plugins."},
		{Path: "podDNS", Kind: kindString, def: "auto", doc: "`auto`: monopod resolves the names of pods and Services on its bridge, port 53, and is the name server of pods with dnsPolicy ClusterFirst, unless `clusterDNS` is set or a CNI configuration is used. `off`: disabled."},
		{Path: "clusterDNS", Kind: KindStrings, doc: "Name servers of pods with dnsPolicy ClusterFirst, at most 3. Empty: such pods use monopod (`podDNS`), or else those of `resolvConf`."},
		{Path: "clusterDomain", Kind: kindString, def: "cluster.local", doc: "Domain in the full host name of pods with a `subdomain`, and in the search list of pods that use `clusterDNS`."},
		{Path: "resolvConf", Kind: kindPath, def: "/etc/resolv.conf", doc: "File with the name servers of the host that pods get. Empty: none."},
	}
}

func securityKeys() []Key {
	return []Key{
		{Path: "seccompDefault", Kind: kindBool, def: false, doc: "Whether containers without a seccomp profile get RuntimeDefault. Applies to containers created from then on."},
		{Path: "seccompProfileRoot", Kind: kindPath, derived: "`seccomp` in `rootDirectory`", doc: "Directory with the files for `seccompProfile` of type Localhost: JSON, as in `linux.seccomp` of an OCI spec."},
		{Path: "allowedUnsafeSysctls", Kind: KindStrings, doc: "Sysctls that pods may set in addition to the safe ones of Kubernetes: names, or prefixes as in `net.core.*`. Only those of network and ipc namespaces."},
		{Path: "helmHooks", Kind: kindBool, def: false, doc: "Whether pods and workloads with the annotation `helm.sh/hook` run. Helm runs them at a certain point of an installation, or as a test. Here they would run immediately, so by default they are reported and ignored."},
		{Path: "podSecurity", Kind: kindString, def: "privileged", doc: "Pod Security Standard that each pod must meet: `privileged` (no restrictions), `baseline` or `restricted`. A manifest that does not is refused; pods that are already running keep running."},
		{Path: "staticPodPathSecurity", Kind: kindString, derived: "`podSecurity`", doc: "Pod Security Standard for the pods of `staticPodPath`."},
		{Path: "staticPodURLSecurity", Kind: kindString, derived: "`podSecurity`", doc: "Pod Security Standard for the pods of `staticPodURL`."},
		{Path: "staticPodURLCriticalPods", Kind: kindBool, def: false, doc: "Whether pods of `staticPodURL` may be critical, like `criticalPods` of an entry of `sources`. Pods of `staticPodPath` and of `monopod apply` always may."},
		{Path: "appliedSecurity", Kind: kindString, derived: "`podSecurity`", doc: "Pod Security Standard for the pods of `monopod apply`."},
	}
}

func agentKeys() []Key {
	return []Key{
		{Path: "maxPods", Kind: kindInt, def: int64(110), doc: "Maximum number of running pods; further ones wait, in order of precedence."},
		{Path: "maxConcurrentStarts", Kind: kindInt, def: int64(4), doc: "Number of pods that are started or stopped concurrently."},
		{Path: "crashLoopBackOff.maxContainerRestartPeriod", Kind: kindDuration, def: 300 * time.Second, doc: "Maximum delay between two restarts of a crashing container; 1s to 300s."},
		{Path: "streamingConnectionIdleTimeout", Kind: kindDuration, def: 4 * time.Hour, doc: "Idle timeout of connections of `monopod exec`, `attach` and `port-forward`; 1s to 24h."},
		{Path: "autoRollback.enabled", Kind: kindBool, def: false, doc: "Whether a changed pod that is not Ready in time, or does not stay Ready, is rolled back to its last revision that was. The annotation `monopod.dev/auto-rollback` of a pod overrides it."},
		{Path: "autoRollback.readyDeadline", Kind: kindDuration, def: 5 * time.Minute, doc: "Time within which a changed pod must become Ready; 1s to 24h. The annotation `monopod.dev/ready-deadline` overrides it."},
		{Path: "autoRollback.soak", Kind: kindDuration, def: time.Minute, doc: "Time for which the pod must then stay Ready without a container restart; up to 24h. The annotation `monopod.dev/soak` overrides it."},
		{Path: "logging.format", Kind: kindString, def: "text", doc: "Format of monopod's own log on stderr: `text` or `json`."},
		{Path: "logging.level", Kind: kindString, def: "info", doc: "Minimum level of logged messages: `debug`, `info`, `warn` or `error`."},
	}
}

// isPath reports whether relative values are resolved.
func (k Key) isPath() bool { return k.Kind == kindPath || k.Kind == kindPaths }

// isMap reports whether the values of all layers are merged.
func (k Key) isMap() bool {
	return k.Kind == kindHeaders || k.Kind == kindLists || k.Kind == kindPrograms || k.Kind == kindTexts
}

// value returns the built-in default.
func (k Key) value() any {
	switch {
	case k.def != nil:
		if list, ok := k.def.([]string); ok {
			return slices.Clone(list) // it becomes a part of the configuration
		}
		return k.def
	case k.Kind == KindStrings || k.Kind == kindPaths:
		return []string{}
	case k.isMap():
		return map[string]any{}
	case k.Kind == kindSources || k.Kind == kindSourceHeaders || k.Kind == kindGraces || k.Kind == kindRules:
		return []any{}
	default:
		return ""
	}
}

// Env returns the name of the environment variable of the key: MONOPOD_ and the key in upper case, with one underscore between words and
// two between levels.
func (k Key) Env() string {
	if k.names != nil {
		return k.names.env
	}
	levels := strings.Split(k.Path, ".")
	for i, l := range levels {
		levels[i] = strings.ToUpper(strings.Join(words(l), "_"))
	}
	return EnvPrefix + strings.Join(levels, "__")
}

// Flag returns the name of the key's flag; it is empty for secrets, because every user of the machine can read command lines.
func (k Key) Flag() string {
	if k.names != nil {
		return k.names.flag
	}
	if k.Kind == kindHeaders || k.Kind == kindSources || k.Kind == kindRules {
		return ""
	}
	all := make([]string, 0, 8)
	for l := range strings.SplitSeq(k.Path, ".") {
		all = append(all, words(l)...)
	}
	return strings.ToLower(strings.Join(all, "-"))
}

// words splits camelCase: staticPodURLHeader is static, Pod, URL, Header; reservedSystemCPUs ends with CPUs.
func words(s string) []string {
	upper := func(i int) bool { return i < len(s) && 'A' <= s[i] && s[i] <= 'Z' }
	lower := func(i int) bool { return i < len(s) && 'a' <= s[i] && s[i] <= 'z' }
	out := make([]string, 0, 4)
	start := 0
	for i := 1; i < len(s); i++ {
		if !upper(i) {
			continue
		}
		plural := i+1 < len(s) && s[i+1] == 's' && (i+2 == len(s) || upper(i+2))
		endOfAcronym := lower(i+1) && !plural
		if lower(i-1) || endOfAcronym {
			out = append(out, s[start:i])
			start = i
		}
	}
	return append(out, s[start:])
}
