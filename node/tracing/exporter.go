package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// maxQueued is how many spans wait at most, maxBatch how many are sent at once: as OpenTelemetry's own exporter has it.
	maxQueued = 2048
	maxBatch  = 512
	// gather is how long further spans are waited for before the first is sent.
	gather = time.Second
	// sendTimeout is how long one request may take.
	sendTimeout = 10 * time.Second
	// firstRetry and lastRetry are the waits between attempts.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// lastWords is how long the end of the daemon waits for what is queued.
	lastWords = 300 * time.Millisecond
	// idleAfter is after how long the connection is given up.
	idleAfter = time.Minute
)

// client sends encoded requests.
type client interface {
	send(ctx context.Context, request []byte) error
	Close() error
}

// exporter sends spans to a collector.
type exporter struct {
	from   resource
	dial   func() (client, error)
	log    *slog.Logger
	client client // of run alone
	woken  chan struct{}

	mu sync.Mutex
	// queue is what has not been accepted yet, dropped how many were not queued. Guarded by mu.
	queue   []span
	dropped int
}

func newExporter(from resource, dial func() (client, error), log *slog.Logger) *exporter {
	return &exporter{from: from, dial: dial, log: log, woken: make(chan struct{}, 1)}
}

// put queues a span. It never waits.
func (e *exporter) put(s span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) >= maxQueued {
		e.dropped++
		return
	}
	e.queue = append(e.queue, s)
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// run sends until ctx ends, and then what is left if the collector answers at once.
func (e *exporter) run(ctx context.Context) {
	defer func() {
		if e.client != nil {
			_ = e.client.Close()
		}
	}()
	wait, bad := firstRetry, false
	for {
		select {
		case <-ctx.Done():
		case <-e.woken:
			pause(ctx, gather)
		}
		if ctx.Err() != nil {
			if !bad {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
				_ = e.sendAll(last)
				cancel()
			}
			return
		}
		err := e.sendAll(ctx)
		if ctx.Err() != nil {
			continue
		}
		if (err != nil) != bad {
			bad = err != nil
			e.tell(err)
		}
		if err == nil {
			wait = firstRetry
			continue
		}
		pause(ctx, wait)
		wait = min(2*wait, lastRetry)
		e.wake()
	}
}

func (e *exporter) wake() {
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// tell says once that the collector is not there, and that it is again.
func (e *exporter) tell(err error) {
	if err != nil {
		e.log.Warn("traces cannot be sent; nothing waits for that, and those that are too many are dropped", "err", err)
		return
	}
	e.mu.Lock()
	dropped := e.dropped
	e.dropped = 0
	e.mu.Unlock()
	e.log.Info("traces are sent again", "dropped", dropped)
}

// sendAll sends what is queued. What the collector will not have is dropped; anything else that goes wrong is an error.
func (e *exporter) sendAll(ctx context.Context) error {
	for {
		e.mu.Lock()
		batch := e.queue[:min(len(e.queue), maxBatch)]
		e.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if e.client == nil {
			c, err := e.dial()
			if err != nil {
				return err
			}
			e.client = c
		}
		if err := e.post(ctx, batch); err != nil {
			return err
		}
		e.mu.Lock()
		e.queue = e.queue[len(batch):]
		if len(e.queue) == 0 {
			e.queue = nil // not the array behind it
		}
		e.mu.Unlock()
	}
}

func (e *exporter) post(ctx context.Context, batch []span) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := e.client.send(ctx, encode(e.from, batch))
	if err == nil || again(err) {
		return err
	}
	e.log.Warn("traces are refused by the collector", "spans", len(batch), "err", err)
	return nil
}

// again says that it is worth to try again, by the rules of OTLP.
func again(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// dial returns what makes a connection to a collector. It is opened with the first request.
func dial(endpoint string) func() (client, error) {
	return func() (client, error) {
		c, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(idleAfter),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(encoded{})), grpc.WithDisableServiceConfig())
		if err != nil {
			return nil, err
		}
		return collector{c}, nil
	}
}

// collector is opentelemetry.proto.collector.trace.v1.TraceService.
type collector struct{ *grpc.ClientConn }

func (c collector) send(ctx context.Context, request []byte) error {
	return c.Invoke(ctx, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", request, nil)
}

// encoded is the codec of messages that are encoded already; of answers nothing is read.
type encoded struct{}

// Name implements encoding.Codec.
func (encoded) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (encoded) Marshal(v any) ([]byte, error) { return v.([]byte), nil } //nolint:forcetypeassert // what send gives

// Unmarshal implements encoding.Codec.
func (encoded) Unmarshal([]byte, any) error { return nil }
