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

// Node is what pods select.
type Node struct {
	// Name is the name of this machine, Labels are its labels. Without labels, all pods for its Platform match.
	Name   string
	Labels map[string]string
	// LabelsLost reports that the machine may have more labels than Labels.
	LabelsLost bool
	// Platform is the platform of the machine. Labels may contain a different one set by the operator.
	Platform manifests.Platform
}

// Matches reports whether pods with this spec match the node, or may match it once its labels are known.
func (n Node) Matches(spec *corev1.PodSpec) bool {
	h := n.mismatch(spec)
	return h == nil || h.Cause.Fault == cause.LabelsLost
}

// mismatch returns why a pod does not match the node; nil if it does. The platform of the machine counts even without any configuration.
func (n Node) mismatch(spec *corev1.PodSpec) *runner.Held {
	if unknown := n.unknown(spec); len(unknown) > 0 {
		return &runner.Held{
			Reason:  ReasonNodeAffinity,
			Message: "the labels that clients have set on the node are lost; set all of them again, in one request to the Kubernetes API: the pod selects by " + strings.Join(unknown, ", "),
			Cause:   cause.Cause{Kind: cause.NodeMismatch, Fault: cause.LabelsLost}, Final: true,
		}
	}
	if n.Labels != nil {
		return mismatch(spec, n.Name, n.Labels)
	}
	if m := n.Platform.Mismatch(spec); m != nil {
		return &runner.Held{Reason: ReasonNodeAffinity, Message: nodeAffinityFailed + m.String(), Cause: cause.Cause{Kind: cause.NodeMismatch}, Final: true}
	}
	return nil
}

// unknown returns the labels that a pod selects by, and of which it is not known whether the machine has them.
func (n Node) unknown(spec *corev1.PodSpec) []string {
	if !n.LabelsLost {
		return nil
	}
	keys := slices.Collect(maps.Keys(spec.NodeSelector))
	if r := manifests.RequiredNodes(spec); r != nil {
		for _, term := range r.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				keys = append(keys, e.Key)
			}
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool { _, known := n.Labels[key]; return known })
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
		why = "the node has no label " + strings.Join(missing, ", ")
	case !affine(spec, name, node):
		why = "the labels of the node match no term of its node affinity"
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
