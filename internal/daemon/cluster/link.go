// Package cluster connects the daemon to a Kubernetes API server: the facts of its Node, the pods shown there, and the pods bound to this node.
//
// It must not talk to the API server itself, which node/apiserver does. It starts no goroutines: Link.Run is the loop of node/apiserver.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/nodeevents"
	"monopod/internal/daemon/sources"
	"monopod/internal/daemon/state"
	"monopod/internal/host"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/manifests/policy"
	"monopod/node/apiserver"
	"monopod/node/apiserver/mirror"
	"monopod/node/why"
	"monopod/runner"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// Reasons of events about the API server.
const (
	reasonLost        = "APIServerUnreachable"
	reasonFound       = "APIServerReachable"
	reasonNotMirrored = "FailedMirrorPod"
)

// Signal asks for an update of the Node without delay.
type Signal chan struct{}

// NewSignal returns a Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send requests an update. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // an update is pending, or there is no API server
	}
}

// Deps is what a Link needs besides the configuration.
type Deps struct {
	Log    *slog.Logger
	State  *state.Store
	Events *nodeevents.Recorder
	// Unmirrored receives the pods that the API server does not show.
	Unmirrored *state.Unmirrored
	// Facts are those of the Node.
	Facts *NodeFacts
	// Changed requests updates of the Node.
	Changed Signal
}

// Link is the connection to an API server. A nil Link has none: its methods for pods do nothing.
type Link struct {
	Deps
	*apiserver.Agent
	node   string
	place  string
	policy policy.Policy
	copies *fetch.Copy
}

// New returns the configured connection; nil: none is configured.
func New(cfg *config.Loaded, d Deps) *Link {
	if cfg.Kubeconfig == "" {
		return nil
	}
	l := &Link{Deps: d, node: cfg.NodeName, place: cfg.Kubeconfig + "\n" + cfg.NodeName, policy: cfg.Policy(config.SourceAPIServer), copies: cfg.CopyOf(config.SourceAPIServer)}
	l.Agent = apiserver.New(apiserver.Config{
		NodeName: cfg.NodeName, Kubeconfig: cfg.Kubeconfig, Bootstrap: cfg.BootstrapKubeconfig, CertDir: cfg.CertDirectory,
		Rotate: cfg.RotateCertificates, ServerTLS: cfg.ServerTLSBootstrap, Register: cfg.RegisterNode, Source: cfg.APIServerPods, Services: cfg.APIServerServices,
		Labels: cfg.NodeLabels, Taints: nodeTaints(cfg.RegisterWithTaints), Platform: host.Platform(),
		LeaseDuration: time.Duration(cfg.NodeLeaseDurationSeconds) * time.Second,
		StatusEvery:   cfg.NodeStatusReportFrequency, CheckEvery: cfg.NodeStatusUpdateFrequency,
		EventQPS: cfg.EventRecordQPS, EventBurst: cfg.EventBurst,
		Pods: mirrored{d.State}, Events: d.Events.Recorder, Facts: d.Facts.Now, Changed: d.Changed, Log: d.Log, Tell: l.reported, Version: version.String(),
		Check: l.checkRunnable, Leaving: d.State.Bound.SetGracePeriods, Refused: l.refused, Conditions: d.State.Bound.SetConditions, Debug: l.debug,
	})
	return l
}

// reported records why a pod, or with the zero Key the Node, is not shown by the API server; nil: it is shown again.
func (l *Link) reported(key manifests.Key, err error) {
	l.Unmirrored.Set(key, err)
	switch {
	case key == manifests.Key{} && err != nil:
		l.Events.Node(corev1.EventTypeWarning, reasonLost, "this machine is not reported to the API server: "+err.Error())
	case key == manifests.Key{}:
		l.Events.Node(corev1.EventTypeNormal, reasonFound, "this machine is reported to the API server")
	case err != nil:
		l.Events.Event(nodeevents.PodRef(key), corev1.EventTypeWarning, reasonNotMirrored, "the API server does not show it: "+err.Error())
	}
}

// checkRunnable returns why a pod bound to this node cannot run here; nil: it can.
func (l *Link) checkRunnable(pod *corev1.Pod) error {
	b, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	_, err = sources.PartialLoader(config.SourceAPIServer, l.policy)("", b)
	var reasons []string
	for _, e := range manifests.Errors(err) {
		if strings.HasPrefix(e.Field, "spec.securityContext.sysctls") {
			return &apiserver.RejectedError{Reason: mirror.ReasonSysctl, Message: strings.TrimPrefix(e.Msg, mirror.ReasonSysctl+": ")}
		}
		text := e.Msg
		if e.Field != "" {
			text = e.Field + ": " + text
		}
		if e.Hint != "" {
			text += "; " + e.Hint
		}
		reasons = append(reasons, text)
	}
	if len(reasons) == 0 {
		return err
	}
	return errors.New(strings.Join(reasons, "; "))
}

