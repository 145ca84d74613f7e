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
	"monopod/internal/host"
	"monopod/internal/printer"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/apiserver"
	"monopod/node/apiserver/mirror"
	"monopod/node/pressure"
	"monopod/node/secure"
)

// Reasons of events about the API server.
const (
	eventAPIServerLost  = "APIServerUnreachable"
	eventAPIServerFound = "APIServerReachable"
	eventNotMirrored    = "FailedMirrorPod"
)

// newReporter returns what reports to the API server; nil: there is none.
func (a *App) newReporter() *apiserver.Agent {
	if a.cfg.Kubeconfig == "" || a.Only != nil {
		return nil
	}
	facts := newNodeFacts(a)
	a.news = make(chan struct{}, 1)
	return apiserver.New(apiserver.Config{
		NodeName: a.cfg.NodeName, Kubeconfig: a.cfg.Kubeconfig, Bootstrap: a.cfg.BootstrapKubeconfig, CertDir: a.cfg.CertDirectory,
		Rotate: a.cfg.RotateCertificates, ServerTLS: a.cfg.ServerTLSBootstrap, Register: a.cfg.RegisterNode, Source: a.cfg.APIServerPods,
		Labels: a.cfg.NodeLabels, Taints: nodeTaints(a.cfg.RegisterWithTaints), Platform: host.Platform(),
		LeaseDuration: time.Duration(a.cfg.NodeLeaseDurationSeconds) * time.Second,
		StatusEvery:   a.cfg.NodeStatusReportFrequency, CheckEvery: a.cfg.NodeStatusUpdateFrequency,
		EventQPS: a.cfg.EventRecordQPS, EventBurst: a.cfg.EventBurst,
		Pods: mirrored{a.Board}, Events: a.events, Facts: facts.now, Changed: a.news, Log: a.Log, Tell: a.reported, Version: version.String(),
		Check: a.runnable, Leaving: a.Board.leave, Refused: a.refused, Conditions: a.Board.given,
	})
}

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

// reported hears what keeps a pod, or this machine, from being shown by the API server, or that nothing does any more.
func (a *App) reported(key mirror.Key, trouble error) {
	a.hidden.note(manifests.Key(key), trouble)
	switch about := podRef(manifests.Key(key)); {
	case key == mirror.Key{} && trouble != nil:
		a.tell(corev1.EventTypeWarning, eventAPIServerLost, "this machine is not reported to the API server: "+trouble.Error())
	case key == mirror.Key{}:
		a.tell(corev1.EventTypeNormal, eventAPIServerFound, "this machine is reported to the API server")
	case trouble != nil:
		a.events.Event(about, corev1.EventTypeWarning, eventNotMirrored, "the API server does not show it: "+trouble.Error())
	}
}

// hidden is what the API server does not show as it is, and why. The zero hidden is ready, and so is nil: it shows all.
type hidden struct {
	mu   sync.Mutex
	whys map[manifests.Key]string
}

func (h *hidden) note(key manifests.Key, trouble error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case trouble == nil:
		delete(h.whys, key)
	case h.whys == nil:
		h.whys = map[manifests.Key]string{key: printer.OneLine(trouble.Error())}
	default:
		h.whys[key] = printer.OneLine(trouble.Error())
	}
}

func (h *hidden) why(key manifests.Key) string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.whys[key]
}

// mirrored are the pods as the API server is told of them.
type mirrored struct{ *board }

// Pods implements apiserver.Pods: those that have been looked at.
func (m mirrored) Pods() (pods []*corev1.Pod, complete bool) {
	views, err := m.board.Pods()
	if err != nil {
		return nil, false
	}
	complete = true
	for i := range views {
		if views[i].Why == notLookedAt {
			complete = false
			continue
		}
		pods = append(pods, views[i].Pod)
	}
	return pods, complete
}

// sight says why no pods can be seen; nil: they can.
func (b *board) sight() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.pool != nil && b.published:
		return nil
	case b.trouble == nil:
		return node.ErrStarting
	}
	return b.trouble
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
	f.containerd = cmp.Or(f.app.gauges.containerdVersion(), f.containerd)
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
	cordoned, ending := a.gate.closed()
	facts := apiserver.Facts{
		Addresses: apiserver.NodeAddresses(ips, cfg.NodeName), Info: f.system(), Images: f.images(), Port: int32(cfg.Port), Unschedulable: cordoned,
		Conditions: append(a.pressures(), f.ready(ending)), // the last one, as a kubelet's
	}
	if r := a.resources; r != nil {
		facts.Capacity, facts.Allocatable = r.Capacity(), r.Allocatable()
	}
	return facts
}

// pressures are the conditions besides Ready. A kubelet that watches nothing has them, too: it is never short of anything.
func (a *App) pressures() []corev1.NodeCondition {
	if a.strain != nil {
		return a.strain.conditions()
	}
	return pressure.Unwatched()
}

// ready is the condition that counts for schedulers.
func (f *nodeFacts) ready(ending bool) corev1.NodeCondition {
	no := func(message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
	}
	if ending {
		return no("node is shutting down")
	}
	if err := f.app.Board.sight(); err != nil {
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
	state := f.app.images.state()
	if !f.listed.IsZero() && state == f.state && time.Since(f.listed) < listImagesEvery {
		return f.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	all, err := f.app.images.list(ctx)
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

// tellNode has the Node brought up to date now, and not some seconds later.
func (a *App) tellNode() {
	select {
	case a.news <- struct{}{}:
	default: // it is to be already, or there is no API server
	}
}

// closed says whether this machine takes no more pods, and whether it goes down.
func (g *gate) closed() (cordoned, ending bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Cordoned, g.ending != nil
}

// alias finds the pod that the API server knows by a name; nil where there is no API server.
func (a *App) alias() func(string) (string, bool) {
	if a.reporter == nil {
		return nil
	}
	return func(name string) (string, bool) { return mirror.LocalName(name, a.cfg.NodeName) }
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
