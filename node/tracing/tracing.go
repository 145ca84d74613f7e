// Package tracing tells a collector of OpenTelemetry how long the start of each pod took, and what of it: one trace for
// each start, sent by OTLP over gRPC without TLS, as a kubelet sends its own.
//
// Whoever is told here is never kept waiting: spans are queued, and those that find the queue full are dropped. It decides nothing.
//
// The OpenTelemetry SDK would do the same, and makes the daemon 0.9 MiB larger also where nobody traces: encoding (otlp.go) and
// sending (exporter.go) are all that is needed of it, on the gRPC that is linked anyway.
//
// Goroutines: Run, and those of gRPC while there is a connection.
package tracing

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Config of a Tracer.
type Config struct {
	// Endpoint is host:port of a collector.
	Endpoint string
	// PerMillion is how many of a million starts are traced.
	PerMillion int
	// Node and Version say who traces.
	Node, Version string
	Log           *slog.Logger
}

// maxSteps is how many spans one start has at most: a pod that never becomes ready would have no end of them.
const maxSteps = 200

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// key names a pod whatever its uid.
type key struct{ namespace, name string }

func (p Pod) key() key { return key{p.Namespace, p.Name} }

// Step is a part of a start that is over.
type Step struct {
	Name string
	// Container is what it is about, Image that container's; empty: the pod.
	Container, Image string
	Init             bool
	Began, Over      time.Time
	// Err says why it failed; empty: it did not.
	Err string
}

// Tracer follows the starts of pods. All methods may be called from any goroutine. The zero value is not ready; see New.
type Tracer struct {
	cfg      Config
	exporter *exporter

	mu sync.Mutex
	// pods are those that there are. Guarded by mu.
	pods map[key]*start
}

// start is that of a pod:
//
//	(unknown) --Seen or Again--> starting --Ready or Ended--> over --Again--> starting
type start struct {
	pod Pod
	// over says that it does not start now.
	over bool
	// untold says that this start is not one of those that are traced.
	untold bool
	trace  traceID
	root   spanID
	since  time.Time
	// begun says that something has been done for it; until then it waits to be admitted.
	begun bool
	// ran is when the last of its containers was started.
	ran   time.Time
	steps int
}

// New returns a Tracer. It does no I/O.
func New(cfg Config) *Tracer {
	t := &Tracer{cfg: cfg, pods: map[key]*start{}}
	t.exporter = newExporter(resource{node: cfg.Node, version: cfg.Version}, dial(cfg.Endpoint), cfg.Log)
	return t
}

// Run sends what is told until ctx ends.
func (t *Tracer) Run(ctx context.Context) { t.exporter.run(ctx) }

// Seen notes a pod that is there. One that is not known begins to start, unless it runs already.
func (t *Tracer) Seen(p Pod, runs bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch s := t.pods[p.key()]; {
	case s != nil && s.pod.UID == "":
		s.pod.UID = p.UID
	case s != nil:
	case runs:
		t.pods[p.key()] = &start{pod: p, over: true}
	default:
		t.pods[p.key()] = t.begin(p, now)
	}
}

// Again notes that a pod is made, or made anew. Its uid may not be known yet.
func (t *Tracer) Again(p Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.key()]
	if s == nil || s.over {
		t.pods[p.key()] = t.begin(p, now)
	} else if p.UID != "" {
		s.pod.UID = p.UID
	}
}

func (t *Tracer) begin(p Pod, now time.Time) *start {
	s := &start{pod: p, since: now}
	binary.BigEndian.PutUint64(s.trace[:], rand.Uint64())
	binary.BigEndian.PutUint64(s.trace[8:], rand.Uint64())
	s.root = newSpanID()
	s.untold = !sampled(s.trace, t.cfg.PerMillion)
	return s
}

// sampled says that a trace is one of those that are told: as the samplers of OpenTelemetry decide it, by its id.
func sampled(id traceID, perMillion int) bool {
	const million = 1_000_000
	if perMillion >= million {
		return true
	}
	return binary.BigEndian.Uint64(id[8:])>>1 < uint64(perMillion)*((1<<63)/million)
}

// newSpanID returns one; 0 is none.
func newSpanID() (id spanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// Span is a step that is under way; nil: of nothing that is traced.
type Span struct {
	tracer *Tracer
	start  *start
	id     spanID
}

// Begin notes that something is being done for a pod.
func (t *Tracer) Begin(p Pod, now time.Time) *Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.key()]
	if s == nil || s.over {
		return nil
	}
	if !s.begun {
		s.begun = true
		t.tellLocked(s, newSpanID(), s.root, Step{Name: "admission", Began: s.since, Over: now})
	}
	return &Span{tracer: t, start: s, id: newSpanID()}
}

// Phase tells of a part of the step.
func (s *Span) Phase(step Step) {
	if s == nil {
		return
	}
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	s.tracer.tellLocked(s.start, newSpanID(), s.id, step)
}

// End tells of the step. runs says that a container of the pod has been started by it, and that it is not one that has to end first.
func (s *Span) End(step Step, runs bool) {
	if s == nil {
		return
	}
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	if runs {
		s.start.ran = step.Over
	}
	s.tracer.tellLocked(s.start, s.id, s.start.root, step)
}

// Ready notes that a pod is ready: its start is over.
func (t *Tracer) Ready(p Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.key()]
	if s == nil || s.over || s.ran.IsZero() || s.pod.UID != p.UID { // what is ready is the one before
		return
	}
	t.tellLocked(s, newSpanID(), s.root, Step{Name: "readiness", Began: s.ran, Over: now})
	t.endLocked(s, now, "")
}

// Ended notes that a pod has ended; why is empty when it did what it was for.
func (t *Tracer) Ended(p Pod, now time.Time, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.pods[p.key()]; s != nil && s.pod.UID == p.UID {
		t.endLocked(s, now, why)
	}
}

// Gone notes that a pod is not there any more.
func (t *Tracer) Gone(p Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.pods[p.key()]; s != nil {
		t.endLocked(s, now, "the pod was removed before it was ready")
		delete(t.pods, p.key())
	}
}

// endLocked tells of the whole start.
func (t *Tracer) endLocked(s *start, now time.Time, why string) {
	if s.over {
		return
	}
	s.over = true
	if s.untold {
		return
	}
	t.exporter.put(span{
		trace: s.trace, id: s.root, name: "start pod", began: s.since, over: now, err: why,
		attributes: append(podAttributes(s.pod), attribute{key: "monopod.dropped_steps", number: int64(max(0, s.steps-maxSteps))}),
	})
}

// tellLocked tells of a step, also of one that ends after the start.
func (t *Tracer) tellLocked(s *start, id, parent spanID, step Step) {
	if s.untold {
		return
	}
	if s.steps++; s.steps > maxSteps {
		return
	}
	sp := span{trace: s.trace, id: id, parent: parent, name: step.Name, began: step.Began, over: step.Over, err: step.Err, attributes: podAttributes(s.pod)}
	if step.Container != "" {
		sp.attributes = append(sp.attributes, attribute{key: "k8s.container.name", text: step.Container}, attribute{key: "container.image.name", text: step.Image})
	}
	if step.Init {
		sp.attributes = append(sp.attributes, attribute{key: "monopod.container.type", text: "init"})
	}
	t.exporter.put(sp)
}

func podAttributes(p Pod) []attribute {
	return []attribute{{key: "k8s.namespace.name", text: p.Namespace}, {key: "k8s.pod.name", text: p.Name}, {key: "k8s.pod.uid", text: p.UID}}
}
