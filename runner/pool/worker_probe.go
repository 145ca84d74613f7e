package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/fit"
	"monopod/runner/probe"
)

// probing holds the probes of the pod's running containers, by container id. The worker starts and stops them; other goroutines read them
// for the status.
type probing struct {
	// looked reports that the worker has been here before: containers that run the first time were started by another agent.
	looked bool
	// address is the pod's own address, empty if it has none; goroutines of the probes read it.
	address atomic.Pointer[string]

	mu      sync.Mutex
	watches map[string]*probeWatch // guarded by mu
}

// probeWatch is the probes of one instance, with their definition.
type probeWatch struct {
	*probe.Watch
	spec *corev1.Container
}

// watchProbes starts and stops probes according to the observed and the desired state, and collects their results.
func (w *prober) watchProbes(ctx context.Context, pod *manifests.Pod) {
	found := !w.probing.looked
	w.probing.looked = true
	w.observed.Probes = nil
	running := map[string]*corev1.Container{}
	for i := range w.observed.Containers {
		c := &w.observed.Containers[i]
		if spec := w.probedAs(pod, c); spec != nil {
			running[c.ID] = spec
			w.watchContainer(ctx, c, spec, found)
		}
	}
	w.probing.mu.Lock()
	defer w.probing.mu.Unlock()
	for id, watch := range w.probing.watches {
		if running[id] == nil {
			watch.Stop()
			delete(w.probing.watches, id)
			continue
		}
		if w.observed.Probes == nil {
			w.observed.Probes = map[string]probe.Health{}
		}
		w.observed.Probes[id] = watch.Health()
	}
}

// probedAs returns the definition of a container that is probed: the one it was created from, or the desired one if both differ only in
// what does not restart it.
func (w *prober) probedAs(pod *manifests.Pod, c *runner.Container) *corev1.Container {
	if c.State != runner.ContainerRunning {
		return nil
	}
	candidates := []*manifests.Pod{pod, nil}
	if sb := w.observed.Sandbox; sb != nil {
		candidates[1] = sb.Pod
	}
	for _, p := range candidates {
		if p == nil {
			continue
		}
		spec := plan.ContainerSpec(p, c.Name)
		if spec != nil && fit.Made(w.observed.Hashes, p, c) {
			if probe.Has(spec) {
				return spec
			}
			return nil
		}
	}
	return nil
}

// watchContainer starts the probes of an instance, unless they run already with this definition.
func (w *prober) watchContainer(ctx context.Context, c *runner.Container, spec *corev1.Container, found bool) {
	w.probing.mu.Lock()
	old := w.probing.watches[c.ID]
	w.probing.mu.Unlock()
	var known *probe.Known
	switch {
	case old != nil && sameProbes(old.spec, spec):
		return
	case old != nil:
		h := old.Health()
		known = &probe.Known{Started: h.Started, Ready: h.Ready}
		old.Stop()
	case found:
		known = &probe.Known{Started: c.Health.Started || spec.StartupProbe == nil, Ready: c.Health.Ready}
	}
	address := w.podAddress()
	w.probing.address.Store(&address)
	watch := probe.Start(ctx, probe.Options{
		Target:    probe.Target{Container: spec, Host: w.probeHost, Exec: w.probeExec(c.ID)},
		StartedAt: c.StartedAt,
		Known:     known,
		Changed:   func() { signal(w.ready) },
		Report:    w.probeReport(c.Name),
		Group:     &w.pool.group,
	})
	w.probing.mu.Lock()
	defer w.probing.mu.Unlock()
	if w.probing.watches == nil {
		w.probing.watches = map[string]*probeWatch{}
	}
	w.probing.watches[c.ID] = &probeWatch{Watch: watch, spec: spec}
}

func sameProbes(a, b *corev1.Container) bool {
	return a == b || equality.Semantic.DeepEqual(a.StartupProbe, b.StartupProbe) &&
		equality.Semantic.DeepEqual(a.LivenessProbe, b.LivenessProbe) &&
		equality.Semantic.DeepEqual(a.ReadinessProbe, b.ReadinessProbe) &&
		equality.Semantic.DeepEqual(a.Ports, b.Ports)
}

// podAddress returns the pod's own address; empty if it has none, as on the host network.
func (w *subject) podAddress() string {
	if sb := w.observed.Sandbox; sb != nil && len(sb.IPs) > 0 {
		return sb.IPs[0]
	}
	return ""
}

// probeHost returns the current address to probe. A pod on the host network has the node's, which may change; without one, the loopback
// interface is used.
func (w *prober) probeHost() string {
	if a := w.probing.address.Load(); a != nil && *a != "" {
		return *a
	}
	if ips := w.pool.cfg.NodeIPs(); len(ips) > 0 {
		return ips[0]
	}
	return ""
}

func (w *prober) probeExec(id string) probe.Exec {
	return func(ctx context.Context, command []string, timeout time.Duration, limit int) (int, []byte, error) {
		r, err := w.pool.rt.Exec(ctx, w.key, runner.ExecRequest{ContainerID: id, Command: command, Timeout: timeout, Limit: limit})
		if errors.Is(err, runner.ErrExecTimeout) {
			err = fmt.Errorf("%w: %w", probe.ErrTimeout, err)
		}
		return r.ExitCode, r.Output, err
	}
}

// probeReport logs the output of probes, once for each text, and records it.
func (w *prober) probeReport(container string) func(probe.Kind, probe.Outcome) {
	record := w.probeRecorder(container)
	var mu sync.Mutex
	last := map[probe.Kind]string{}
	return func(kind probe.Kind, o probe.Outcome) {
		record(kind, o)
		mu.Lock()
		known := last[kind] == o.Output
		last[kind] = o.Output
		mu.Unlock()
		log := w.log().Warn
		if known {
			log = w.log().Debug
		}
		args := []any{"container", container, "probe", string(kind), "output", o.Output}
		switch o.Result {
		case probe.Errored:
			log("probe errored and resulted in unknown state", args...)
		case probe.Warning:
			log("probe warning", args...)
		default:
			log("probe failed", args...)
		}
	}
}

// probeStatuses returns the state of all probes, by container and kind.
func (w *prober) probeStatuses() []model.Probe {
	w.probing.mu.Lock()
	defer w.probing.mu.Unlock()
	var all []model.Probe
	for _, watch := range w.probing.watches {
		all = append(all, watch.Statuses()...)
	}
	slices.SortStableFunc(all, func(a, b model.Probe) int { return strings.Compare(a.Container, b.Container) })
	return all
}

// dropProbes stops all probes.
func (w *prober) dropProbes() {
	w.probing.mu.Lock()
	defer w.probing.mu.Unlock()
	for id, watch := range w.probing.watches {
		watch.Stop()
		delete(w.probing.watches, id)
	}
}
