package daemon

import (
	"context"
	"maps"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/apply"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/diagnose"
	"monopod/internal/daemon/expiry"
	"monopod/internal/daemon/history"
	"monopod/internal/daemon/kubeletapi"
	"monopod/internal/daemon/sources"
	"monopod/internal/daemon/state"
	"monopod/internal/host"
	"monopod/internal/logfile"
	"monopod/internal/offline"
	"monopod/internal/version"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/node/localclient"
	"monopod/node/nodemeta"
	"monopod/node/secure"
	"monopod/node/shutdown"
	"monopod/node/systemd"
	"monopod/node/why"
	"monopod/runner/pool"
	"monopod/runner/spec/limits"
	"monopod/watcher"
)

// machineParts are the parts that depend on whom a daemon works for. All but sources may be missing.
type machineParts struct {
	// sources are read by precedence. Pods from other sources are removed once all of these have been read.
	sources []watcher.Source
	// observers receive each change of a pod.
	observers []func(pool.Change)
	// resources of the node, and their eviction monitor; nil: pods are not limited.
	resources *nodeResources
	evictor   *evictor
	// roomy allows pods to request more than the available resources.
	roomy bool
	// podsLimits are the limits of all pods together.
	podsLimits limits.AllPods
	// labels are the labels with which pods select nodes; nil: they select none.
	labels *nodemeta.Selection
	// link is the connection to an API server.
	link       *cluster.Link
	unmirrored *state.Unmirrored
	applier    *apply.Applier
	// listener is the listener of the Kubernetes API; if nil, the API listens itself if an address is configured.
	listener  net.Listener
	scheduler node.Scheduler
	// prepare and loops run besides those of every daemon.
	prepare []func(context.Context)
	loops   []loop
}

// newMachineParts returns the parts of the daemon of a machine.
func newMachineParts(c *core) (*machineParts, error) {
	cfg, d := c.cfg, c.deps
	m := &machineParts{labels: cluster.Selection(cfg), unmirrored: &state.Unmirrored{}, scheduler: c.gate}
	if err := m.measure(c); err != nil {
		return nil, err
	}
	m.link = cluster.New(cfg, cluster.Deps{
		Log: d.Log, State: c.state, Events: c.events, Unmirrored: m.unmirrored, Facts: cluster.NewNodeFacts(cfg, m.facts(c)), Changed: c.nodeChanged,
	})
	from := sources.Deps{Log: d.Log, Applied: c.applied, Aside: d.Machine.Aside}
	if m.link != nil {
		m.loops = append(m.loops, m.link.Run)
		if cfg.APIServerPods {
			from.Bound = m.link.Source()
		}
	}
	m.sources = sources.New(cfg, from)
	m.applier = newApplier(c)
	m.loops = append(m.loops, func(ctx context.Context) error { c.events.WatchOOM(ctx, "/dev/kmsg", c.state); return nil })
	if d.Manager.Listens() {
		m.loops = append(m.loops, endless((&service{
			manager: d.Manager, log: d.Log, alive: localclient.New(cfg.Socket).Live, changed: c.state.Subscribe, readyTimeout: readyAfter,
			status: func() (string, bool) { return statusLine(c.state, c.gate) },
		}).run))
	}
	if d.Lock != nil {
		m.loops = append(m.loops, (&handover{lock: d.Lock, cfg: cfg, gate: c.gate, events: c.events, log: d.Log}).run)
	}
	if groups := cfg.ShutdownGroups(); len(groups) > 0 {
		s := &shutdown.Manager{
			Pods: c.gate, Groups: groups, Log: d.Log, Record: c.events.Node, Marker: c.gate.Marker(),
			Connect: d.Host.Connect, HasLogind: d.Host.HasSystemd, AllowDelay: func(t time.Duration) error { return systemd.AllowDelay(t, d.Host.Logind...) },
		}
		m.prepare = append(m.prepare, func(context.Context) { s.Resume() })
		m.loops = append(m.loops, endless(s.Run))
	}
	return m, nil
}

// newApplier returns what stores the objects of clients.
func newApplier(c *core) *apply.Applier {
	return &apply.Applier{
		Store: c.applied, State: c.state, Policy: c.cfg.Policy(config.SourceApplied), Order: c.cfg.SourceNames(), Log: c.deps.Log,
		VisibleTimeout: c.deps.Machine.VisibleTimeout, Node: c.cfg.NodeName,
	}
}

// facts returns what the facts of the Node are read from.
func (m *machineParts) facts(c *core) cluster.FactsDeps {
	f := cluster.FactsDeps{Log: c.deps.Log, State: c.state, Images: c.images, Usage: c.usage, Addresses: c.deps.Machine.Addresses, Closed: c.gate.Closed, Set: c.nodeMeta.Current}
	if m.resources != nil {
		f.Resources = m.resources
	}
	if m.evictor != nil {
		f.Pressure = m.evictor.conditions
	}
	return f
}

// pressure returns the pressure conditions; none if they are not monitored.
func (m *machineParts) pressure() []corev1.NodeCondition { return m.evictor.conditions() }

