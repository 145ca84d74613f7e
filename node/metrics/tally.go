package metrics

import (
	"sync"
	"time"
)

// timing is a histogram. Its counts are those of each bucket alone.
type timing struct {
	bounds []float64
	counts []uint64
	count  uint64
	sum    float64
}

func newTiming(bounds []float64) *timing {
	return &timing{bounds: bounds, counts: make([]uint64, len(bounds))}
}

func (t *timing) observe(v float64) {
	t.count++
	t.sum += v
	for i, bound := range t.bounds {
		if v <= bound {
			t.counts[i]++
			return
		}
	}
}

func (t *timing) clone() *timing {
	c := *t
	c.counts = append([]uint64(nil), t.counts...)
	return &c
}

// Bounds of the histograms in seconds, a kubelet's.
func operationBounds() []float64 {
	bounds := make([]float64, 14)
	for i, b := 0, 0.005; i < len(bounds); i, b = i+1, b*2.5 {
		bounds[i] = b
	}
	return bounds
}

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
	// StartsPod says that a pod was made by it.
	StartsPod bool
	// EvictionSignal says that a pod was evicted, and why.
	EvictionSignal string
}

// Request is one that was answered.
type Request struct {
	// Server is readwrite, readonly, healthz or socket.
	Server, Method, Path string
	LongRunning          bool
	Took                 time.Duration
}

// requestKey names what requests are counted by.
type requestKey struct {
	server, method, path string
	long                 bool
}

// Tally counts what is done. All methods may be called from any goroutine. The zero value is not ready; see NewTally.
type Tally struct {
	mu sync.Mutex
	// All below is guarded by mu.
	actions       map[string]*timing
	actionErrors  map[[2]string]uint64
	operations    map[string]*timing
	operationErrs map[string]uint64
	podsStarted   uint64
	podErrors     uint64
	started       map[string]uint64
	startErrors   map[[2]string]uint64
	evictions     map[string]uint64
	pulls         map[string]*timing
	events        map[[2]string]uint64
	podStarts     *timing
	requests      map[requestKey]*timing
	inflight      map[requestKey]int64
}

// NewTally returns one that has counted nothing.
func NewTally() *Tally {
	return &Tally{
		actions: map[string]*timing{}, actionErrors: map[[2]string]uint64{}, operations: map[string]*timing{}, operationErrs: map[string]uint64{},
		started: map[string]uint64{}, startErrors: map[[2]string]uint64{}, evictions: map[string]uint64{}, pulls: map[string]*timing{}, events: map[[2]string]uint64{},
		podStarts: newTiming(startBounds()), requests: map[requestKey]*timing{}, inflight: map[requestKey]int64{},
	}
}

func into[K comparable](m map[K]*timing, key K, bounds func() []float64, took time.Duration) {
	t := m[key]
	if t == nil {
		t = newTiming(bounds())
		m[key] = t
	}
	t.observe(took.Seconds())
}

// Action counts one.
func (t *Tally) Action(a Action) {
	t.mu.Lock()
	defer t.mu.Unlock()
	into(t.actions, a.Kind, operationBounds, a.Took)
	if a.Operation != "" {
		into(t.operations, a.Operation, operationBounds, a.Took)
	}
	if a.Reason != "" {
		t.failedLocked(a)
		return
	}
	if a.StartsPod {
		t.podsStarted++
	}
	if a.ContainerType != "" {
		t.started[a.ContainerType]++
	}
	if a.EvictionSignal != "" {
		t.evictions[a.EvictionSignal]++
	}
}

func (t *Tally) failedLocked(a Action) {
	t.actionErrors[[2]string{a.Kind, a.Reason}]++
	if a.Operation != "" {
		t.operationErrs[a.Operation]++
	}
	if a.StartsPod {
		t.podErrors++
	}
	if a.ContainerType != "" {
		t.startErrors[[2]string{a.ContainerType, a.Reason}]++
	}
}

// Evicted counts a pod that is evicted because the machine is short of something.
func (t *Tally) Evicted(signal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evictions[signal]++
}

// Pulled counts an image that was pulled; size is in bytes, 0 if it is not known.
func (t *Tally) Pulled(size int64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	into(t.pulls, sizeClass(size), pullBounds, took)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events[[2]string{eventType, reason}]++
}

// PodStarted counts a pod that runs, and how long that took since it was wanted.
func (t *Tally) PodStarted(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.podStarts.observe(took.Seconds())
}

// PodsStarted returns how often PodStarted was called.
func (t *Tally) PodsStarted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.podStarts.count)
}

// Begin counts a request that has begun; the returned function is called when it has ended.
func (t *Tally) Begin(r Request) (end func(took time.Duration)) {
	key := requestKey{r.Server, r.Method, r.Path, r.LongRunning}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inflight[key]++
	return func(took time.Duration) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.inflight[key]--
		into(t.requests, key, requestBounds, took)
	}
}
