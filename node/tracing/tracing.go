// Package tracing exports how long the start of each pod took, and its steps, to an OpenTelemetry collector: one trace for each start, sent
// by OTLP over gRPC without TLS, as a kubelet does.
//
// Callers never wait: spans are queued, and dropped when the queue is full. It must not decide anything. Spans, the queue and the export
// are those of the OpenTelemetry SDK, whose global state is neither used nor changed; this package makes spans of the actions for a pod,
// and limits (exporter.go) the retries of the export.
//
// Goroutines: Run, and those of the SDK and gRPC while it runs.
package tracing

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
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

// Step is a part of a start.
type Step struct {
	Name string
	// Container is what it is about, Image that container's; empty: the pod.
	Container, Image string
	Init             bool
	Began            time.Time
}

// Tracer follows the starts of pods. All methods may be called from any goroutine. The zero value is not ready; see New.
type Tracer struct {
	cfg      Config
	provider *sdk.TracerProvider
	tracer   trace.Tracer

	mu sync.Mutex
	// pods are those that there are. Guarded by mu.
	pods map[key]*start
}

// start is that of a pod:
//
//	(unknown) --Seen or Again--> starting --Ready or Ended--> over --Again--> starting
type start struct {
	pod Pod
	// over reports that it is not starting now.
	over  bool
	root  trace.Span
	since time.Time
	// begun reports that an action has begun; until then the pod waits for admission.
	begun bool
	// ran is when the last of its containers was started.
	ran   time.Time
	steps int
}

// New returns a Tracer. It does no I/O.
func New(cfg Config) *Tracer {
	const million = 1_000_000
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(float64(cfg.PerMillion)/million))),
		sdk.WithResource(resource.NewSchemaless(texts("service.name", "monopod", "service.version", cfg.Version, "k8s.node.name", cfg.Node, "host.name", cfg.Node)...)))
	return &Tracer{cfg: cfg, provider: provider, tracer: provider.Tracer("monopod/node/tracing"), pods: map[key]*start{}}
}

// Run exports spans until ctx ends, then flushes the queue if the collector accepts it at once. Starts that ended before Run are not
// exported.
func (t *Tracer) Run(ctx context.Context) {
	end := t.send(ctx)
	<-ctx.Done()
	end()
}

func (t *Tracer) send(ctx context.Context, opts ...grpc.DialOption) (end func()) {
	e, err := newExporter(ctx, t.cfg.Endpoint, t.cfg.Log, opts...)
	if err != nil {
		t.cfg.Log.Warn("starts of pods are not traced", "err", err)
		return func() {}
	}
	spans := sdk.NewBatchSpanProcessor(e, sdk.WithMaxQueueSize(maxQueued-maxBatch), sdk.WithMaxExportBatchSize(maxBatch),
		sdk.WithBatchTimeout(gather), sdk.WithExportTimeout(0)) // it is the exporter that knows when to give up
	t.provider.RegisterSpanProcessor(spans)
	return func() { e.end(context.WithoutCancel(ctx), spans) }
}

// Seen records an existing pod. A new one begins to start, unless it runs already.
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

// Again records that a pod is created, or recreated. Its uid may not be known yet.
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
	_, root := t.tracer.Start(context.Background(), "start pod", trace.WithTimestamp(now))
	return &start{pod: p, root: root, since: now}
}

// Span is a step that is under way; nil: of nothing that is traced.
type Span struct {
	tracer *Tracer
	start  *start
	span   trace.Span
}

// Begin notes that something is being done for a pod.
func (t *Tracer) Begin(p Pod, now time.Time, step Step) *Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.key()]
	if s == nil || s.over {
		return nil
	}
	if !s.begun {
		s.begun = true
		finishLocked(s, t.beginLocked(s, s.root, Step{Name: "admission", Began: s.since}), now, "")
	}
	return &Span{tracer: t, start: s, span: t.beginLocked(s, s.root, step)}
}

// Phase records a part of the step, also after its end. why is the error; empty: it succeeded.
func (s *Span) Phase(step Step, over time.Time, why string) {
	if s == nil {
		return
	}
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	finishLocked(s.start, s.tracer.beginLocked(s.start, s.span, step), over, why)
}

// End ends the step; why is as in Phase. runs reports that a container of the pod has been started by it, other than an init container.
func (s *Span) End(over time.Time, why string, runs bool) {
	if s == nil {
		return
	}
	s.tracer.mu.Lock()
	defer s.tracer.mu.Unlock()
	if runs {
		s.start.ran = over
	}
	finishLocked(s.start, s.span, over, why)
}

// Ready notes that a pod is ready: its start is over.
func (t *Tracer) Ready(p Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.pods[p.key()]
	if s == nil || s.over || s.ran.IsZero() || s.pod.UID != p.UID { // what is ready is the one before
		return
	}
	finishLocked(s, t.beginLocked(s, s.root, Step{Name: "readiness", Began: s.ran}), now, "")
	endLocked(s, now, "")
}

// Ended notes that a pod has ended; why is empty when it did what it was for.
func (t *Tracer) Ended(p Pod, now time.Time, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.pods[p.key()]; s != nil && s.pod.UID == p.UID {
		endLocked(s, now, why)
	}
}

// Gone records that a pod has gone.
func (t *Tracer) Gone(p Pod, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.pods[p.key()]; s != nil {
		endLocked(s, now, "the pod was removed before it was ready")
		delete(t.pods, p.key())
	}
}

// endLocked ends the whole start.
func endLocked(s *start, now time.Time, why string) {
	if s.over {
		return
	}
	s.over = true
	if s.steps > maxSteps {
		s.root.SetAttributes(attribute.Int("monopod.dropped_steps", s.steps-maxSteps))
	}
	finishLocked(s, s.root, now, why)
}

// beginLocked begins a span below another one, also when the start is over.
func (t *Tracer) beginLocked(s *start, parent trace.Span, step Step) trace.Span {
	if s.steps++; s.steps > maxSteps {
		return trace.SpanFromContext(context.Background()) // which is none
	}
	_, span := t.tracer.Start(trace.ContextWithSpan(context.Background(), parent), step.Name, trace.WithTimestamp(step.Began))
	if step.Container != "" {
		span.SetAttributes(texts("k8s.container.name", step.Container, "container.image.name", step.Image)...)
	}
	if step.Init {
		span.SetAttributes(attribute.String("monopod.container.type", "init"))
	}
	return span
}

// finishLocked ends a span; why is its error, if any. Only now all attributes of the pod are known.
func finishLocked(s *start, span trace.Span, over time.Time, why string) {
	span.SetAttributes(texts("k8s.namespace.name", s.pod.Namespace, "k8s.pod.name", s.pod.Name, "k8s.pod.uid", s.pod.UID)...)
	if why != "" {
		span.SetStatus(codes.Error, strings.ToValidUTF8(why, "\uFFFD")) // nothing else can be encoded
	}
	span.End(trace.WithTimestamp(over))
}

// texts makes attributes of names and values, of those that there are.
func texts(pairs ...string) (all []attribute.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return all
}
