//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"monopod/e2e/testimages"
)

// spans is an OpenTelemetry collector that stores what it receives.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	all []*trace.Span
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range r.GetResourceSpans() {
		for _, scope := range rs.GetScopeSpans() {
			s.all = append(s.all, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of returns the spans of the trace whose root is the start of a pod, by name and container; nil if it has not arrived yet.
func (s *spans) of(pod string) map[string]*trace.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	traces := map[string]map[string]*trace.Span{}
	var found map[string]*trace.Span
	for _, sp := range s.all {
		of := traces[string(sp.GetTraceId())]
		if of == nil {
			of = map[string]*trace.Span{}
			traces[string(sp.GetTraceId())] = of
		}
		name := sp.GetName()
		for _, a := range sp.GetAttributes() {
			switch {
			case a.GetKey() == "k8s.container.name":
				name += " " + a.GetValue().GetStringValue()
			case a.GetKey() == "k8s.pod.name" && sp.GetName() == "start pod" && a.GetValue().GetStringValue() == pod:
				found = of
			}
		}
		of[name] = sp
	}
	return found
}

// serve listens until the returned function is called.
func (s *spans) serve(t *testing.T, address string) (string, func()) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	return ln.Addr().String(), sync.OnceFunc(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// traced is a pod that uses all parts of a start: an image from a registry, a volume, an init container, and time to become ready.
func traced(image string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: traced}
spec:
  terminationGracePeriodSeconds: 0
  initContainers:
  - {name: first, image: '%[1]s', command: [sh, -c, 'sleep 0.3; echo hello >/v/f'], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
  - name: c
    image: '%[1]s'
    command: [sh, -c, 'sleep 0.5; touch /ready; exec sleep 9999']
    readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
`, image)
}

func TestTheStartOfAPodIsTraced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	got := &spans{}
	address, stop := got.serve(t, "127.0.0.1:0")
	defer func() { stop() }()
	in := newInstance(t, "tracing: {endpoint: '"+address+"', samplingRatePerMillion: 1000000}")
	image := testimages.Registry(t) + "/traced:1"
	testimages.Push(t, image, testimages.Busybox(t, nil))
	in.start()
	began := time.Now()
	in.put("traced", traced(image))
	p := in.ready("traced")
	took := time.Since(began)
	var all map[string]*trace.Span
	in.eventually("the trace arrives", func() error {
		if all = got.of("traced"); all == nil {
			return errors.New("there is none")
		}
		return nil
	})
	names := slices.Sorted(maps.Keys(all))
	want := []string{
		"admission", "create container c", "create container first", "create sandbox", "get image c", "get image first",
		"prepare volumes c", "prepare volumes first", "readiness", "run init container first", "set up network", "start container c", "start container first", "start pod",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	lasts := func(name string) time.Duration {
		return time.Duration(all[name].GetEndTimeUnixNano() - all[name].GetStartTimeUnixNano())
	}
	root := all["start pod"]
	for name, sp := range all {
		t.Logf("%-28s %8.1f ms", name, float64(lasts(name).Microseconds())/1000)
		if sp.GetStartTimeUnixNano() < root.GetStartTimeUnixNano() || sp.GetEndTimeUnixNano() > root.GetEndTimeUnixNano() || sp.GetStatus().GetCode() != trace.Status_STATUS_CODE_UNSET {
			t.Errorf("%s does not lie within the start: %v", name, sp)
		}
	}
	for name, least := range map[string]time.Duration{"run init container first": 300 * time.Millisecond, "readiness": 400 * time.Millisecond} {
		if lasts(name) < least || lasts(name) > lasts("start pod") {
			t.Errorf("%s took %v", name, lasts(name))
		}
	}
	if lasts("start pod") > took {
		t.Errorf("the start took %v, and %v by the trace", took, lasts("start pod"))
	}
	for _, a := range root.GetAttributes() {
		if a.GetKey() == "k8s.pod.uid" && a.GetValue().GetStringValue() != string(p.UID) {
			t.Errorf("its uid is %s, and %s by the trace", p.UID, a.GetValue())
		}
	}
	for path, want := range map[string]string{
		"/metrics":        `kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"} `,
		"/metrics?":       `kubelet_http_requests_total{long_running="false",method="GET",path="podreports",server_type="socket"} `,
		"/metrics/probes": `prober_probe_duration_seconds_count{container="c",namespace="default",pod="traced",probe_type="Readiness"} `,
	} {
		if got := in.curl(path); !strings.Contains(got, want) {
			t.Errorf("%s does not have %s:\n%s", path, want, got)
		}
	}
	// Without a collector pods start normally; it receives their traces when it is back.
	stop()
	in.put("while", sleeper("while", "echo start"))
	in.ready("while")
	in.eventually("it is told that nobody hears", func() error {
		if !in.log.contains("traces cannot be sent") {
			return errors.New("it is not")
		}
		return nil
	})
	_, stop = got.serve(t, address)
	in.eventually("the trace arrives after all", func() error {
		if got.of("while") == nil {
			return errors.New("there is none")
		}
		return nil
	})
}
