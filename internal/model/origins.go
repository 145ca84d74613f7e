package model

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/spaces"
)

// Origins has the sources of pods and Services, by which boundaries between spaces decide what belongs together. A nil Origins has none.
type Origins struct {
	Spaces *manifests.Spaces
	// Pods and Services are the sources of those that exist.
	Pods, Services map[manifests.Key]string
}

// Selects reports whether a Service may select a pod: its source must see it.
func (o *Origins) Selects(s *corev1.Service, p *corev1.Pod) bool {
	if o == nil || o.Spaces == nil {
		return true
	}
	return o.Spaces.Sees(o.owner(s), o.source(p), "Pod", p.Namespace)
}

// SameSpace reports whether two pods are of one space.
func (o *Origins) SameSpace(a, b *corev1.Pod) bool { return o == nil || o.space(a) == o.space(b) }

// Local reports whether a pod is of the local space.
func (o *Origins) Local(p *corev1.Pod) bool { return o == nil || o.space(p) == spaces.Local }

// Shows reports whether pods of a source see a Service. All see that of the Kubernetes API, which no source defines.
func (o *Origins) Shows(s *corev1.Service, source string) bool {
	if o == nil {
		return true
	}
	owner := o.owner(s)
	return owner == "" || o.Spaces.Sees(source, owner, "Service", s.Namespace)
}

// Offers reports whether a Service is of the local space, as is that of the Kubernetes API, which no source defines.
func (o *Origins) Offers(s *corev1.Service) bool {
	if o == nil {
		return true
	}
	owner := o.owner(s)
	return owner == "" || o.Spaces.Of(owner) == spaces.Local
}

// owner returns the source of a Service; empty: none defines it.
func (o *Origins) owner(s *corev1.Service) string {
	return o.Services[manifests.Key{Namespace: s.Namespace, Name: s.Name}]
}

func (o *Origins) space(p *corev1.Pod) spaces.Space { return o.Spaces.Of(o.source(p)) }

func (o *Origins) source(p *corev1.Pod) string {
	return o.Pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}]
}
