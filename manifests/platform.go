package manifests

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Platform is what a machine can run, in the words of Go and of Kubernetes: linux, amd64. An empty part is unknown and fits all pods.
type Platform struct{ OS, Arch string }

// Labels are the platform labels that every node has without configuration.
func (p Platform) Labels() map[string]string {
	all := map[string]string{
		corev1.LabelOSStable: p.OS, "beta.kubernetes.io/os": p.OS, corev1.LabelArchStable: p.Arch, "beta.kubernetes.io/arch": p.Arch,
	}
	maps.DeleteFunc(all, func(_, v string) bool { return v == "" })
	return all
}

// PlatformMismatch is why a pod cannot run on a Platform: what it asks for, and what the platform has.
type PlatformMismatch struct {
	// Field is spec.os.name, spec.nodeSelector or spec.affinity.
	Field string
	// Label is the label that differs; empty for spec.os.name, and for terms of an affinity that differ in more than one.
	Label string
	Want  string
	Have  string
}

// String returns the mismatch in words.
func (m *PlatformMismatch) String() string {
	switch {
	case m.Label != "":
		return "it requires " + m.Label + "=" + m.Want + ", but this machine has " + m.Have
	case m.Want != "":
		return "it is for " + m.Want + ", but this machine has " + m.Have
	}
	return "no term of its node affinity matches a machine with " + m.Have
}

// Mismatch returns why a pod asks for another platform; nil: it does not. Of labels that are not the platform's nothing is known, so
// that whatever a pod asks of those is met.
func (p Platform) Mismatch(spec *corev1.PodSpec) *PlatformMismatch {
	if spec.OS != nil && p.OS != "" && string(spec.OS.Name) != p.OS {
		return &PlatformMismatch{Field: "spec.os.name", Want: string(spec.OS.Name), Have: p.OS}
	}
	if len(spec.NodeSelector) == 0 && spec.Affinity == nil {
		return nil
	}
	have := p.Labels()
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if v, known := have[key]; known && v != spec.NodeSelector[key] {
			return &PlatformMismatch{Field: "spec.nodeSelector", Label: key, Want: spec.NodeSelector[key], Have: v}
		}
	}
	required := RequiredNodes(spec)
	if required == nil || len(have) == 0 || slices.ContainsFunc(required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return mayMeet(t, have) }) {
		return nil
	}
	return &PlatformMismatch{Field: "spec.affinity", Have: strings.Trim(p.OS+"/"+p.Arch, "/")}
}

// mayMeet reports whether a term does not contradict known labels.
func mayMeet(t corev1.NodeSelectorTerm, known labels.Set) bool {
	return !slices.ContainsFunc(t.MatchExpressions, func(d corev1.NodeSelectorRequirement) bool {
		_, about := known[d.Key]
		return about && !MeetsRequirement(d, known)
	})
}

// RequiredNodes returns which nodes a pod may run on by its required node affinity; nil: any.
func RequiredNodes(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// MeetsRequirement reports whether a node with these labels meets a requirement. One that is not valid is never met.
func MeetsRequirement(d corev1.NodeSelectorRequirement, node labels.Set) bool {
	ops := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
		corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	op, ok := ops[d.Operator]
	if !ok {
		return false
	}
	r, err := labels.NewRequirement(d.Key, op, d.Values)
	return err == nil && r.Matches(node)
}
