package metrics

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"

	"monopod/node/health"
	"monopod/node/stats"
)

// ProbeTotals count the attempts of a probe over all instances of its container.
type ProbeTotals struct {
	Namespace, Pod, UID, Container string
	// Kind is Startup, Liveness or Readiness.
	Kind                        string
	Successful, Failed, Unknown uint64
	// Took is how long all took that did not fail, Buckets how many of them were within each of Bounds and none before it.
	Took    time.Duration
	Bounds  []float64
	Buckets []uint64
}

// Usage reads what the machine and the pods use now. What it returns is the caller's.
type Usage interface {
	All(ctx context.Context, o stats.Options) (stats.Machine, []stats.Pod, error)
}

// Sources are where values come from.
type Sources struct {
	Node, Version string
	Tally         *Tally
	Checks        *health.Checks
	Stats         Usage
	// Pods returns all pods with their status. They are only read.
	Pods func() []*corev1.Pod
	// Inputs returns the number of files and URLs by source and state.
	Inputs func() map[[2]string]int
	// Conditions returns the pressure conditions of the node; nil: they are not watched.
	Conditions func() []corev1.NodeCondition
	Probes     func() []ProbeTotals
}

func processCollectors() []prometheus.Collector {
	return []prometheus.Collector{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector()}
}

// mainFamily is /metrics.
type mainFamily struct {
	family
	src Sources

	build, node, check, condition                      *definition
	running, containers, desired, active, pods, inputs *definition
}

func newMain(src Sources) *mainFamily {
	f := &mainFamily{family: family{path: PathMain}, src: src}
	f.build = f.add(gauge, "monopod_build_info", "Always 1; the versions are in the labels.", "version", "go_version")
	f.node = f.add(gauge, "kubelet_node_name", "Always 1; the name of the node is in the label.", "node")
	f.check = f.add(gauge, "monopod_check_ok", "Whether a check of /readyz succeeds.", "check")
	f.running = f.add(gauge, "kubelet_running_pods", "Number of pods with a running container.")
	f.containers = f.add(gauge, "kubelet_running_containers", "Number of containers by their state.", "container_state")
	f.desired = f.add(gauge, "kubelet_desired_pods", "Number of desired pods. All of monopod's pods are static ones.", "static")
	f.active = f.add(gauge, "kubelet_active_pods", "Number of pods that have not terminated.", "static")
	f.pods = f.add(gauge, "monopod_pods", "Number of pods by their phase.", "phase")
	f.inputs = f.add(gauge, "monopod_inputs", "Number of files and URLs that manifests are read from, by source and state.", "source", "state")
	f.condition = f.add(gauge, "monopod_node_condition", "Whether the machine is under memory, disk or PID pressure; see `monopod docs resources`.", "condition")
	f.defs = append(f.defs, src.Tally.defs...)
	return f
}

// Collect implements prometheus.Collector.
func (f *mainFamily) Collect(ch chan<- prometheus.Metric) {
	s := sink{ch: ch}
	s.put(f.build, 1, f.src.Version, runtime.Version())
	s.put(f.node, 1, f.src.Node)
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, r := range f.src.Checks.Ask(ctx, health.Ready) {
		ok := 0.0
		if r.Err == nil {
			ok = 1
		}
		s.put(f.check, ok, r.Name)
	}
	for key, n := range f.src.Inputs() {
		s.put(f.inputs, float64(n), key[0], key[1])
	}
	f.collectConditions(s)
	f.collectPods(s)
	f.src.Tally.Collect(ch)
}

func (f *mainFamily) collectConditions(s sink) {
	if f.src.Conditions == nil {
		return
	}
	for _, c := range f.src.Conditions() {
		is := 0.0
		if c.Status == corev1.ConditionTrue {
			is = 1
		}
		s.put(f.condition, is, string(c.Type))
	}
}

func (f *mainFamily) collectPods(s sink) {
	phases := map[string]int{"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0, "Unknown": 0}
	states := map[string]int{"running": 0, "exited": 0, "waiting": 0}
	running, active, desired := 0, 0, 0
	for _, p := range f.src.Pods() {
		phase := string(p.Status.Phase)
		if phase == "" {
			phase = string(corev1.PodUnknown)
		}
		phases[phase]++
		desired++
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			active++
		}
		if countStates(states, p) {
			running++
		}
	}
	s.put(f.running, float64(running))
	s.put(f.desired, float64(desired), "true")
	s.put(f.active, float64(active), "true")
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		s.put(f.pods, float64(phases[phase]), phase)
	}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		s.put(f.containers, float64(states[state]), state)
	}
}

// countStates adds the containers of a pod, and reports whether one runs.
func countStates(states map[string]int, p *corev1.Pod) (runs bool) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case c.State.Running != nil:
			states["running"]++
			runs = true
		case c.State.Terminated != nil:
			states["exited"]++
		default:
			states["waiting"]++
		}
	}
	return runs
}

// probesFamily is /metrics/probes.
type probesFamily struct {
	family
	src             Sources
	total, duration *definition
}

func newProbes(src Sources) *probesFamily {
	f := &probesFamily{family: family{path: PathProbes}, src: src}
	f.total = f.add(counter, "prober_probe_total", "Probe attempts of running containers.",
		"probe_type", "result", "container", "pod", "namespace", "pod_uid")
	f.duration = f.add(histogram, "prober_probe_duration_seconds", "Duration of probe attempts that did not fail.",
		"probe_type", "container", "pod", "namespace")
	return f
}

// Collect implements prometheus.Collector.
func (f *probesFamily) Collect(ch chan<- prometheus.Metric) {
	s := sink{ch: ch}
	for _, p := range f.src.Probes() {
		for _, r := range []struct {
			result string
			n      uint64
		}{{"successful", p.Successful}, {"failed", p.Failed}, {"unknown", p.Unknown}} {
			if r.n > 0 {
				s.put(f.total, float64(r.n), p.Kind, r.result, p.Container, p.Pod, p.Namespace, p.UID)
			}
		}
		counts := make(map[float64]uint64, len(p.Bounds))
		var sum uint64
		for i, bound := range p.Bounds {
			sum += p.Buckets[i]
			counts[bound] = sum
		}
		s.send(prometheus.MustNewConstHistogram(f.duration.desc, p.Successful+p.Unknown, p.Took.Seconds(), counts, texts(p.Kind, p.Container, p.Pod, p.Namespace)...))
	}
}

// Table describes all metrics but those of the process, for the docs: lines of a Markdown table, by path.
func Table() string {
	var b strings.Builder
	src := Sources{Tally: NewTally()}
	for _, f := range []*family{&newMain(src).family, &newCadvisor(src).family, &newResource(src).family, &newProbes(src).family} {
		b.WriteString("\n## " + f.path + "\n\n| metric | kind | labels | |\n|---|---|---|---|\n")
		for _, d := range f.defs {
			labels := strings.Join(d.labels, ", ")
			labels = strings.Replace(labels, strings.Join(rowLabels(), ", "), "*container*", 1)
			b.WriteString("| `" + d.name + "` | " + d.kind + " | " + labels + " | " + d.help + " |\n")
		}
	}
	return b.String()
}

// unix is a moment as Prometheus has it.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
