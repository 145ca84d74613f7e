package tracing

import (
	"bytes"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is a collector, without the network.
type sink struct {
	mu   sync.Mutex
	err  error
	hang bool
	// rejects is what it says of spans that it does not keep.
	rejects string
	got     []*trace.ResourceSpans
}

func (s *sink) answer(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case method != "/opentelemetry.proto.collector.trace.v1.TraceService/Export":
		return status.Error(codes.Unimplemented, method)
	case s.hang:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case s.err != nil:
		return s.err
	case s.rejects != "":
		reply.(*v1.ExportTraceServiceResponse).PartialSuccess = &v1.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: s.rejects}
	}
	s.got = append(s.got, request.(*v1.ExportTraceServiceRequest).GetResourceSpans()...)
	return nil
}

func (s *sink) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *sink) reject(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejects = why
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

// newTest returns a Tracer that sends to a sink, what it says, and its end.
func newTest(t *testing.T, perMillion int, s *sink) (_ *Tracer, says *bytes.Buffer, end func()) {
	says = &bytes.Buffer{}
	tr := New(Config{Endpoint: "127.0.0.1:1", PerMillion: perMillion, Node: "n", Version: "v1", Log: slog.New(slog.NewTextHandler(says, nil))})
	end = tr.send(t.Context(), grpc.WithChainUnaryInterceptor(s.answer))
	t.Cleanup(end)
	return tr, says, end
}

// drain sends what is queued.
func drain(t *testing.T, tr *Tracer) {
	t.Helper()
	if err := tr.provider.ForceFlush(t.Context()); err != nil {
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

// startWeb records a start with an init container that fails once.
func startWeb(tr *Tracer) {
	tr.Seen(Pod{"default", "web", ""}, false, at(0))
	tr.Again(web, at(2))
	s := tr.Begin(web, at(2), Step{Name: "create sandbox", Began: at(2)})
	s.End(at(3), "", false)
	image := tr.Begin(web, at(3), Step{Name: "get image", Container: "i", Image: "busybox", Init: true, Began: at(3)})
	image.End(at(5), "", false)
	s.Phase(Step{Name: "set up network", Began: at(3)}, at(4), "") // after the action
	tr.Begin(web, at(7), Step{Name: "run init container", Container: "i", Image: "busybox", Init: true, Began: at(5)}).End(at(6), "Error", false)
	tr.Begin(web, at(7), Step{Name: "start container", Container: "c", Image: "busybox", Began: at(7)}).End(at(8), "", true)
	tr.Ready(Pod{"default", "web", "u0"}, at(8)) // the one before
	tr.Seen(web, true, at(9))
	tr.Ready(web, at(10))
	tr.Ready(web, at(11))
}

func TestAStartIsOneTrace(t *testing.T) {
	s := &sink{}
	tr, _, _ := newTest(t, 1_000_000, s)
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
	tr, _, _ := newTest(t, 1_000_000, s)
	tr.Seen(web, true, at(0)) // it ran before the tracer did
	tr.Begin(web, at(1), Step{Name: "start container", Began: at(1)}).End(at(2), "", true)
	tr.Ready(web, at(3))
	tr.Gone(web, at(4))
	stranger := tr.Begin(web, at(5), Step{Name: "stranger"})
	stranger.Phase(Step{Name: "of it"}, at(6), "")
	stranger.End(at(6), "", false)
	never, _, _ := newTest(t, 0, s)
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
			tr, _, _ := newTest(t, 1_000_000, s)
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
	tr, _, _ := newTest(t, 1_000_000, s)
	tr.Again(web, at(0))
	for range 3 * maxSteps {
		tr.Begin(web, at(1), Step{Name: "start container", Began: at(1)}).End(at(2), "", true)
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
	tr := New(Config{PerMillion: 100_000})
	n := 0
	for range 10_000 {
		if tr.begin(web, at(0)).root.SpanContext().IsSampled() {
			n++
		}
	}
	if n < 800 || n > 1200 { // 6 standard deviations
		t.Errorf("%d of 10000 instead of a tenth", n)
	}
}

// tell records starts that end at once.
func tell(tr *Tracer, n int) {
	for range n {
		tr.Again(web, at(0))
		tr.Ended(web, at(1), "")
	}
}

func TestADeadCollectorHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{err: status.Error(codes.Unavailable, "nobody there")}
		tr, says, end := newTest(t, 1_000_000, s)
		began := time.Now()
		tell(tr, maxBatch)
		synctest.Wait() // it is tried to send these
		tell(tr, 3*maxQueued)
		if took := time.Since(began); took != 0 {
			t.Errorf("telling took %v", took)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if said := says.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "traces cannot be sent") || !strings.Contains(said, "nobody there") {
			t.Errorf("it says %s", said)
		}
		s.set(nil)
		time.Sleep(2 * lastRetry)
		synctest.Wait()
		if n := len(s.spans()); n != maxQueued {
			t.Errorf("%d spans arrive after all", n)
		}
		if said := says.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "traces are sent again") {
			t.Errorf("it says %s", said)
		}
		tell(tr, 1)
		began = time.Now()
		end()
		if n := len(s.spans()); n != maxQueued+1 || time.Since(began) != 0 {
			t.Errorf("%d spans have arrived at the end, %v later", n, time.Since(began))
		}
	})
}

func TestNoCollectorDelaysTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		s     *sink
		after time.Duration
		most  time.Duration
	}{
		"one that was silent up to now":   {&sink{hang: true}, 0, lastWords},
		"one that has just fallen silent": {&sink{hang: true}, gather, lastWords},
		"one that is long silent":         {&sink{hang: true}, time.Minute, 0},
		"one that is long dead":           {&sink{err: status.Error(codes.Unavailable, "nobody there")}, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, _, end := newTest(t, 1_000_000, test.s)
				tell(tr, maxQueued)
				time.Sleep(test.after)
				began := time.Now()
				end()
				if took := time.Since(began); took > test.most {
					t.Errorf("it ended %v later", took)
				}
			})
		})
	}
}

func TestWhatTheCollectorRefusesIsDropped(t *testing.T) {
	s := &sink{err: status.Error(codes.InvalidArgument, "not that")}
	tr, says, end := newTest(t, 1_000_000, s)
	startWeb(tr)
	drain(t, tr)
	s.set(errors.New("anything else"))
	startWeb(tr)
	drain(t, tr)
	s.set(nil)
	startWeb(tr)
	drain(t, tr)
	s.reject("too old")
	startWeb(tr)
	drain(t, tr)
	startWeb(tr)
	drain(t, tr)
	end()
	if n := len(s.spans()); n != 3*8 {
		t.Errorf("%d spans arrive", n)
	}
	var said []string
	for line := range strings.Lines(says.String()) {
		_, line, _ = strings.Cut(line, " level=")
		said = append(said, line)
	}
	if len(said) != 3 || !strings.Contains(said[0], "not that") || !strings.Contains(said[1], "again") || !strings.Contains(said[2], "too old") {
		t.Errorf("it says %q", said)
	}
}

// service is a collector as OpenTelemetry's own code makes one.
type service struct {
	v1.UnimplementedTraceServiceServer
	got chan *v1.ExportTraceServiceRequest
}

func (s *service) Export(ctx context.Context, r *v1.ExportTraceServiceRequest) (*v1.ExportTraceServiceResponse, error) {
	if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md.Get("tenant"), []string{"home"}) {
		return nil, status.Errorf(codes.Unauthenticated, "%v", md)
	}
	s.got <- r
	return &v1.ExportTraceServiceResponse{}, nil
}

func TestACollectorUnderstandsWhatIsSent(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "tenant=home")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "site=attic,service.name=other")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, s := grpc.NewServer(), &service{got: make(chan *v1.ExportTraceServiceRequest, 10)}
	v1.RegisterTraceServiceServer(server, s)
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()
	tr := New(Config{Endpoint: ln.Addr().String(), PerMillion: 1_000_000, Node: "n", Log: slog.New(slog.DiscardHandler)})
	end := tr.send(t.Context())
	startWeb(tr)
	tr.Again(web, at(11))
	tr.Ended(web, at(12), "no text: \xff")
	drain(t, tr)
	r := (<-s.got).GetResourceSpans()[0]
	if len(r.GetScopeSpans()[0].GetSpans()) != 9 {
		t.Errorf("%v", r)
	}
	if of := values(r.GetResource().GetAttributes()); of["site"] != "attic" || of["service.name"] != "monopod" {
		t.Errorf("resource: %v", of)
	}
	end()
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
