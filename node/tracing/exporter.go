package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
)

const (
	// maxQueued is how many spans wait at most, maxBatch how many are sent at once.
	maxQueued = 2048
	maxBatch  = 512
	// gather is how often what has come is sent.
	gather = time.Second
	// sendTimeout is how long one attempt may take.
	sendTimeout = 10 * time.Second
	// firstRetry and lastRetry are the waits between attempts, give or take a half.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// lastWords is how long the end of the daemon waits for what is queued.
	lastWords = 300 * time.Millisecond
	// idleAfter is after how long the connection is given up.
	idleAfter = time.Minute
)

// exporter is that of OpenTelemetry. It tells our log of what goes wrong, and not OpenTelemetry's own, which is one for the whole process.
type exporter struct {
	*otlptrace.Exporter
	log *slog.Logger
	// away reports that the last attempt failed, ended that failures are no longer logged.
	away, ended atomic.Bool
	// done is closed when nothing more is sent.
	done chan struct{}
}

// newExporter returns what sends spans to a collector, trying again until it is there. The connection is made with the first of them.
func newExporter(ctx context.Context, endpoint string, log *slog.Logger, opts ...grpc.DialOption) (*exporter, error) {
	e := &exporter{log: log, done: make(chan struct{})}
	opts = append([]grpc.DialOption{grpc.WithChainUnaryInterceptor(e.attempt), grpc.WithIdleTimeout(idleAfter), grpc.WithDisableServiceConfig()}, opts...)
	var err error
	e.Exporter, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure(), otlptracegrpc.WithDialOption(opts...),
		otlptracegrpc.WithTimeout(0), // of all attempts together
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: firstRetry, MaxInterval: lastRetry}))
	return e, err
}

// attempt is one to send a batch.
func (e *exporter) attempt(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := invoke(ctx, method, request, reply, conn, opts...)
	if err != nil {
		e.tell(err)
	}
	return err
}

// ExportSpans implements [sdk.SpanExporter]. It returns when the spans have arrived, are refused, or the end has come.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	e.tell(e.Exporter.ExportSpans(ctx, spans))
	return nil
}

// tell says once that the collector does not take what is sent, and that it does again.
func (e *exporter) tell(err error) {
	switch {
	case e.ended.Load() || e.away.Swap(err != nil) == (err != nil):
	case err != nil:
		e.log.Warn("traces cannot be sent; excess traces are dropped", "err", err)
	default:
		e.log.Info("traces are sent again")
	}
}

// Shutdown implements [sdk.SpanExporter].
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.done)
	return e.Exporter.Shutdown(ctx)
}

// end gives what is queued to the collector if it is there and takes it at once.
func (e *exporter) end(ctx context.Context, spans sdk.SpanProcessor) {
	e.ended.Store(true)
	if e.away.Load() {
		e.giveUp(ctx)
	}
	soon, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	if err := spans.Shutdown(soon); err != nil {
		e.giveUp(ctx)
	}
	<-e.done
}

// giveUp ends what is under way, and with it the waiting of those that wait for it.
func (e *exporter) giveUp(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_ = e.Exporter.Shutdown(ctx)
}
