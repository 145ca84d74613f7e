package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/daemon/state"
	"monopod/internal/daemon/telemetry"
	"monopod/internal/version"
	"monopod/node/apiserver"
	"monopod/node/nodemeta"
	"monopod/node/pressure"
)

// kubernetesVersion is the Kubernetes release whose kubelet the Node reports: the one that the tests run against.
const kubernetesVersion = "v1.37.2"

// kubeletVersion returns the version in the Node. Clients parse it as a Kubernetes version, and compare it.
func kubeletVersion(monopod string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' {
			return r
		}
		return '-'
	}, strings.TrimPrefix(monopod, "v"))
	return kubernetesVersion + "+monopod-" + plain
}

// Resources are the resources of the node.
type Resources interface {
	Capacity() corev1.ResourceList
	Allocatable() corev1.ResourceList
}

// FactsDeps is what NodeFacts reads.
type FactsDeps struct {
	Log    *slog.Logger
	State  *state.Store
	Images *imagegc.Images
	Usage  *telemetry.Usage
	// Resources may be nil: the Node then has none.
	Resources Resources
	// Addresses returns the addresses of this machine, IPv4 first.
	Addresses func() ([]string, error)
	// Closed reports whether the node is cordoned, and whether the machine shuts down.
	Closed func() (cordoned, shuttingDown bool)
	// Set returns what clients have set on the Node; nil: nothing.
	Set func() nodemeta.Metadata
	// Pressure returns the pressure conditions; nil: they are not monitored.
	Pressure func() []corev1.NodeCondition
}

// NodeFacts collects the status of the Node. Its methods may be called from any goroutine.
type NodeFacts struct {
	FactsDeps
	cfg  *config.Loaded
	info func() corev1.NodeSystemInfo

	mu sync.Mutex // guards all below
	// containerd is the last known version of an external containerd.
	containerd string
	// known are the images at the time listed, when their state was listedState.
	known       []corev1.ContainerImage
	listedState uint64
	listed      time.Time
}

// NewNodeFacts returns the facts of this machine.
func NewNodeFacts(cfg *config.Loaded, d FactsDeps) *NodeFacts {
	return &NodeFacts{FactsDeps: d, cfg: cfg, info: sync.OnceValue(func() corev1.NodeSystemInfo { return systemInfo(kubeletVersion(version.String()), "") })}
}

// system returns the kernel, operating system and containerd of this machine.
func (f *NodeFacts) system() corev1.NodeSystemInfo {
	info := f.info()
	if f.cfg.ContainerRuntimeEndpoint == "" {
		info.ContainerRuntimeVersion += linkedContainerd()
		return info
	}
	f.containerd = cmp.Or(f.Usage.ContainerdVersion(), f.containerd)
	info.ContainerRuntimeVersion += strings.TrimPrefix(cmp.Or(f.containerd, "Unknown"), "v") // as in a kubelet's Node
	return info
}

// linkedContainerd returns the version of the embedded containerd.
func linkedContainerd() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/containerd/containerd/v2" {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// Now returns the current facts.
func (f *NodeFacts) Now() apiserver.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	ips, err := f.Addresses()
	if err != nil {
		f.Log.Debug("the node has no address", "err", err)
	}
	conditions := pressure.Unwatched()
	if f.Pressure != nil {
		conditions = f.Pressure()
	}
	cordoned, shuttingDown := f.Closed()
	facts := apiserver.Facts{
		Addresses: apiserver.NodeAddresses(ips, f.cfg.NodeName), Info: f.system(), Images: f.images(), Port: int32(f.cfg.Port), Unschedulable: cordoned,
		Conditions: append(conditions, f.ready(shuttingDown)), // Ready is the last one, as in a kubelet's Node
	}
	if f.Set != nil {
		facts.Set = f.Set()
	}
	if f.Resources != nil {
		facts.Capacity, facts.Allocatable = f.Resources.Capacity(), f.Resources.Allocatable()
	}
	return facts
}

// ready returns the condition Ready.
func (f *NodeFacts) ready(shuttingDown bool) corev1.NodeCondition {
	no := func(message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
	}
	if shuttingDown {
		return no("node is shutting down")
	}
	if err := f.State.Trouble(); err != nil {
		return no(err.Error())
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "monopod is posting ready status"}
}

const (
	// listImagesEvery is how often images are listed while no change is known.
	listImagesEvery = 5 * time.Minute
	// maxImageNames limits the names of an image in the Node, as a kubelet does.
	maxImageNames = 5
	// listTimeout bounds listing images.
	listTimeout = 10 * time.Second
)

// images returns the images of the machine. They are listed again when some may have changed.
func (f *NodeFacts) images() []corev1.ContainerImage {
	now := f.Images.State()
	if !f.listed.IsZero() && now == f.listedState && time.Since(f.listed) < listImagesEvery {
		return f.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	all, err := f.Images.List(ctx)
	if err != nil {
		f.Log.Debug("list the images of the node", "err", err)
		return f.known
	}
	f.known, f.listedState, f.listed = nil, now, time.Now()
	for i := range all {
		names := slices.Concat(all[i].RepoDigests, all[i].Names)
		f.known = append(f.known, corev1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: all[i].Size})
	}
	return f.known
}
