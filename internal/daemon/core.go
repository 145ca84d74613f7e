package daemon

import (
	"net/netip"
	"path/filepath"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/apiaccess"
	"monopod/internal/daemon/cluster"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemon/imagegc"
	"monopod/internal/daemon/nodeevents"
	"monopod/internal/daemon/services"
	"monopod/internal/daemon/state"
	"monopod/internal/daemon/telemetry"
	"monopod/internal/memory"
	"monopod/internal/offline"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/node/admission"
	"monopod/node/drain"
	"monopod/node/events"
	"monopod/node/metrics"
	"monopod/node/nodemeta"
	"monopod/node/shutdown"
	"monopod/node/stats"
	"monopod/node/tracing"
	"monopod/runner/rollout"
	"monopod/watcher/applied"
)

// core are the parts that every daemon has. None of them runs yet.
type core struct {
	cfg     *config.Loaded
	deps    Deps
	tally   *metrics.Tally
	events  *nodeevents.Recorder
	memory  *memory.Trimmer
	traces  *telemetry.Traces
	starts  *telemetry.StartClock
	usage   *telemetry.Usage
	stats   *stats.Collector
	pins    *imagegc.Pins
	state   *state.Store
	images  *imagegc.Images
	access  *containers.Access
	gate    *admission.Controller
	applied *applied.Store
	// nodeMeta are the labels and annotations that clients have set on the Node.
	nodeMeta *nodemeta.Store
	// nodeChanged requests updates of the Node in an API server.
	nodeChanged cluster.Signal
	// names resolves the names of pods and Services; nil: the pods use other servers.
	names *nameService
	// services allocates the addresses of Services.
	services *services.Manager
	// forPods is shared by the Kubernetes API and the pods that use it.
	forPods *apiaccess.Parts
}

// newCore builds the parts of a daemon, leaves first. It reads the boot id and the mounted cgroups, but changes nothing.
func newCore(cfg *config.Loaded, d Deps) (*core, error) {
	boot, err := boottime.ID() // a trial of a revision, and a drain, need it to recognize a reboot
	if err != nil {
		return nil, err
	}
	cfg = containers.KeepNetwork(cfg, d.Log)
	c := &core{cfg: cfg, deps: d, tally: metrics.NewTally(), usage: &telemetry.Usage{}, nodeChanged: cluster.NewSignal()}
	if c.stats, err = telemetry.NewCollector(&cfg.Config, d.Machine.Cgroups, c.usage); err != nil {
		return nil, err
	}
	recorder := events.New(events.Config{Dir: offline.RecordIn(cfg.RootDirectory), Node: cfg.NodeName, Log: d.Log, Seen: c.tally.Event})
	c.events = nodeevents.New(recorder, cfg.NodeName, d.Log)
	c.memory = memory.NewTrimmer()
	if d.Machine.Release != nil {
		c.memory.Release = d.Machine.Release
	}
	c.starts, c.traces = telemetry.NewStartClock(c.tally), newTraces(cfg, d)
	c.access = &containers.Access{StreamEnded: c.memory.Answered, Network: containers.PodNetwork{Config: cfg}}
	c.applied = applied.NewStore(filepath.Join(cfg.RootDirectory, "applied"))
	c.pins = imagegc.NewPins(d.Log)
	changes := &state.Changes{}
	c.state = state.New(changes, newRollouts(cfg, d, changes, c.events, c.pins))
	c.state.Spaces = cfg.Spaces()
	c.images = &imagegc.Images{Policy: cfg.GarbagePolicy(), Pods: c.state, Pins: c.pins, Record: c.events.Node, Log: d.Log}
	c.gate = admission.New(admission.Config{
		Store:  drain.NewStore(filepath.Join(cfg.RootDirectory, "drain.json"), boot),
		Marker: shutdown.MarkerIn(cfg.RootDirectory, boot),
		Pods:   func() ([]drain.Pod, error) { return drainPods(c.state) }, Subscribe: changes.Subscribe,
		Changed: func() { changes.Notify(); c.nodeChanged.Send() }, Record: c.events.Node, Log: d.Log,
	})
	c.nodeMeta = nodemeta.NewStore(filepath.Join(cfg.RootDirectory, "node.json"), func() { changes.Notify(); c.nodeChanged.Send() })
	if d.Machine.Gateways != nil && cfg.PodDNS == config.PodDNSAuto && len(cfg.ClusterDNS) == 0 {
		c.names = newNameService(cfg, d)
	}
	c.services = services.New(services.Config{
		Agent: cfg, State: c.state, Log: d.Log, Rules: d.Machine.Services, Gateways: d.Machine.Gateways, Addresses: d.Machine.Addresses, Free: d.Machine.Runs.Free,
		API: func() []netip.AddrPort { return c.forPods.Access.Behind() }, Checked: c.memory.Checked,
	})
	c.forPods = apiaccess.Open(cfg, apiaccess.Deps{
		State: c.state, Applied: c.applied, Service: c.services.APIAddress, Addresses: d.Machine.Addresses, Gateways: d.Machine.Gateways, Log: d.Log,
	})
	return c, nil
}

// drainPods returns the pods as admission sees them.
func drainPods(s *state.Store) ([]drain.Pod, error) {
	all, err := s.Statuses()
	pods := make([]drain.Pod, 0, len(all))
	for i := range all {
		priority := manifests.PriorityOf(&manifests.Pod{Object: all[i].Pod}).Value
		pods = append(pods, drain.Pod{Key: all[i].Key(), Priority: priority, Stopped: all[i].Stopped()})
	}
	return pods, err
}

// newRollouts returns the controller that decides which revisions run.
func newRollouts(cfg *config.Loaded, d Deps, changes *state.Changes, events *nodeevents.Recorder, pins *imagegc.Pins) *rollout.Controller {
	auto := cfg.AutoRollback
	return rollout.New(rollout.Config{
		Store: rollout.NewStore(filepath.Join(cfg.RootDirectory, "revisions")), Log: d.Log, Clock: boottime.Now,
		Notify: changes.Notify, Changed: events.Transition, Images: pins.Want, Options: rollout.Options{Spaces: cfg.Spaces(), AutoRollback: auto.Enabled, ReadyDeadline: auto.ReadyDeadline, Soak: auto.Soak},
	})
}

// newTraces returns nil if tracing is not configured.
func newTraces(cfg *config.Loaded, d Deps) *telemetry.Traces {
	if cfg.Tracing.Endpoint == "" || cfg.Tracing.SamplingRatePerMillion == 0 {
		return nil
	}
	return &telemetry.Traces{Tracer: tracing.New(tracing.Config{
		Endpoint: cfg.Tracing.Endpoint, PerMillion: cfg.Tracing.SamplingRatePerMillion, Node: cfg.NodeName, Version: version.String(), Log: d.Log,
	})}
}
