package main

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// keyKind is the type of a configuration value.
type keyKind string

const (
	kindString   keyKind = "string"
	kindPath     keyKind = "path"
	kindInt      keyKind = "integer"
	kindBool     keyKind = "boolean"
	kindNumber   keyKind = "number"
	kindDuration keyKind = "duration"
	kindStrings  keyKind = "list of strings"
	kindPaths    keyKind = "list of paths"
	kindHeaders  keyKind = "map of lists of strings"
	kindLists    keyKind = "map of lists"
	kindPrograms keyKind = "map of programs"
	kindTexts    keyKind = "map of strings"
	kindSources  keyKind = "list of sources"
	kindGraces   keyKind = "list of times by priority"
	kindRules    keyKind = "list of rules"
	// kindSourceHeaders is there in entries of sources only.
	kindSourceHeaders keyKind = "list of headers"
)

// configKey describes one key of the configuration.
type configKey struct {
	// path is the key as written in a file; a dot separates levels.
	path string
	kind keyKind
	// def is the built-in default; the zero value of the kind when nil.
	def any
	// derived says in words where the default comes from when it is not a constant.
	derived string
	doc     string
	// secret says that a value must be in no message.
	secret bool
	// names are those of env and flag; nil: they have not been made yet.
	names *keyNames
}

// keyNames are the names of a key outside files.
type keyNames struct{ env, flag string }

// configKeys lists every key in the order in which they are printed. It is made once, and not to be changed.
var configKeys = sync.OnceValue(func() []configKey { //nolint:gochecknoglobals // a constant that Go cannot write as one
	keys := slices.Concat(sourceKeys(), runtimeKeys(), logKeys(), imageKeys(), nodeKeys(), pressureKeys(), resourceKeys(), securityKeys(), serverKeys(), tracingKeys(), agentKeys(), machineKeys(), apiServerKeys())
	for i, k := range keys {
		keys[i].names = &keyNames{env: k.env(), flag: k.flag()}
	}
	return keys
})

func resourceKeys() []configKey {
	return []configKey{
		{path: "cgroupDriver", kind: kindString, def: "cgroupfs", doc: "Who makes cgroups: `cgroupfs`: monopod itself; `systemd`: systemd, as slices and scopes (`cgroupRoot: /monopod` is then `monopod.slice`)."},
		{path: "cpuCFSQuota", kind: kindBool, def: true, doc: "Whether cpu limits are enforced."},
		{path: "cpuCFSQuotaPeriod", kind: kindDuration, def: 100 * time.Millisecond, doc: "Over which time the cpu that a limit allows is counted; 1ms to 1s. A shorter one shortens the waits of those that hit it."},
		{path: "cpuManagerPolicy", kind: kindString, def: "none", doc: "`static`: containers of guaranteed pods that ask for whole cpus have them for themselves. `none`: all share all."},
		{path: "reservedSystemCPUs", kind: kindString, doc: "Processors that `cpuManagerPolicy: static`, which needs some, gives to nobody: `0` or `0-1,8`."},
		{path: "memorySwap.swapBehavior", kind: kindString, def: "NoSwap", doc: "`NoSwap`: containers do not swap. `LimitedSwap`: those of burstable pods may, in proportion to the memory they request (cgroup v2)."},
		{path: "memoryThrottlingFactor", kind: kindNumber, def: float64(0), doc: "From which part of the way from its memory request to its limit a container is slowed down (cgroup v2, memory.high), as 0.9. 0: it is not."},
		{path: "memoryReservationPolicy", kind: kindString, def: "None", doc: "`TieredReservation`: requested memory is protected from being reclaimed, absolutely in guaranteed pods and as far as possible in burstable ones (cgroup v2, memory.min and memory.low). `None`: it is not."},
		{path: "singleProcessOOMKill", kind: kindBool, def: false, doc: "Whether a container goes on when one of its processes runs out of memory. It always may on cgroup v1."},
		{path: "podPidsLimit", kind: kindInt, def: int64(-1), doc: "Most processes and threads of one pod. -1: no limit."},
	}
}

func sourceKeys() []configKey {
	return []configKey{
		{path: "staticPodPath", kind: kindPath, def: "/etc/monopod/manifests", doc: "Directory, or single file, with the Pod manifests to run (`.yaml`, `.yml`, `.json`). Empty: no file source."},
		{path: "staticPodURL", kind: kindString, doc: "http or https URL of further manifests. Empty: no URL source."},
		{path: "staticPodURLHeader", kind: kindHeaders, doc: "Headers sent with each request for `staticPodURL`, as in `{Authorization: [\"Bearer ...\"]}`. The values are secrets: they are never printed."},
		{path: "sources", kind: kindSources, doc: "Further sources, each with a name. On conflict `sourceOrder` decides. The last good answer of each is kept on disk, also that of `staticPodURL`, so that its pods start without it."},
		{path: "sourceOrder", kind: kindStrings, derived: "`file`, `http`, those of `sources`, `applied`", doc: "Precedence of the sources, by their names: of an object that two of them define, that of the earlier one counts. `file` is `staticPodPath`, `http` is `staticPodURL`, `applied` is what `monopod apply` stored. Those that are not named follow in their usual order."},
		{path: "fileCheckFrequency", kind: kindDuration, def: 20 * time.Second, doc: "How often `staticPodPath` is read again besides on each change that the kernel reports."},
		{path: "httpCheckFrequency", kind: kindDuration, def: 20 * time.Second, doc: "How often `staticPodURL` is asked."},
		{path: "nodeName", kind: kindString, derived: "the host name in lower case", doc: "Name of this machine: `spec.nodeName` of each pod, and the default host name of pods on the host network."},
	}
}

