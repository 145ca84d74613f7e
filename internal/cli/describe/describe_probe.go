package describe

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/model"
	"monopod/node"
)

// probesOf returns the daemon's probe states of a pod; empty if it reports none.
func probesOf(pod *corev1.Pod) []model.Probe {
	var all []model.Probe
	if json.Unmarshal([]byte(pod.Annotations[node.AnnotationProbes]), &all) != nil {
		return nil
	}
	return all
}

// probe prints a probe of the manifest with its state.
func (d *description) probe(kind, container string, p *corev1.Probe) {
	if p == nil {
		return
	}
	lines := []string{fmt.Sprintf("%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", probeTarget(p),
		p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)}
	for i := range d.probes {
		if s := &d.probes[i]; s.Container == container && s.Kind == kind {
			lines = append(lines, d.probeState(s))
		}
	}
	d.list(kind, lines)
}

// probeState returns one line: the effective result, that of the latest attempt, and the time of the next one.
func (d *description) probeState(s *model.Probe) string {
	text := map[string]string{"Success": "succeeds", "Failure": "has failed", "Unknown": "has not succeeded yet"}[s.Result]
	if s.Failures > 0 {
		text += fmt.Sprintf(", %d failed in a row (%d count)", s.Failures, s.Threshold)
	}
	if !s.Last.IsZero() {
		text += fmt.Sprintf(", last %s ago", duration.HumanDuration(d.now.Sub(s.Last)))
	}
	if !s.Next.IsZero() {
		text += fmt.Sprintf(", next in %s", duration.HumanDuration(max(0, s.Next.Sub(d.now).Round(time.Second))))
	}
	if s.Output != "" {
		text += ": " + strings.TrimSpace(s.Output)
	}
	return text
}

// probeTarget describes the target of a probe, in the words of kubectl.
func probeTarget(p *corev1.Probe) string {
	switch {
	case p.Exec != nil:
		return fmt.Sprintf("exec %v", p.Exec.Command)
	case p.HTTPGet != nil:
		return fmt.Sprintf("http-get %s://%s%s", strings.ToLower(string(p.HTTPGet.Scheme)),
			net.JoinHostPort(p.HTTPGet.Host, p.HTTPGet.Port.String()), p.HTTPGet.Path)
	case p.TCPSocket != nil:
		return "tcp-socket " + net.JoinHostPort(p.TCPSocket.Host, p.TCPSocket.Port.String())
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = " " + *p.GRPC.Service
		}
		return fmt.Sprintf("grpc :%d%s", p.GRPC.Port, service)
	}
	return "unknown"
}
