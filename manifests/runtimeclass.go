package manifests

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Messages of the API server's admission plugin for an overhead that differs from that of the pod's RuntimeClass.
const (
	NoOverhead    = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
	otherOverhead = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
)

// Runtime is what a RuntimeClass means for a pod.
type Runtime struct {
	// Handler names the OCI runtime; empty: the usual one.
	Handler string
	// Overhead is what the runtime needs itself, for each pod.
	Overhead corev1.ResourceList
}

// RuntimeOf resolves the RuntimeClass of a pod, as the admission plugin of the API server does. It fails while the
// class does not exist, or when the pod has an overhead of its own.
func RuntimeOf(p *Pod) (Runtime, error) {
	name := p.Object.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return Runtime{}, nil
	}
	if p.Refs == nil || p.Refs.RuntimeClass == nil {
		return Runtime{}, fmt.Errorf("RuntimeClass %q not found", *name)
	}
	class, own := p.Refs.RuntimeClass, p.Object.Spec.Overhead
	switch {
	case class.Overhead == nil && len(own) > 0:
		return Runtime{}, fmt.Errorf("RuntimeClass %q: %s", *name, NoOverhead)
	case class.Overhead == nil:
		return Runtime{Handler: class.Handler}, nil
	case len(own) > 0 && !equality.Semantic.DeepEqual(own, class.Overhead.PodFixed):
		return Runtime{}, fmt.Errorf("RuntimeClass %q: %s", *name, otherOverhead)
	}
	return Runtime{Handler: class.Handler, Overhead: class.Overhead.PodFixed}, nil
}
