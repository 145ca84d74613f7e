package daemon

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemon/apply"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/history"
	"monopod/internal/daemon/kubeserver"
	"monopod/internal/daemon/kubeview"
	"monopod/internal/daemon/kubewrite"
	"monopod/internal/version"
	"monopod/node"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/authority"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/streams"
	"monopod/node/localapi"
	"monopod/node/nodemeta"
)

// kubernetes are the parts of the Kubernetes API.
type kubernetes struct {
	api *kubeserver.API
	// state provides the objects, authority issues certificates.
	state     kubeapi.State
	authority *authority.Authority
	// load restores conditions that clients set before the last start; nil if none can have been set.
	load func()
}

// newKubernetes returns the Kubernetes API. Without an applier it is read-only.
func newKubernetes(c *core, m *machineParts, applier *apply.Applier, server func() *node.Server, kubelet http.Handler) kubernetes {
	cfg, d, ca := c.cfg, c.deps, c.forPods.Authority
	view := kubeview.Config{
		Node: cfg.NodeName, State: c.state, Facts: cluster.NewNodeFacts(cfg, m.facts(c)).Now, Labels: m.labels.Labels(nodemeta.Metadata{}), Matches: cluster.Matches(m.labels, c.nodeMeta.Current), Services: c.services.Assigned, LeaseDuration: time.Duration(cfg.NodeLeaseDurationSeconds) * time.Second,
		Events: c.events, Stats: c.stats, Images: c.images, Revisions: history.Revisions{Of: c.state.Rollouts},
		Agent: func() localapi.Agent { return m.usage(c) }, CA: func() string { return kubeserver.AuthorityText(ca, cfg.APIServer.Address) }, ModTime: kubeview.FileTime,
		APIAddress: c.forPods.Access.Addresses,
	}
	if applier != nil {
		view.Kept = c.forPods.Kept
	}
	state := kubeview.New(view)
	k := kubernetes{authority: ca, state: state}
	var writer kubeapi.Writer
	if applier != nil {
		w := kubewrite.New(kubewrite.Config{
			Applier: applier, Memory: c.forPods.Kept, Cordon: c.cordon, Shown: state, Node: func() *corev1.Node { return nodeOf(state) }, Refused: c.services.Refused,
			NodeLabels: cfg.NodeLabels, NodeMeta: c.nodeMeta, Immutable: cfg.APIServer.ImmutablePods(),
		})
		writer, k.load = w, w.Load
	}
	k.api = kubeserver.New(cfg, kubeserver.Deps{
		Log: d.Log, State: state, Writer: writer, Authority: ca, Listener: m.listener, Version: version.String(), Answered: c.memory.Answered,
		Tokens: c.forPods.Access, Issuer: c.forPods.Issuer, Pod: func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
			return server().FindPod(ctx, namespace, name)
		},
		Streams: streams.New(streams.Config{
			Streams: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server().Streams().ServeHTTP(w, r) }), Dial: c.access.Dial, Node: kubelet, IdleTimeout: cfg.StreamingConnectionIdleTimeout, Log: d.Log,
		}),
	})
	return k
}

// nodeOf returns the Node, nil if it is not known.
func nodeOf(state kubeapi.State) *corev1.Node {
	objects, _ := state.Objects(context.Background())
	for _, o := range objects[kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Node"))] {
		if n, ok := o.(*corev1.Node); ok {
			return n
		}
	}
	return nil
}

// cordon implements kubewrite.Config.Cordon.
func (c *core) cordon(unschedulable bool) error {
	if !unschedulable {
		_, err := c.gate.Undrain()
		return err
	}
	_, err := c.gate.Cordon(localapi.DrainRequest{})
	return err
}

// loaded runs load at startup, as a prepare function.
func (k kubernetes) loaded(context.Context) {
	if k.load != nil {
		k.load()
	}
}
