package apiserver

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// annotationLabels lists the labels of a Node that clients of the API of this machine have set. Only those are removed from it again.
const annotationLabels = "monopod.dev/node-labels"

// reported returns the Node that an API server shows. It gets none of the annotations that clients of this machine have set, and no label that
// the server would refuse: with it, it would refuse the whole Node.
func reported(name string, written map[string]string, taints []corev1.Taint, f *Facts) *corev1.Node {
	facts := *f
	facts.Set.Labels = maps.Clone(f.Set.Labels)
	maps.DeleteFunc(facts.Set.Labels, func(key, _ string) bool { return !maySet(key) })
	n := NewNode(name, written, taints, &facts)
	if len(facts.Set.Labels) > 0 {
		n.Annotations[annotationLabels] = strings.Join(slices.Sorted(maps.Keys(facts.Set.Labels)), ",")
	}
	return n
}

// keepReported keeps what the Node of an API server has from clients of this machine, while it is not known here what they have set.
func keepReported(want, have *corev1.Node) {
	if have == nil || have.Annotations[annotationLabels] == "" {
		return
	}
	was := have.Annotations[annotationLabels]
	want.Annotations[annotationLabels] = was
	for key := range strings.SplitSeq(was, ",") {
		value, is := have.Labels[key]
		if _, wanted := want.Labels[key]; is && !wanted {
			want.Labels[key] = value
		}
	}
}

// maySet reports whether the admission plug-in NodeRestriction allows a node to set a label of its Node.
func maySet(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	within := func(all ...string) bool {
		return slices.ContainsFunc(all, func(n string) bool { return namespace == n || strings.HasSuffix(namespace, "."+n) })
	}
	switch {
	case !found:
		return true
	case within(corev1.LabelNamespaceNodeRestriction):
		return false
	case !within("kubernetes.io", "k8s.io"), within(corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode):
		return true
	}
	return slices.Contains([]string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
	}, key)
}

// labelPatch returns the changes of labels and annotations that bring the labels of a Node to the wanted ones, and remove those that clients of
// this machine have removed.
func labelPatch(want, have *corev1.Node) (labels, annotations map[string]any) {
	labels, annotations = lacking(want.Labels, have.Labels), map[string]any{}
	set, was := want.Annotations[annotationLabels], have.Annotations[annotationLabels]
	for key := range strings.SplitSeq(was, ",") {
		_, is := have.Labels[key]
		if _, stays := want.Labels[key]; is && !stays {
			labels[key] = nil
		}
	}
	switch set {
	case was:
	case "":
		annotations[annotationLabels] = nil
	default:
		annotations[annotationLabels] = set
	}
	return labels, annotations
}
