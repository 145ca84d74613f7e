package apiserver

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons of pods that are bound to this node and do not run here.
const (
	// ReasonNotSupported is of pods that this machine can never run as they are written.
	ReasonNotSupported = "NotSupported"
	// ReasonNameTaken is of pods that wait because a manifest of this machine has one of their name.
	ReasonNameTaken = "NameTaken"
)

// Refusal is why a pod that is bound to this node does not run here.
type Refusal struct {
	Reason, Message string
	pod             *corev1.Pod
}

// Reference is of the pod.
func (r *Refusal) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.pod.Namespace, Name: r.pod.Name, UID: r.pod.UID}
}

// local is the pod as one that waits here, with the reason. It is no failure: a controller would replace it at once by another one
// that is refused, and one that waits can run after an upgrade.
func (r *Refusal) local() Local {
	p := &corev1.Pod{ObjectMeta: r.pod.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: r.Reason, Message: r.Message}}
	for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionFalse, Reason: r.Reason, Message: r.Message, LastTransitionTime: r.pod.CreationTimestamp,
		})
	}
	return Local{Pod: p, Digest: digest(&p.Status)}
}

// checked is what came of looking whether a pod can run here.
type checked struct {
	pod     *corev1.Pod
	refused error
}

// refusals is what is refused of the pods that are bound to this node.
type refusals struct {
	// leftOut are those that are not asked to run, by uid.
	leftOut map[types.UID]bool
	// lines says why, one each.
	lines []string
}

// refuse finds the pods that cannot run here, or not now, has their status say why, and tells of those that were not known as such. It is
// never about one of which something is here: whatever is wrong with it, that goes on.
func (g *gatherer) refuse(pods map[Key]*corev1.Pod, local []*corev1.Pod) refusals {
	out, all := refusals{leftOut: map[types.UID]bool{}}, map[types.UID]*Refusal{}
	here, taken := map[types.UID]bool{}, map[Key]bool{}
	for _, p := range local {
		here[p.UID] = true
		taken[Key{p.Namespace, p.Name}] = p.Annotations[annotationSource] != SourceName
	}
	known := map[types.UID]checked{}
	for key, p := range pods {
		if here[p.UID] || p.DeletionTimestamp != nil || finished(&p.Status) {
			continue
		}
		c, ok := g.checked[p.UID]
		if !ok || c.pod != p {
			doc, _, _ := boundDocument(p)
			c = checked{p, g.cfg.Check(doc)}
		}
		known[p.UID] = c
		switch {
		case c.refused != nil:
			r := &Refusal{ReasonNotSupported, "monopod cannot run this pod: " + clip(c.refused.Error()), p}
			all[p.UID], out.leftOut[p.UID] = r, true
			out.lines = append(out.lines, "pod "+key.String()+": "+clip(c.refused.Error()))
		case taken[key]:
			all[p.UID] = &Refusal{ReasonNameTaken, "a manifest on node " + g.cfg.NodeName + " has a pod of this name, which goes before it", p}
		}
	}
	g.checked = known
	for _, r := range g.store.refuse(all) {
		g.cfg.Refused(r)
	}
	return out
}

// refuse notes which pods do not run here, and returns those of which that is new.
func (s *store) refuse(all map[types.UID]*Refusal) (news []*Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range all {
		if was := s.refused[uid]; was == nil || was.Reason != r.Reason || was.Message != r.Message {
			news = append(news, r)
		}
	}
	if len(news) > 0 || len(all) != len(s.refused) {
		poke(s.changed)
	}
	s.refused = all
	return news
}

// refusals returns the pods that do not run here.
func (s *store) refusals() map[types.UID]*Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.refused)
}

// Refusals are the pods that are bound to this node and do not run here now.
func (a *Agent) Refusals() []*Refusal { return slices.Collect(maps.Values(a.store.refusals())) }