// refused records that a pod bound to this node does not run here.
func (l *Link) refused(r *apiserver.Refusal) {
	ref := r.Reference()
	l.Log.Warn("a pod that the API server bound to this node cannot be run", "pod", ref.Namespace+"/"+ref.Name, "reason", r.Reason, "why", r.Message)
	l.Events.Event(ref, corev1.EventTypeWarning, r.Reason, r.Message)
}

// Observe fails a bound pod that can never be admitted, so that its controller replaces it. Pods of manifests wait instead.
func (l *Link) Observe(c pool.Change) {
	held := c.Status.NotAdmitted()
	if l == nil || c.Gone || held == nil {
		return
	}
	reason, message := held.Reason, held.Message
	if reason == runner.ReasonHostPortConflict {
		reason = mirror.ReasonNodePorts
	}
	l.Reject(c.Status.Pod, reason, message)
}

// PodGone keeps the last status of a removed pod until the API server has received it.
func (l *Link) PodGone(s podstatus.Status) {
	if l != nil {
		l.Gone(s.Pod)
	}
}

// Unfit returns the bound pods that can never run here, sorted.
func (l *Link) Unfit() []why.Unfit {
	if l == nil {
		return nil
	}
	var all []why.Unfit
	for _, r := range l.Refusals() {
		if ref := r.Reference(); r.Reason != mirror.ReasonNameTaken {
			all = append(all, why.Unfit{Namespace: ref.Namespace, Name: ref.Name, Text: r.Message})
		}
	}
	slices.SortFunc(all, func(x, y why.Unfit) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// Alias returns a function that finds the local name of a pod by its name in the API server; nil: there is no API server.
func (l *Link) Alias() func(string) (string, bool) {
	if l == nil {
		return nil
	}
	return func(name string) (string, bool) { return mirror.LocalName(name, l.node) }
}

// Source returns the source of the pods bound to this node.
func (l *Link) Source() watcher.Source {
	return fetch.NewRemote(fetch.RemoteConfig{
		Name: config.SourceAPIServer, Input: "API server, node " + l.node, Place: l.place, Fetcher: fetcher{l.Agent}, Period: fetchPeriod,
		Load: withLeftOut(sources.PartialLoader(config.SourceAPIServer, l.policy)), Copy: l.copies, Log: l.Log,
	})
}

const fetchPeriod = 500 * time.Millisecond

// fetcher fetches the bound pods. Fetch waits for a change.
type fetcher struct{ agent *apiserver.Agent }

// Fetch implements fetch.Fetcher.
func (f fetcher) Fetch(ctx context.Context, seen fetch.Validators) (*fetch.Answer, error) {
	body, tag, err := f.agent.Bound(ctx, seen.ETag)
	switch {
	case errors.Is(err, apiserver.ErrSame):
		return nil, fetch.ErrNotModified
	case err != nil:
		return nil, err
	}
	return &fetch.Answer{Body: body, Validators: fetch.Validators{ETag: tag}}, nil
}

// Close implements fetch.Fetcher.
func (fetcher) Close() {}

// withLeftOut adds the pods that cannot run here to the ignored objects.
func withLeftOut(load watcher.Loader) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		c, err := load(input, data)
		if c != nil {
			c.Ignored = append(c.Ignored, apiserver.LeftOut(data)...)
		}
		return c, err
	}
}

// mirrored are the pods to show in the API server.
type mirrored struct{ *state.Store }

// Pods implements apiserver.Pods. Pods that have not been observed yet are left out.
func (m mirrored) Pods() (pods []*corev1.Pod, complete bool) {
	views, err := m.Store.Pods()
	if err != nil {
		return nil, false
	}
	complete = true
	for i := range views {
		if views[i].Why == state.NotLookedAt {
			complete = false
			continue
		}
		pods = append(pods, views[i].Pod)
	}
	return pods, complete
}

func nodeTaints(written []string) []corev1.Taint {
	var out []corev1.Taint
	for _, text := range written {
		if t, err := config.ParseTaint(text); err == nil { // it was validated with the configuration
			out = append(out, t)
		}
	}
	return out
}
