package describe

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/printer"
	"monopod/node"
)

func TestDescribeShowsProbesAndWhenTheyAreAskedNext(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{node.AnnotationProbes: `[
		{"container":"c","kind":"Liveness","result":"Success","failures":2,"threshold":3,"output":"HTTP probe failed with statuscode: 500","last":"2026-01-02T03:04:00Z","next":"2026-01-02T03:04:10Z"},
		{"container":"c","kind":"Startup","result":"Success","threshold":30,"last":"2026-01-02T03:00:05Z"},
		{"container":"other","kind":"Readiness","result":"Failure","threshold":3}]`}}}
	c := &corev1.Container{
		Name: "c",
		LivenessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("web"), Scheme: corev1.URISchemeHTTP}},
			PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9000}}},
		StartupProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/ok"}}}, FailureThreshold: 30},
	}
	var b bytes.Buffer
	d := &description{w: printer.New(&b), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), indent: "    ", probes: probesOf(pod)}
	d.probe("Startup", "c", c.StartupProbe)
	d.probe("Liveness", "c", c.LivenessProbe)
	d.probe("Readiness", "c", c.ReadinessProbe)
	want := `    Startup:       exec [test -e /ok] delay=0s timeout=0s period=0s #success=0 #failure=30
                   succeeds, last 4m ago
    Liveness:      http-get http://:web/healthz delay=0s timeout=1s period=10s #success=1 #failure=3
                   succeeds, 2 failed in a row (3 count), last 5s ago, next in 5s: HTTP probe failed with statuscode: 500
    Readiness:     grpc :9000 delay=0s timeout=0s period=0s #success=0 #failure=0
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
