package apiserver

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

// RejectedError is why a kubelet would not admit a pod, ever: such a pod has failed.
type RejectedError struct{ Reason, Message string }

func (e *RejectedError) Error() string { return e.Message }

// rejection is the same of a pod that was asked to run.
type rejection struct{ reason, message string }

// otherMachine returns why a pod is for another operating system or architecture, in the words of a kubelet; nil: it is for this one. It
// looks at the pod on the server: the document made from it is scheduled already and has no such fields.
func (c *Config) otherMachine(p *corev1.Pod) error {
	if label, ok := p.Spec.NodeSelector[corev1.LabelOSStable]; ok && label != string(corev1.Linux) {
		return &RejectedError{mirror.ReasonPodOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != corev1.Linux {
		return &RejectedError{mirror.ReasonPodOS, "Failed to admit pod as the OS field doesn't match node OS"}
	}
	here := c.Platform
	here.Arch = cmp.Or(c.Labels[corev1.LabelArchStable], here.Arch)
	if m := here.Mismatch(&p.Spec); m != nil {
		return &RejectedError{mirror.ReasonNodeAffinity, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: " + m.String()}
	}
	return nil
}

// Refusal is why a pod that is bound to this node does not run here.
type Refusal struct {
	Reason, Message string
	// Failed reports that the pod never will run: it gets the phase Failed, as with a kubelet.
	Failed bool
	pod    *corev1.Pod
}

// Reference is of the pod.
func (r *Refusal) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.pod.Namespace, Name: r.pod.Name, UID: r.pod.UID}
}

// local is the pod as one that waits here, with the reason, unless a kubelet rejects such pods, too. It is no failure: a controller would replace it at once by another one
// that is refused, and one that waits can run after an upgrade.
func (r *Refusal) local() mirror.Local {
	if r.Failed {
		p := &corev1.Pod{ObjectMeta: r.pod.ObjectMeta, Spec: r.pod.Spec, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: r.Reason, Message: "Pod was rejected: " + r.Message}}
		p.Status.ObservedGeneration = r.pod.Generation
		return mirror.Local{Pod: p, Digest: mirror.Digest(&p.Status)}
	}
	p := &corev1.Pod{ObjectMeta: r.pod.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: r.Reason, Message: r.Message}}
	for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionFalse, Reason: r.Reason, Message: r.Message, LastTransitionTime: r.pod.CreationTimestamp,
		})
	}
	return mirror.Local{Pod: p, Digest: mirror.Digest(&p.Status)}
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
	// lines returns the reasons, one line each.
	lines []string
}

// refuse finds the pods that cannot run here, or not now, writes the reason into their status, and reports those that are new. A pod that
// exists on this machine is never among them: it keeps running.
func (g *gatherer) refuse(pods map[manifests.Key]*corev1.Pod, local []*corev1.Pod) refusals {
	out, all := refusals{leftOut: map[types.UID]bool{}}, map[types.UID]*Refusal{}
	here, runs, taken := map[types.UID]bool{}, map[types.UID]bool{}, map[manifests.Key]bool{}
	for _, p := range local {
		here[p.UID], runs[p.UID] = true, p.Status.StartTime != nil
		taken[manifests.Key{Namespace: p.Namespace, Name: p.Name}] = p.Annotations[mirror.AnnotationSource] != mirror.SourceName
	}
	known, rejected := map[types.UID]checked{}, g.store.rejections(pods, runs)
	for key, p := range pods {
		if why, ok := rejected[p.UID]; ok && p.DeletionTimestamp == nil {
			all[p.UID], out.leftOut[p.UID] = &Refusal{Reason: why.reason, Message: why.message, Failed: true, pod: p}, true
			continue
		}
		if here[p.UID] || p.DeletionTimestamp != nil || mirror.Finished(&p.Status) {
			continue
		}
		c, ok := g.checked[p.UID]
		if !ok || c.pod != p {
			doc, _, _ := boundDocument(p)
			if c = (checked{p, g.cfg.otherMachine(p)}); c.refused == nil {
				c.refused = g.cfg.Check(doc)
			}
		}
		known[p.UID] = c
		never, isNever := errors.AsType[*RejectedError](c.refused)
		switch {
		case isNever:
			all[p.UID], out.leftOut[p.UID] = &Refusal{Reason: never.Reason, Message: client.Clip(never.Message), Failed: true, pod: p}, true
			out.lines = append(out.lines, "pod "+key.String()+": "+client.Clip(never.Message))
		case c.refused != nil:
			r := &Refusal{Reason: mirror.ReasonNotSupported, Message: "monopod cannot run this pod: " + client.Clip(c.refused.Error()), pod: p}
			all[p.UID], out.leftOut[p.UID] = r, true
			out.lines = append(out.lines, "pod "+key.String()+": "+client.Clip(c.refused.Error()))
		case taken[key]:
			all[p.UID] = &Refusal{Reason: mirror.ReasonNameTaken, Message: "a manifest on node " + g.cfg.NodeName + " already defines a pod of this name, which takes precedence", pod: p}
		}
	}
	g.checked = known
	for _, r := range g.store.refuse(all) {
		g.cfg.Refused(r)
	}
	return out
}

// refuse records which pods do not run here, and returns the new ones.
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
