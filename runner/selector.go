package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// ReasonNodeAffinity is a kubelet's reason to turn a pod down that asks for another node.
const ReasonNodeAffinity = "NodeAffinity"

// mismatch says why a pod does not fit on a node of this name with these labels; nil: it does.
func mismatch(spec *corev1.PodSpec, name string, node labels.Set) *Held {
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
		why = "nodeLabels meets no term of its node affinity"
	default:
		return nil
	}
	return &Held{ReasonNodeAffinity, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: " + why}
}

// selectsAlike says that two pods ask for the same nodes.
func selectsAlike(a, b *corev1.PodSpec) bool {
	return maps.Equal(a.NodeSelector, b.NodeSelector) && equality.Semantic.DeepEqual(required(a), required(b))
}

func required(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// affine says that one of the terms is met. A term without demands is met by nobody.
func affine(spec *corev1.PodSpec, name string, node labels.Set) bool {
	r := required(spec)
	return r == nil || slices.ContainsFunc(r.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && meets(t.MatchExpressions, node) && meets(t.MatchFields, labels.Set{"metadata.name": name})
	})
}

func meets(demands []corev1.NodeSelectorRequirement, node labels.Set) bool {
	return !slices.ContainsFunc(demands, func(d corev1.NodeSelectorRequirement) bool {
		r, err := requirement(d)
		return err != nil || !r.Matches(node)
	})
}

func requirement(d corev1.NodeSelectorRequirement) (*labels.Requirement, error) {
	ops := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
		corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	op, ok := ops[d.Operator]
	if !ok {
		return nil, fmt.Errorf("%q is not an operator", d.Operator)
	}
	return labels.NewRequirement(d.Key, op, d.Values)
}
