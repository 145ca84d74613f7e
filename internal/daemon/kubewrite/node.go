package kubewrite

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/kinds"
)

// comparedFromNow warns a client that sets the first label of the Node.
const comparedFromNow = "this is the first label that is set on this node: from now on, new pods wait whose nodeSelector or required node affinity does not match its labels"

// node plans a write to the Node, of which the cordon, labels and annotations can change.
func (w *Writer) node(p *plan, kind *kinds.Kind, o kinds.Object) error {
	wanted, ok := o.(*corev1.Node)
	if !ok || w.cfg.Node == nil || w.cfg.Cordon == nil || w.cfg.NodeMeta == nil {
		return forbidden(kind, o.GetName(), "the Node cannot be changed")
	}
	shown := w.cfg.Node()
	if shown == nil || shown.Name != wanted.Name {
		return apierrors.NewNotFound(kind.Resource().GroupResource(), o.GetName())
	}
	switch {
	case !slices.EqualFunc(taints(shown), taints(wanted), sameTaint):
		return forbidden(kind, o.GetName(), "node taints are not supported; to stop new pods, use kubectl cordon")
	case !equality.Semantic.DeepEqual(fixedSpec(shown), fixedSpec(wanted)):
		return forbidden(kind, o.GetName(), "of the spec of the Node, only unschedulable can be changed")
	case len(wanted.Finalizers)+len(wanted.OwnerReferences) > 0:
		return forbidden(kind, o.GetName(), "the Node can have neither finalizers nor owners: it cannot be deleted")
	}
	was := w.cfg.NodeMeta.Current()
	next, err := was.Wanted(shown, wanted, w.cfg.NodeLabels)
	if err != nil {
		return forbidden(kind, o.GetName(), err.Error())
	}
	if shown.Spec.Unschedulable != wanted.Spec.Unschedulable {
		p.cordon = &wanted.Spec.Unschedulable
	}
	if !next.SameValues(was) || p.cordon == nil && !next.Equal(was) { // the manager of a cordon is not stored
		if err := next.Check(); err != nil {
			return apierrors.NewRequestEntityTooLargeError(err.Error())
		}
		p.nodeMeta = &next
	}
	if len(w.cfg.NodeLabels)+len(was.Labels) == 0 && !was.LabelsLost && len(next.Labels) > 0 {
		p.warnings = append(p.warnings, comparedFromNow)
	}
	return nil
}

// changeNode carries out the changes of the Node. Both are stored on their own: if the second fails, the first stays, and the client gets the
// error.
func (w *Writer) changeNode(p *plan) error {
	if p.nodeMeta != nil {
		if err := w.cfg.NodeMeta.Set(*p.nodeMeta); err != nil {
			return fmt.Errorf("change labels and annotations of the Node: %w", err)
		}
	}
	if p.cordon != nil {
		if err := w.cfg.Cordon(*p.cordon); err != nil {
			return fmt.Errorf("change spec.unschedulable of the Node: %w", err)
		}
	}
	return nil
}

// fixedSpec returns the part of the spec of a Node that clients cannot change, without taints.
func fixedSpec(n *corev1.Node) corev1.NodeSpec {
	s := n.Spec
	s.Taints, s.Unschedulable = nil, false
	return s
}

// taints returns the taints of a Node without the cordon's taint, which is set and removed with the cordon.
func taints(n *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
}

func sameTaint(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
