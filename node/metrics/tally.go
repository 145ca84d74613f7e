package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Upper bounds of the buckets of histograms in seconds, a kubelet's.
func operationBounds() []float64 { return prometheus.ExponentialBuckets(0.005, 2.5, 14) }

func startBounds() []float64 {
	return []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func pullBounds() []float64 {
	return []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func requestBounds() []float64 {
	return []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}

// Action is one thing that was done to a pod.
type Action struct {
	// Kind is its name, as CreateContainer.
	Kind string
	// Operation is what a kubelet calls it, as create_container; empty: it has none.
	Operation string
	// Reason is why it failed; empty: it did not. A kubelet's word where there is one.
	Reason string
	Took   time.Duration
	// ContainerType is container, init_container or ephemeral_container, for the start of one.
	ContainerType string
	// StartsPod: the action created a pod.
	StartsPod bool
	// EvictionSignal, unless empty, is why a pod was evicted.
	EvictionSignal string
}

// Request is one that was answered.
type Request struct {
	// Server is readwrite, readonly, healthz or socket.
	Server, Method, Path string
	LongRunning          bool
	Took                 time.Duration
}

// Tally counts what is done. All methods may be called from any goroutine. The zero value is not ready; see NewTally.
type Tally struct {
	// family has the definitions of its metrics, all their values.
	family
	all []prometheus.Collector

	podsStarted, podErrors                                       prometheus.Counter
	started, startErrors, operations, operationErrors            *prometheus.CounterVec
	actionErrors, evictions, events, requests                    *prometheus.CounterVec
	operationSeconds, actionSeconds, pullSeconds, requestSeconds *prometheus.HistogramVec
	startSeconds                                                 prometheus.Observer
	inflight                                                     *prometheus.GaugeVec
	podStarts                                                    atomic.Int64
}

// NewTally returns one that has counted nothing.
func NewTally() *Tally {
	t := &Tally{}
	t.podsStarted = t.counter("kubelet_started_pods_total", "Number of pods that were started.").WithLabelValues()
	t.podErrors = t.counter("kubelet_started_pods_errors_total", "Number of errors when starting pods.").WithLabelValues()
	t.started = t.counter("kubelet_started_containers_total", "Number of containers that were started.", "container_type")
	t.startErrors = t.counter("kubelet_started_containers_errors_total", "Number of errors when starting containers.", "container_type", "code")
	t.startSeconds = t.histogram("kubelet_pod_start_duration_seconds", "Time from when a pod was first wanted until it ran.", startBounds()).WithLabelValues()
	t.operations = t.counter("kubelet_runtime_operations_total", "Number of operations of the runtime.", "operation_type")
	t.operationErrors = t.counter("kubelet_runtime_operations_errors_total", "Number of operations of the runtime that failed.", "operation_type")
	t.operationSeconds = t.histogram("kubelet_runtime_operations_duration_seconds", "Time that operations of the runtime took.", operationBounds(), "operation_type")
	t.actionSeconds = t.histogram("monopod_action_duration_seconds", "Time that actions of plans took.", operationBounds(), "action")
	t.actionErrors = t.counter("monopod_action_errors_total", "Number of actions of plans that failed, by reason.", "action", "reason")
	t.evictions = t.counter("kubelet_evictions", "Number of pods that were evicted.", "eviction_signal")
	t.pullSeconds = t.histogram("kubelet_image_pull_duration_seconds", "Duration of image pulls, with the wait for others.", pullBounds(), "image_size_in_bytes")
	t.events = t.counter("monopod_events_total", "Number of events that were recorded.", "type", "reason")
	labels := []string{"server_type", "method", "path", "long_running"}
	t.requests = t.counter("kubelet_http_requests_total", "Number of requests that were answered.", labels...)
	t.requestSeconds = t.histogram("kubelet_http_requests_duration_seconds", "Time that requests took.", requestBounds(), labels...)
	const name, help = "kubelet_http_inflight_requests", "Number of requests that are being answered."
	t.add(gauge, name, help, labels...)
	t.inflight = collected(t, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
	return t
}

func collected[C prometheus.Collector](t *Tally, c C) C {
	t.all = append(t.all, c)
	return c
}

func (t *Tally) counter(name, help string, labels ...string) *prometheus.CounterVec {
	t.add(counter, name, help, labels...)
	return collected(t, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (t *Tally) histogram(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	t.add(histogram, name, help, labels...)
	return collected(t, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels))
}

// Collect implements prometheus.Collector.
func (t *Tally) Collect(ch chan<- prometheus.Metric) {
	for _, c := range t.all {
		c.Collect(ch)
	}
}

// Action counts one.
func (t *Tally) Action(a Action) {
	t.actionSeconds.WithLabelValues(a.Kind).Observe(a.Took.Seconds())
	if a.Operation != "" {
		t.operations.WithLabelValues(a.Operation).Inc()
		t.operationSeconds.WithLabelValues(a.Operation).Observe(a.Took.Seconds())
	}
	if a.Reason != "" {
		t.failed(a)
		return
	}
	if a.StartsPod {
		t.podsStarted.Inc()
	}
	if a.ContainerType != "" {
		t.started.WithLabelValues(a.ContainerType).Inc()
	}
	if a.EvictionSignal != "" {
		t.Evicted(a.EvictionSignal)
	}
}

func (t *Tally) failed(a Action) {
	t.actionErrors.WithLabelValues(texts(a.Kind, a.Reason)...).Inc()
	if a.Operation != "" {
		t.operationErrors.WithLabelValues(a.Operation).Inc()
	}
	if a.StartsPod {
		t.podErrors.Inc()
	}
	if a.ContainerType != "" {
		t.startErrors.WithLabelValues(texts(a.ContainerType, a.Reason)...).Inc()
	}
}

// Evicted counts a pod that is evicted because the machine is short of something.
func (t *Tally) Evicted(signal string) { t.evictions.WithLabelValues(signal).Inc() }

// Pulled counts an image that was pulled; size is in bytes, 0 if it is not known.
func (t *Tally) Pulled(size int64, took time.Duration) {
	t.pullSeconds.WithLabelValues(sizeClass(size)).Observe(took.Seconds())
}

// sizeClass is a kubelet's word for how large an image is.
func sizeClass(size int64) string {
	const mb, gb = 1 << 20, 1 << 30
	for _, c := range []struct {
		above int64
		name  string
	}{
		{100 * gb, "GT100GB"},
		{60 * gb, "60GB-100GB"},
		{40 * gb, "40GB-60GB"},
		{30 * gb, "30GB-40GB"},
		{20 * gb, "20GB-30GB"},
		{10 * gb, "10GB-20GB"},
		{5 * gb, "5GB-10GB"},
		{gb, "1GB-5GB"},
		{500 * mb, "500MB-1GB"},
		{100 * mb, "100MB-500MB"},
		{10 * mb, "10MB-100MB"},
		{0, "0-10MB"},
	} {
		if size > c.above {
			return c.name
		}
	}
	return "N/A"
}

// Event counts one of the record.
func (t *Tally) Event(eventType, reason string) {
	t.events.WithLabelValues(texts(eventType, reason)...).Inc()
}

// PodStarted counts a pod that runs, and how long that took since it was wanted.
func (t *Tally) PodStarted(took time.Duration) {
	t.podStarts.Add(1)
	t.startSeconds.Observe(took.Seconds())
}

// PodsStarted returns how often PodStarted was called.
func (t *Tally) PodsStarted() int { return int(t.podStarts.Load()) }

// Begin counts a request that has begun; the returned function is called when it has ended.
func (t *Tally) Begin(r Request) (end func(took time.Duration)) {
	labels := texts(r.Server, r.Method, r.Path, strconv.FormatBool(r.LongRunning))
	t.inflight.WithLabelValues(labels...).Inc()
	return func(took time.Duration) {
		t.inflight.WithLabelValues(labels...).Dec()
		t.requests.WithLabelValues(labels...).Inc()
		t.requestSeconds.WithLabelValues(labels...).Observe(took.Seconds())
	}
}
