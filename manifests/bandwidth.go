package manifests

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/quantity"
)

// Annotations that limit what a pod sends and receives, as Kubernetes spells them.
const (
	IngressBandwidth = "kubernetes.io/ingress-bandwidth"
	EgressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// Bandwidth is what a pod may receive and send, in bits per second; 0: as much as it can.
type Bandwidth struct{ Ingress, Egress int64 }

// PodBandwidth returns the limits that the annotations of a pod set.
func PodBandwidth(pod *corev1.Pod) (b Bandwidth, err error) {
	for name, limit := range map[string]*int64{IngressBandwidth: &b.Ingress, EgressBandwidth: &b.Egress} {
		value, set := pod.Annotations[name]
		if !set {
			continue
		}
		if *limit, err = ParseBandwidth(value); err != nil {
			return Bandwidth{}, fmt.Errorf("annotation %s: %w", name, err)
		}
	}
	return b, nil
}

// ParseBandwidth takes 1k to 1P bits per second, the bounds of kubelet.
func ParseBandwidth(value string) (int64, error) {
	q, err := quantity.Parse(value)
	switch {
	case err != nil:
		return 0, err
	case q.Value() < 1000:
		return 0, fmt.Errorf("resource is unreasonably small (< 1kbit)")
	case q.Value() > 1e15:
		return 0, fmt.Errorf("resource is unreasonably large (> 1Pbit)")
	}
	return q.Value(), nil
}