// consumer returns the Applier for documents from clients; nil if there is none.
func (m *machineParts) consumer() node.Applier {
	if m.applier == nil {
		return nil
	}
	return m.applier
}

// assemble connects the parts, and listens on the socket.
func assemble(c *core, m *machineParts) (*Daemon, error) {
	cfg, d := c.cfg, c.deps
	desired := newDesiredLoop(c, m.sources)
	server, api, k, err := newServer(c, m, desired.watcher.Beat)
	if err != nil {
		return nil, err
	}
	a := &Daemon{State: c.state, cfg: cfg, log: d.Log, core: c, kube: k, server: server, prepare: append(m.prepare, k.loaded)}
	if a.listener, err = node.Listen(cfg.Socket); err != nil {
		return nil, err
	}
	a.loops = append(a.loops, func(ctx context.Context) error { return server.Run(ctx, a.listener) })
	for _, port := range api.Ports() {
		a.loops = append(a.loops, secure.NewServer(port).Run)
	}
	if cfg.APIServer.Address != "" {
		a.loops = append(a.loops, k.api.Run, func(ctx context.Context) error { return c.forPods.Access.Run(ctx, k.api.RunAt) })
	}
	a.loops = append(a.loops, desired.run, c.state.Rollouts.Run, endless(c.memory.Run), endless(c.gate.Run))
	if m.applier != nil {
		a.loops = append(a.loops, (&expiry.Controller{API: k.api, Expired: c.state.Workloads.Expired, Log: d.Log}).Run)
	}
	if c.names != nil {
		a.prepare = append(a.prepare, c.names.listen)
		a.loops = append(a.loops, c.names.run)
	}
	a.prepare = append(a.prepare, c.services.Prepare)
	a.loops = append(a.loops, func(ctx context.Context) error { c.services.Run(ctx, c.names.follow()); return nil })
	if c.traces != nil {
		a.loops = append(a.loops, endless(c.traces.Tracer.Run))
	}
	if m.evictor != nil {
		a.loops = append(a.loops, endless(m.evictor.run))
	}
	a.loops = append(a.loops, m.loops...)
	a.loops = append(a.loops, newRuntimeLoop(c, m).run)
	return a, nil
}

// newServer returns the server of the socket, and the endpoints of a kubelet, which it serves too. sources is the liveness check of the watcher.
func newServer(c *core, m *machineParts, sources func(context.Context) error) (*node.Server, *kubeletapi.API, kubernetes, error) {
	cfg, d := c.cfg, c.deps
	settings, err := cfg.JSON()
	if err != nil {
		return nil, nil, kubernetes{}, err
	}
	var server *node.Server // serves the streams of the endpoints, which it has among its own
	api := kubeletapi.New(cfg, kubeletapi.Deps{
		Log: d.Log, State: c.state, Tally: c.tally, Stats: c.stats, Usage: c.usage, Pressure: m.pressure,
		Checks:   kubeletapi.NewChecks(c.state, kubeletapi.Loops{Sources: sources, Revisions: c.state.Rollouts.Beat, Drain: c.gate.Beat}, cfg.RootDirectory),
		Streams:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Streams().ServeHTTP(w, r) }),
		Answered: c.memory.Answered, Addresses: d.Machine.Addresses, Link: m.link,
	})
	k := newKubernetes(c, m, m.applier, func() *node.Server { return server }, api.Socket.Handler())
	routes := api.Socket.Routes()
	maps.Copy(routes, k.api.Routes())
	objects := &objectList{node: cfg.NodeName, state: c.state, services: c.services.Assigned, matches: cluster.Matches(m.labels, c.nodeMeta.Current), gate: c.gate, pressure: m.pressure}
	server = node.NewServer(node.Config{
		Pods: c.state, Logs: logfile.New(cfg.PodLogsDir), Inputs: c.state, Whys: newExplainer(c, m), Events: c.events.Recorder,
		Revisions: history.Revisions{Of: c.state.Rollouts}, Images: c.images, Leaving: c.state.Removals.Views, Objects: objects.list, Shown: k.state.Objects, Settings: settings,
		Version: version.String(), Agent: func() localapi.Agent { return m.usage(c) }, Log: d.Log, Routes: routes, Around: api.Socket.OnSocket, Alias: m.link.Alias(),
		Reach: c.access, Files: c.access, StreamIdleTimeout: cfg.StreamingConnectionIdleTimeout, Applier: m.consumer(), Scheduler: m.scheduler, Shared: k.api.WithOwn,
		Visible: k.api.Visible, AdmitRollback: k.api.AdmitRollback,
	})
	return server, api, k, nil
}

func newExplainer(c *core, m *machineParts) *diagnose.Explainer {
	machine := host.This()
	return &diagnose.Explainer{
		Instance: why.Instance{Config: machine.InstanceOf(c.cfg).Config}, State: c.state, Logs: logfile.New(c.cfg.PodLogsDir), Places: offline.PlacesOf(c.cfg),
		Now: time.Now, Proc: "/proc", Events: c.events.Recorder, Images: c.images, Unmirrored: m.unmirrored, Unfit: m.link.Unfit, Copies: c.deps.Copies, Network: c.access.Network.Text, Services: c.services.Assigned,
	}
}