func runtimeKeys() []configKey {
	return []configKey{
		{path: "rootDirectory", kind: kindPath, def: "/var/lib/monopod", doc: "What must survive a reboot: images, containers, volumes. One instance at a time may use it."},
		{path: "stateDirectory", kind: kindPath, def: "/run/monopod", doc: "What need not survive a reboot: namespaces, sockets, the lock. Best on a tmpfs."},
		{path: "socket", kind: kindPath, derived: "`monopod.sock` in `stateDirectory`", doc: "Unix socket on which `monopod get`, `describe` and `logs` find the daemon. Only root may use it."},
		{path: "podLogsDir", kind: kindPath, def: "/var/log/pods", doc: "Where the output of containers is written, as `<namespace>_<name>_<uid>/<container>/<n>.log`."},
		{path: "containerRuntimeEndpoint", kind: kindString, doc: "Empty: containerd runs inside monopod. `unix:///run/containerd/containerd.sock`: the containerd that is already there is used."},
		{path: "ociRuntime", kind: kindString, derived: "the system's `runc`, else the one that came with monopod", doc: "OCI runtime: a name to look up in PATH, such as `crun`, or a path."},
		{path: "runtimeHandlers", kind: kindPrograms, derived: "`runc`, `crun`, `youki` and `runsc` are looked up in PATH, and for `nvidia` `nvidia-container-runtime`", doc: "OCI runtimes by the `handler` of RuntimeClasses, as in `{wasm: /usr/local/bin/crun-wasm}`: names to look up in PATH, or paths. They are called as runc is; containerd shims, such as kata's, cannot be used."},
		{path: "shimPath", kind: kindPath, derived: "`containerd-shim-monopod-v2` that came with monopod, beside it, or in PATH", doc: "Path of monopod's containerd shim."},
		{path: "snapshotter", kind: kindString, def: "overlayfs", doc: "containerd snapshotter. The containerd inside monopod has `overlayfs` and, for file systems without overlays, `native`, which copies everything."},
		{path: "cgroupRoot", kind: kindString, def: "/monopod", doc: "Cgroup below which the cgroups of pods are made."},
		{path: "podCIDR", kind: kindString, def: "10.87.0.0/16", doc: "Subnet of the pods on monopod's own bridge, IPv4 or IPv6, or one of each with a comma between; unused when `cniConfDir` holds a configuration."},
		{path: "runPodCIDR", kind: kindString, def: "10.84.0.0/16", doc: "Where `monopod once` and `monopod up` take their subnets from: each a /24 (IPv6: a /64) that is free on this machine."},
		{path: "bridgeName", kind: kindString, derived: "`monopod0`; another name when that bridge belongs to another subnet", doc: "Name of monopod's own bridge, at most 15 characters."},
		{path: "cniConfDir", kind: kindPath, def: "/etc/cni/net.d", doc: "When this directory holds a CNI configuration it is used instead of monopod's own bridge."},
		{path: "cniBinDirs", kind: kindPaths, derived: "the plugins that came with monopod, `/opt/cni/bin`, `/usr/lib/cni`", doc: "Directories with CNI plugins."},
		{path: "podDNS", kind: kindString, def: "auto", doc: "`auto`: monopod answers on its bridge, port 53, for the names of pods and Services, and pods with dnsPolicy ClusterFirst ask it; not when `clusterDNS` is set or `cniConfDir` holds a configuration. `off`: never."},
		{path: "clusterDNS", kind: kindStrings, doc: "Name servers of pods with dnsPolicy ClusterFirst, at most 3. Empty: such pods ask monopod (`podDNS`), else get those of `resolvConf`."},
		{path: "clusterDomain", kind: kindString, def: "cluster.local", doc: "Domain in the full host name of pods with a `subdomain`, and in the search list of pods that use `clusterDNS`."},
		{path: "resolvConf", kind: kindPath, def: "/etc/resolv.conf", doc: "File from which pods get the name servers of the host. Empty: none."},
	}
}

