package daemon

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/board"
	"monopod/internal/version"
	"monopod/node/apiserver"
	"monopod/node/secure"
)

// Reasons of events about the API server.
const (
	eventAPIServerLost  = "APIServerUnreachable"
	eventAPIServerFound = "APIServerReachable"
	eventNotMirrored    = "FailedMirrorPod"
)

// kubernetesVersion is the release of Kubernetes whose kubelet a Node of this machine stands for: the one that the tests run against.
const kubernetesVersion = "v1.36.3"

// kubeletVersion is the version that a Node shows. Clients parse it as that of Kubernetes, and compare it.
func kubeletVersion(monopod string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' {
			return r
		}
		return '-'
	}, strings.TrimPrefix(monopod, "v"))
	return kubernetesVersion + "+monopod-" + plain
}

func nodeTaints(written []string) []corev1.Taint {
	var out []corev1.Taint
	for _, text := range written {
		if t, err := config.ParseTaint(text); err == nil { // it was checked
			out = append(out, t)
		}
	}
	return out
}

// mirrored are the pods as the API server is told of them.
type mirrored struct{ *board.Board }

// Pods implements apiserver.Pods: those that have been looked at.
func (m mirrored) Pods() (pods []*corev1.Pod, complete bool) {
	views, err := m.Board.Pods()
	if err != nil {
		return nil, false
	}
	complete = true
	for i := range views {
		if views[i].Why == board.NotLookedAt {
			complete = false
			continue
		}
		pods = append(pods, views[i].Pod)
	}
	return pods, complete
}

// nodeFacts is what the Node's status is made of. One goroutine asks.
type nodeFacts struct {
	app  *App
	info func() corev1.NodeSystemInfo
	// containerd is the version that a containerd of its own was last known to have.
	containerd string
	// known are the images when they were last listed, in that state of them.
	known  []corev1.ContainerImage
	state  uint64
	listed time.Time
}

func newNodeFacts(a *App) *nodeFacts {
	return &nodeFacts{app: a, info: sync.OnceValue(func() corev1.NodeSystemInfo { return apiserver.SystemInfo(kubeletVersion(version.String()), "") })}
}

// system is what machine this is, with the containerd that runs its containers.
func (f *nodeFacts) system() corev1.NodeSystemInfo {
	info := f.info()
	if f.app.cfg.ContainerRuntimeEndpoint == "" {
		info.ContainerRuntimeVersion += linkedContainerd()
		return info
	}
	f.containerd = cmp.Or(f.app.gauges.ContainerdVersion(), f.containerd)
	info.ContainerRuntimeVersion += strings.TrimPrefix(cmp.Or(f.containerd, "Unknown"), "v") // as a kubelet says it
	return info
}

// linkedContainerd is the version of the containerd inside this program.
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

// now reads what changes.
func (f *nodeFacts) now() apiserver.Facts {
	a, cfg := f.app, f.app.cfg
	ips, err := a.machine.Addresses()
	if err != nil {
		a.Log.Debug("the node has no address", "err", err)
	}
	cordoned, ending := a.gate.Closed()
	facts := apiserver.Facts{
		Addresses: apiserver.NodeAddresses(ips, cfg.NodeName), Info: f.system(), Images: f.images(), Port: int32(cfg.Port), Unschedulable: cordoned,
		Conditions: append(a.pressures(), f.ready(ending)), // the last one, as a kubelet's
	}
	if r := a.resources; r != nil {
		facts.Capacity, facts.Allocatable = r.Capacity(), r.Allocatable()
	}
	return facts
}

// ready is the condition that counts for schedulers.
func (f *nodeFacts) ready(ending bool) corev1.NodeCondition {
	no := func(message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
	}
	if ending {
		return no("node is shutting down")
	}
	if err := f.app.Board.Sight(); err != nil {
		return no(err.Error())
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "monopod is posting ready status"}
}

const (
	// listImagesEvery is how often the images are listed while none is known to have come or gone.
	listImagesEvery = 5 * time.Minute
	// maxImageNames is how many names of an image a Node has, as a kubelet's.
	maxImageNames = 5
	// listTimeout is how long listing them may take.
	listTimeout = 10 * time.Second
)

// images are those of the machine. They are listed when some came or went.
func (f *nodeFacts) images() []corev1.ContainerImage {
	state := f.app.images.State()
	if !f.listed.IsZero() && state == f.state && time.Since(f.listed) < listImagesEvery {
		return f.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	all, err := f.app.images.List(ctx)
	if err != nil {
		f.app.Log.Debug("the node tells of no images", "err", err)
		return f.known
	}
	f.known, f.state, f.listed = nil, state, time.Now()
	for i := range all {
		names := slices.Concat(all[i].RepoDigests, all[i].Names)
		f.known = append(f.known, corev1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: all[i].Size})
	}
	return f.known
}

// reviews has the API server say who asks over TCP, and what they may do. Without one it is not known.
type reviews struct{ *apiserver.Webhook }

// AuthenticateToken implements secure.Authenticator.
func (r reviews) AuthenticateToken(ctx context.Context, token string) (secure.User, bool, error) {
	who, ok, err := r.Authenticate(ctx, token)
	u := secure.User{Name: who.Username, UID: who.UID, Groups: who.Groups}
	for k, v := range who.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u, ok, err
}

// Authorize implements secure.Authorizer.
func (r reviews) Authorize(ctx context.Context, at secure.Attributes) (bool, error) {
	if r.Webhook == nil {
		return false, apiserver.ErrNoServer
	}
	who := authenticationv1.UserInfo{Username: at.User.Name, UID: at.User.UID, Groups: at.User.Groups}
	for k, v := range at.User.Extra {
		if who.Extra == nil {
			who.Extra = map[string]authenticationv1.ExtraValue{}
		}
		who.Extra[k] = v
	}
	allowed, _, err := r.Webhook.Authorize(ctx, who, at.Verb, at.Subresource)
	return allowed, err
}
