package manifests

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodBandwidth(t *testing.T) {
	tests := []struct {
		name        string
		annotations map[string]string
		want        Bandwidth
		err         string
	}{
		{name: "none"},
		{name: "both", annotations: map[string]string{IngressBandwidth: "10M", EgressBandwidth: "1Gi"}, want: Bandwidth{10e6, 1 << 30}},
		{name: "least", annotations: map[string]string{EgressBandwidth: "1k"}, want: Bandwidth{Egress: 1000}},
		{name: "too small", annotations: map[string]string{EgressBandwidth: "999"}, err: "unreasonably small"},
		{name: "too large", annotations: map[string]string{IngressBandwidth: "2P"}, err: "unreasonably large"},
		{name: "no quantity", annotations: map[string]string{IngressBandwidth: "fast"}, err: IngressBandwidth},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PodBandwidth(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations}})
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("PodBandwidth = %v, %v, want %v, %q", got, err, tt.want, tt.err)
			}
		})
	}
}
