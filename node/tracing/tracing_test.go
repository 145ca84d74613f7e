package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is a client that keeps what it is sent.
type sink struct {
	mu   sync.Mutex
	err  error
	hang bool
	got  []*trace.ResourceSpans
}

func (s *sink) send(ctx context.Context, request []byte) error {
	s.mu.Lock()
	err, hang := s.err, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return err
	}
	var r v1.ExportTraceServiceRequest
	if err := (proto.UnmarshalOptions{}).Unmarshal(request, &r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r.GetResourceSpans()...)
	return nil
}

func (s *sink) Close() error { return nil }

func (s *sink) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *sink) spans() (all []*trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.got {
		for _, scope := range r.GetScopeSpans() {
			all = append(all, scope.GetSpans()...)
		}
	}
	return all
}

func newTest(perMillion int, s *sink) *Tracer {
	t := New(Config{Endpoint: "127.0.0.1:1", PerMillion: perMillion, Node: "n", Version: "v1", Log: slog.New(slog.DiscardHandler)})
	t.exporter.dial = func() (client, error) { return s, nil }
	return t
}

// drain sends what is queued.
func drain(t *testing.T, tr *Tracer) {
	t.Helper()
	if err := tr.exporter.sendAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func values(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		m[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return m
}

// web is a pod that starts at the time zero of the tests.
var web = Pod{"default", "web", "u1"}

func at(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }

// startWeb tells of a start with an init container that fails once.
func startWeb(tr *Tracer) {
	tr.Seen(Pod{"default", "web", ""}, false, at(0))
	tr.Again(web, at(2))
	s := tr.Begin(web, at(2))
	s.End(Step{Name: "create sandbox", Began: at(2), Over: at(3)}, false)
	image := tr.Begin(web, at(3))
	image.End(Step{Name: "get image", Container: "i", Image: "busybox", Init: true, Began: at(3), Over: at(5)}, false)
	s.Phase(Step{Name: "set up network", Began: at(3), Over: at(4)}) // after the action
	tr.Begin(web, at(5)).End(Step{Name: "run init container", Container: "i", Image: "busybox", Init: true, Began: at(5), Over: at(6), Err: "Error"}, false)
	tr.Begin(web, at(7)).End(Step{Name: "start container", Container: "c", Image: "busybox", Began: at(7), Over: at(8)}, true)
	tr.Ready(Pod{"default", "web", "u0"}, at(8)) // the one before
	tr.Seen(web, true, at(9))
	tr.Ready(web, at(10))
	tr.Ready(web, at(11))
}

func TestAStartIsOneTrace(t *testing.T) {
	s := &sink{}
	tr := newTest(1_000_000, s)
	startWeb(tr)
	drain(t, tr)
	spans := s.spans()
	root := spans[len(spans)-1]
	if root.GetName() != "start pod" || len(root.GetParentSpanId()) != 0 || root.GetStatus().GetCode() != trace.Status_STATUS_CODE_UNSET {
		t.Errorf("root: %v", root)
	}
	ids := map[string]string{}
	var got []string
	for _, sp := range spans {
		ids[string(sp.GetSpanId())] = sp.GetName()
	}
	for _, sp := range spans {
		if string(sp.GetTraceId()) != string(root.GetTraceId()) || len(sp.GetTraceId()) != 16 || len(sp.GetSpanId()) != 8 || sp.GetKind() != trace.Span_SPAN_KIND_INTERNAL {
			t.Errorf("span: %v", sp)
		}
		a := values(sp.GetAttributes())
		if a["k8s.pod.name"] != "web" || a["k8s.namespace.name"] != "default" || sp.GetName() != "admission" && a["k8s.pod.uid"] != "u1" {
			t.Errorf("%s: %v", sp.GetName(), a)
		}
		began, over := time.Unix(0, int64(sp.GetStartTimeUnixNano())), time.Unix(0, int64(sp.GetEndTimeUnixNano()))
		line := []string{
			sp.GetName(), a["k8s.container.name"], a["container.image.name"], a["monopod.container.type"], ids[string(sp.GetParentSpanId())],
			began.Sub(at(0)).String(), over.Sub(at(0)).String(), sp.GetStatus().GetMessage(),
		}
		got = append(got, strings.Join(line, "|"))
	}
	want := []string{
		"admission||||start pod|0s|2s|",
		"create sandbox||||start pod|2s|3s|",
		"get image|i|busybox|init|start pod|3s|5s|",
		"set up network||||create sandbox|3s|4s|",
		"run init container|i|busybox|init|start pod|5s|6s|Error",
		"start container|c|busybox||start pod|7s|8s|",
		"readiness||||start pod|8s|10s|",
		"start pod|||||0s|10s|",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if spans[4].GetStatus().GetCode() != trace.Status_STATUS_CODE_ERROR {
		t.Errorf("the failed container is %v", spans[4].GetStatus())
	}
	if r := values(s.got[0].GetResource().GetAttributes()); r["service.name"] != "monopod" || r["service.version"] != "v1" || r["k8s.node.name"] != "n" {
		t.Errorf("resource: %v", r)
	}
}

func TestWhatDoesNotStartIsNotTraced(t *testing.T) {
	s := &sink{}
	tr := newTest(1_000_000, s)
	tr.Seen(web, true, at(0)) // it ran before the tracer did
	tr.Begin(web, at(1)).End(Step{Name: "start container", Began: at(1), Over: at(2)}, true)
	tr.Ready(web, at(3))
	tr.Gone(web, at(4))
	tr.Begin(web, at(5)).End(Step{Name: "stranger"}, false)
	never := newTest(0, s)
	startWeb(never)
	drain(t, tr)
	drain(t, never)
	if got := s.spans(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestEachStartEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*Tracer)
		want string
	}{
		"failed":    {func(tr *Tracer) { tr.Ended(web, at(3), "Evicted: no memory") }, "Evicted: no memory"},
		"completed": {func(tr *Tracer) { tr.Ended(web, at(3), "") }, ""},
		"removed":   {func(tr *Tracer) { tr.Gone(Pod{"default", "web", ""}, at(3)) }, "the pod was removed before it was ready"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			tr := newTest(1_000_000, s)
			tr.Again(web, at(1))
			test.end(tr)
			test.end(tr)
			tr.Again(web, at(4)) // another one
			tr.Ended(web, at(5), "")
			drain(t, tr)
			spans := s.spans()
			if len(spans) != 2 || spans[0].GetStatus().GetMessage() != test.want || string(spans[0].GetTraceId()) == string(spans[1].GetTraceId()) {
				t.Errorf("%v", spans)
			}
		})
	}
}

func TestAPodThatNeverGetsReadyHasAnEndOfSpans(t *testing.T) {
	s := &sink{}
	tr := newTest(1_000_000, s)
	tr.Again(web, at(0))
	for range 3 * maxSteps {
		tr.Begin(web, at(1)).End(Step{Name: "start container", Began: at(1), Over: at(2)}, true)
	}
	tr.Ready(web, at(3))
	drain(t, tr)
	spans := s.spans()
	if len(spans) != maxSteps+1 {
		t.Fatalf("%d spans", len(spans))
	}
	for _, a := range spans[maxSteps].GetAttributes() {
		if a.GetKey() == "monopod.dropped_steps" && a.GetValue().GetIntValue() == 2*maxSteps+2 {
			return
		}
	}
	t.Errorf("it does not say how many are missing: %v", spans[maxSteps])
}

func TestAPartIsSampled(t *testing.T) {
	n := 0
	for i := range uint64(10_000) {
		var id traceID
		for j := range 8 {
			id[8+j] = byte(i * 0x9E3779B97F4A7C15 >> (56 - 8*j)) // evenly spread
		}
		if sampled(id, 100_000) {
			n++
		}
	}
	if n < 950 || n > 1050 {
		t.Errorf("%d of 10000 instead of a tenth", n)
	}
}

func TestADeadCollectorHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{err: status.Error(codes.Unavailable, "nobody there")}
		tr := newTest(1_000_000, s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tr.Run(ctx) }()
		began := time.Now()
		for range 3 * maxQueued {
			tr.Again(web, at(0))
			tr.Ended(web, at(1), "")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("telling took %v", took)
		}
		time.Sleep(5 * time.Minute)
		if n := len(tr.exporter.queue); n != maxQueued || tr.exporter.dropped != 2*maxQueued {
			t.Errorf("%d are queued, %d dropped", n, tr.exporter.dropped)
		}
		s.set(nil)
		time.Sleep(lastRetry)
		if n := len(s.spans()); n != maxQueued {
			t.Errorf("%d spans arrive after all", n)
		}
		tr.Again(web, at(0))
		tr.Ended(web, at(1), "")
		cancel()
		<-done
		if n := len(s.spans()); n != maxQueued+1 {
			t.Errorf("%d spans have arrived at the end", n)
		}
	})
}

func TestASilentCollectorDoesNotDelayTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTest(1_000_000, &sink{hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tr.Run(ctx) }()
		tr.Again(web, at(0))
		tr.Ended(web, at(1), "")
		synctest.Wait()
		began := time.Now()
		cancel()
		<-done
		if took := time.Since(began); took > lastWords {
			t.Errorf("it ended %v later", took)
		}
	})
}

func TestWhatTheCollectorRefusesIsDropped(t *testing.T) {
	s := &sink{err: status.Error(codes.InvalidArgument, "not that")}
	tr := newTest(1_000_000, s)
	startWeb(tr)
	drain(t, tr)
	if len(tr.exporter.queue) != 0 {
		t.Error("it is kept")
	}
	s.set(errors.New("anything else"))
	startWeb(tr)
	drain(t, tr)
}

// service is a collector as OpenTelemetry's own code makes one.
type service struct {
	v1.UnimplementedTraceServiceServer
	got chan *v1.ExportTraceServiceRequest
}

func (s *service) Export(_ context.Context, r *v1.ExportTraceServiceRequest) (*v1.ExportTraceServiceResponse, error) {
	s.got <- r
	return &v1.ExportTraceServiceResponse{}, nil
}

func TestACollectorUnderstandsWhatIsSent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, s := grpc.NewServer(), &service{got: make(chan *v1.ExportTraceServiceRequest, 10)}
	v1.RegisterTraceServiceServer(server, s)
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()
	tr := New(Config{Endpoint: ln.Addr().String(), PerMillion: 1_000_000, Node: "n", Log: slog.New(slog.DiscardHandler)})
	startWeb(tr)
	drain(t, tr)
	r := <-s.got
	if len(r.ProtoReflect().GetUnknown()) != 0 || len(r.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()) != 8 {
		t.Errorf("%v", r)
	}
	if err := tr.exporter.client.Close(); err != nil {
		t.Error(err)
	}
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
