package admit

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// ReasonNodeAffinity is the reason with which the kubelet rejects a pod for another node.
const ReasonNodeAffinity = "NodeAffinity"

// mismatch returns why a pod does not match this machine; nil if it does. The platform of the machine counts even without any
// configuration.
func (d *admitter) mismatch(spec *corev1.PodSpec) *runner.Held {
	if d.Labels != nil {
		return mismatch(spec, d.Node, d.Labels)
	}
	if m := d.Platform.Mismatch(spec); m != nil {
		return &runner.Held{Reason: ReasonNodeAffinity, Message: nodeAffinityFailed + m.String(), Cause: cause.Cause{Kind: cause.NodeMismatch}, Final: true}
	}
	return nil
}

const nodeAffinityFailed = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: "

// mismatch returns why a pod does not match a node with this name and these labels; nil if it does.
func mismatch(spec *corev1.PodSpec, name string, node labels.Set) *runner.Held {
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if v, ok := node[key]; !ok || v != spec.NodeSelector[key] {
			missing = append(missing, key+"="+spec.NodeSelector[key])
		}
	}
	why := ""
	switch {
	case len(missing) > 0:
		why = "nodeLabels has no " + strings.Join(missing, ", ")
	case !affine(spec, name, node):
		why = "nodeLabels matches no term of its node affinity"
	default:
		return nil
	}
	return &runner.Held{Reason: ReasonNodeAffinity, Message: nodeAffinityFailed + why, Cause: cause.Cause{Kind: cause.NodeMismatch}, Final: true}
}

// selectsAlike reports whether two pods select the same nodes.
func selectsAlike(a, b *corev1.PodSpec) bool {
	return maps.Equal(a.NodeSelector, b.NodeSelector) && equality.Semantic.DeepEqual(manifests.RequiredNodes(a), manifests.RequiredNodes(b))
}

// affine reports whether one of the terms matches. A term without requirements matches no node.
func affine(spec *corev1.PodSpec, name string, node labels.Set) bool {
	r := manifests.RequiredNodes(spec)
	return r == nil || slices.ContainsFunc(r.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && meets(t.MatchExpressions, node) && meets(t.MatchFields, labels.Set{"metadata.name": name})
	})
}

func meets(demands []corev1.NodeSelectorRequirement, node labels.Set) bool {
	return !slices.ContainsFunc(demands, func(d corev1.NodeSelectorRequirement) bool { return !manifests.MeetsRequirement(d, node) })
}