func securityKeys() []configKey {
	return []configKey{
		{path: "seccompDefault", kind: kindBool, def: false, doc: "Whether containers that ask for no seccomp profile get RuntimeDefault, as if they asked for that. Counts for containers that are made from then on."},
		{path: "seccompProfileRoot", kind: kindPath, derived: "`seccomp` in `rootDirectory`", doc: "Directory with the files that `seccompProfile` of type Localhost names: JSON, as in `linux.seccomp` of an OCI spec."},
		{path: "allowedUnsafeSysctls", kind: kindStrings, doc: "Sysctls that pods may set besides the safe ones of Kubernetes: names, or prefixes as in `net.core.*`. Only those of network and ipc namespaces."},
		{path: "helmHooks", kind: kindBool, def: false, doc: "Whether pods and workloads with the annotation `helm.sh/hook` run. Helm runs them at a moment of an installation, or as a test; here they would run at once, so that they are reported and left out."},
		{path: "podSecurity", kind: kindString, def: "privileged", doc: "Pod Security Standard that each pod must meet: `privileged` (no demands), `baseline` or `restricted`. A manifest that does not is refused; what runs already runs on."},
		{path: "staticPodPathSecurity", kind: kindString, derived: "`podSecurity`", doc: "Pod Security Standard for the pods of `staticPodPath`."},
		{path: "staticPodURLSecurity", kind: kindString, derived: "`podSecurity`", doc: "Pod Security Standard for the pods of `staticPodURL`."},
		{path: "staticPodURLCriticalPods", kind: kindBool, def: false, doc: "Whether pods of `staticPodURL` may be critical, as `criticalPods` of an entry of `sources`. Pods of `staticPodPath` and of `monopod apply` always may."},
		{path: "appliedSecurity", kind: kindString, derived: "`podSecurity`", doc: "Pod Security Standard for the pods of `monopod apply`."},
	}
}

func agentKeys() []configKey {
	return []configKey{
		{path: "maxPods", kind: kindInt, def: int64(110), doc: "Most pods that run at once; further ones wait, in order of precedence."},
		{path: "maxConcurrentStarts", kind: kindInt, def: int64(4), doc: "How many pods are worked on at once when many start or stop."},
		{path: "crashLoopBackOff.maxContainerRestartPeriod", kind: kindDuration, def: 300 * time.Second, doc: "Longest wait between two restarts of a crashing container; 1s to 300s."},
		{path: "streamingConnectionIdleTimeout", kind: kindDuration, def: 4 * time.Hour, doc: "After which time connections of `monopod exec`, `attach` and `port-forward` on which nothing moves are ended; 1s to 24h."},
		{path: "autoRollback.enabled", kind: kindBool, def: false, doc: "Whether a changed pod that is not Ready in time, or does not stay Ready, goes back to its last revision that was. The annotation `monopod.dev/auto-rollback` of a pod overrides it."},
		{path: "autoRollback.readyDeadline", kind: kindDuration, def: 5 * time.Minute, doc: "Within which time a changed pod must be Ready; 1s to 24h. The annotation `monopod.dev/ready-deadline` overrides it."},
		{path: "autoRollback.soak", kind: kindDuration, def: time.Minute, doc: "How long it must stay Ready then, without a restart of a container; up to 24h. The annotation `monopod.dev/soak` overrides it."},
		{path: "logging.format", kind: kindString, def: "text", doc: "Format of monopod's own log on stderr: `text` or `json`."},
		{path: "logging.level", kind: kindString, def: "info", doc: "Least important messages to log: `debug`, `info`, `warn` or `error`."},
	}
}

// isPath says that relative values are resolved.
func (k configKey) isPath() bool { return k.kind == kindPath || k.kind == kindPaths }

// isMap says that the values of all layers count together.
func (k configKey) isMap() bool {
	return k.kind == kindHeaders || k.kind == kindLists || k.kind == kindPrograms || k.kind == kindTexts
}

// value returns the built-in default.
func (k configKey) value() any {
	switch {
	case k.def != nil:
		if list, ok := k.def.([]string); ok {
			return slices.Clone(list) // it becomes a part of the configuration
		}
		return k.def
	case k.kind == kindStrings || k.kind == kindPaths:
		return []string{}
	case k.isMap():
		return map[string]any{}
	case k.kind == kindSources || k.kind == kindSourceHeaders || k.kind == kindGraces || k.kind == kindRules:
		return []any{}
	default:
		return ""
	}
}

// env is the name of the environment variable of the key: MONOPOD_ and the key in upper case, with an
// underscore between words and two between levels.
func (k configKey) env() string {
	if k.names != nil {
		return k.names.env
	}
	levels := strings.Split(k.path, ".")
	for i, l := range levels {
		levels[i] = strings.ToUpper(strings.Join(words(l), "_"))
	}
	return envPrefix + strings.Join(levels, "__")
}

// flag is the name of the key's flag; empty for keys that have none because their values are secrets, and
// any user of the machine can read a command line.
func (k configKey) flag() string {
	if k.names != nil {
		return k.names.flag
	}
	if k.kind == kindHeaders || k.kind == kindSources || k.kind == kindRules {
		return ""
	}
	all := make([]string, 0, 8)
	for l := range strings.SplitSeq(k.path, ".") {
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
