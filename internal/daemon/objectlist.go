package daemon

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/kubeview/endpoints"
	"monopod/internal/daemon/state"
	"monopod/internal/objects"
	"monopod/internal/version"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/admission"
	"monopod/runner/workload"
)

// objectList lists the objects besides pods, as clients see them.
type objectList struct {
	node  string
	state *state.Store
	// services returns the Services with their addresses; if nil, they have none.
	services func() map[manifests.Key]*corev1.Service
	// matches reports whether pods with a spec select this machine; if nil, all do.
	matches func(*corev1.PodSpec) bool
	gate    *admission.Controller
	// pressure returns the pressure conditions of the node.
	pressure func() []corev1.NodeCondition
}

// list returns the node and all desired objects besides pods.
func (l *objectList) list() []metav1.Object {
	views, blind := l.state.Pods()
	f := objects.Facts{Revision: workload.Revision, Matches: l.matches, Pending: state.Pending(views)}
	for _, v := range views {
		f.Pods = append(f.Pods, v.Pod)
	}
	f.Ends, f.LastRuns = l.state.Workloads.Finished(), l.state.Workloads.LastRuns()
	d, _ := l.state.Desired()
	all := []metav1.Object{l.machine(blind)}
	var assigned map[manifests.Key]*corev1.Service
	if l.services != nil {
		assigned = l.services()
	}
	e, _ := l.state.Endpoints()
	words := endpoints.Words(e)
	for _, o := range slices.Concat(d.Objects, d.Workloads) {
		notes := map[string]string{node.AnnotationSource: node.Position(o.Origin), node.AnnotationSpace: string(l.state.Spaces.Of(o.Origin.Source))}
		if s, ok := o.Object.(*corev1.Service); ok {
			if given := assigned[manifests.Key{Namespace: s.Namespace, Name: s.Name}]; given != nil {
				shown := *o
				shown.Object = given
				o, s = &shown, given
			}
			notes[node.AnnotationEndpoints] = words(s)
		}
		all = append(all, f.Show(o, notes))
	}
	return all
}

// machine returns this machine as a Node. blind is why containers cannot be seen.
func (l *objectList) machine(blind error) *corev1.Node {
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: l.node}}
	n.Status.NodeInfo.KubeletVersion = version.String()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready"}
	if blind != nil {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "RuntimeDown", blind.Error()
	}
	n.Status.Conditions = append(l.pressure(), ready)
	if s := l.gate.Schedule(); s.Cordoned || s.Drained {
		n.Spec.Unschedulable = true
	}
	return n
}
