package daemon

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/objects"
	"monopod/internal/version"
	"monopod/node"
	"monopod/runner/workload"
)

// objects returns all objects besides pods, and this machine, as clients see them.
func (a *App) objects() []metav1.Object {
	b := a.Board
	views, blind := b.Pods()
	f := objects.Facts{Revision: workload.Revision}
	for _, v := range views {
		f.Pods = append(f.Pods, v.Pod)
	}
	b.Mu.Lock()
	d := b.Desired
	f.Ends, f.LastRuns = b.Jobs, b.LastRuns
	b.Mu.Unlock()
	all := []metav1.Object{a.machineObject(blind)}
	for _, o := range slices.Concat(d.Objects, d.Workloads) {
		all = append(all, f.Show(o, node.AnnotationSource, node.Position(o.Origin)))
	}
	return all
}

// machineObject is this machine as a v1 Node, as far as the agent knows it.
func (a *App) machineObject(blind error) *corev1.Node {
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: a.cfg.NodeName}}
	n.Status.NodeInfo.KubeletVersion = version.String()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready"}
	if blind != nil {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "RuntimeDown", blind.Error()
	}
	n.Status.Conditions = append(a.strain.conditions(), ready)
	if s := a.gate.Schedule(); s.Cordoned || s.Drained {
		n.Spec.Unschedulable = true
	}
	return n
}
