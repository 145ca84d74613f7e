package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

// replicaSet is a number of pods from one template.
type replicaSet struct {
	template corev1.PodTemplateSpec
	replicas int
	// first is the ordinal of the first pod.
	first int
	// label is the label for the revision of the template.
	label string
	// atOnce reports that an edit is applied to all pods at the same time.
	atOnce bool
	// ordered reports that a pod is created only when all pods before it are ready, and removed only when all pods after it are gone.
	ordered bool
	// descending reports that an edit is applied to the pod with the highest ordinal first, and never to pods below partition.
	descending bool
	partition  int
	// edit completes the pod with an ordinal.
	edit func(p *corev1.Pod, ordinal int)
}

// replicas adds numbered pods. An edit of the template is applied to one pod after the other: the next one follows when all updated pods
// are ready. Pods that are not ready come first, so that a bad edit can be fixed.
func (e *expansion) replicas(w Workload, r replicaSet) {
	made, rev := make([]*manifests.Pod, r.replicas), stamp{r.label, revision(r.template)}
	for i := range made {
		var edit func(*corev1.Pod)
		if r.edit != nil {
			edit = func(p *corev1.Pod) { r.edit(p, r.first+i) }
		}
		p, err := e.pod(w, r.template, r.name(w, i), rev, edit)
		if err != nil {
			e.problem(w, err)
			e.keep(w)
			return
		}
		made[i] = p
	}
	e.out.Pods = append(e.out.Pods, e.roll(w, r, made)...)
	if r.ordered {
		e.shrink(w, r)
	}
}

// keep leaves the pods of a workload as they are.
func (e *expansion) keep(w Workload) {
	var all []*manifests.Pod
	for _, c := range e.owned(w) {
		all = append(all, c.Pod)
	}
	slices.SortFunc(all, byName)
	e.out.Pods = append(e.out.Pods, all...)
}

// rest keeps the existing pods of a workload, its claims and its state.
func (e *expansion) rest(w Workload) {
	ids := []string{w.id()}
	if j := e.State.Jobs[w.id()]; j != nil {
		e.out.State.Jobs[w.id()] = j
	}
	if c := e.State.Crons[w.id()]; c != nil {
		e.out.State.Crons[w.id()] = c
		for _, r := range c.Runs {
			ids = append(ids, "Job "+w.Object.GetNamespace()+"/"+r.Name)
		}
	}
	var all []*manifests.Pod
	for _, c := range e.Pods {
		if c.Pod != nil && slices.ContainsFunc(ownersOf(c.Pod), func(id string) bool { return slices.Contains(ids, id) }) {
			all = append(all, c.Pod)
		}
	}
	slices.SortFunc(all, byName)
	e.out.Pods = append(e.out.Pods, all...)
	if s, ok := w.Object.(*appsv1.StatefulSet); ok {
		for _, p := range all {
			e.claims(w, s, p.Object.Name)
		}
	}
}

func (r replicaSet) name(w Workload, i int) string {
	return w.Object.GetName() + "-" + strconv.Itoa(r.first+i)
}

// roll chooses for each ordinal the new pod, the existing one, or none yet.
func (e *expansion) roll(w Workload, r replicaSet, made []*manifests.Pod) []*manifests.Pod {
	now := make([]Current, len(made))
	for i := range made {
		now[i] = e.current(w, r.name(w, i))
	}
	next := r.next(made, now)
	var out []*manifests.Pod
	for i, p := range made {
		old := now[i].Pod
		switch {
		case old == nil && r.ordered && !allReady(now[:i]):
			return out // all pods after it wait too
		case old != nil && !sameRevision(r, old, p) && !r.atOnce && i != next:
			out = append(out, old)
		default:
			out = append(out, p)
		}
	}
	return out
}

func sameRevision(r replicaSet, a, b *manifests.Pod) bool {
	return a.Object.Labels[r.label] == b.Object.Labels[r.label]
}

func allReady(pods []Current) bool {
	return !slices.ContainsFunc(pods, func(c Current) bool { return c.Pod == nil || !c.Ready })
}

// next returns which of the pods with an old template is updated now; -1 for none.
func (r replicaSet) next(made []*manifests.Pod, now []Current) int {
	order := make([]int, 0, len(made))
	for i := range made {
		order = append(order, i)
	}
	if r.descending {
		slices.Reverse(order)
	}
	ready, unready := -1, -1
	for _, i := range order {
		switch {
		case now[i].Pod == nil:
			continue
		case sameRevision(r, now[i].Pod, made[i]):
			if !now[i].Ready || !now[i].Settled {
				return -1 // it has just been updated, or the template is bad
			}
		case r.descending && r.first+i < r.partition:
			continue
		case !now[i].Ready && unready < 0:
			unready = i
		case now[i].Ready && ready < 0:
			ready = i
		}
	}
	if unready >= 0 {
		return unready
	}
	return ready
}

// shrink keeps the surplus pods of an ordered set, except for the last one.
func (e *expansion) shrink(w Workload, r replicaSet) {
	var extra []int
	for name := range e.owned(w) {
		number, _ := strings.CutPrefix(name, w.Object.GetName()+"-")
		if n, err := strconv.Atoi(number); err == nil && n >= r.first+r.replicas {
			extra = append(extra, n)
		}
	}
	slices.Sort(extra)
	for i, n := range extra {
		if i < len(extra)-1 {
			e.out.Pods = append(e.out.Pods, e.current(w, fmt.Sprintf("%s-%d", w.Object.GetName(), n)).Pod)
		}
	}
}

// statefulSet adds the pods of a StatefulSet: with host names in the domain of its Service, a claim for each claim template, and in order
// unless podManagementPolicy is Parallel.
func (e *expansion) statefulSet(w Workload, s *appsv1.StatefulSet) {
	r := replicaSet{
		template: s.Spec.Template, replicas: number(s.Spec.Replicas), label: appsv1.ControllerRevisionHashLabelKey, descending: true,
		ordered: s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement,
	}
	if s.Spec.Ordinals != nil {
		r.first = int(s.Spec.Ordinals.Start)
	}
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		r.partition = int(*u.Partition)
	}
	r.edit = func(p *corev1.Pod, ordinal int) {
		p.Labels[appsv1.StatefulSetPodNameLabel] = p.Name
		p.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
		p.Spec.Hostname, p.Spec.Subdomain = p.Name, s.Spec.ServiceName
		for i := range s.Spec.VolumeClaimTemplates {
			claimVolume(&p.Spec, s.Spec.VolumeClaimTemplates[i].Name, p.Name)
		}
	}
	for i := range r.replicas {
		e.claims(w, s, r.name(w, i))
	}
	e.replicas(w, r)
}

// claims adds the claims of one pod.
func (e *expansion) claims(w Workload, s *appsv1.StatefulSet, pod string) {
	for i := range s.Spec.VolumeClaimTemplates {
		c := s.Spec.VolumeClaimTemplates[i].DeepCopy()
		c.APIVersion, c.Kind, c.Status = "v1", "PersistentVolumeClaim", corev1.PersistentVolumeClaimStatus{}
		c.Name, c.Namespace = c.Name+"-"+pod, s.Namespace
		if keepsClaims(s) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, manifests.AnnotationRetain, "true")
		}
		e.out.Claims = append(e.out.Claims, Claim{Object: c, Origin: w.Origin})
	}
}

// keepsClaims reports whether the claims of a StatefulSet are retained after it is deleted or scaled down. Both is the default.
func keepsClaims(s *appsv1.StatefulSet) bool {
	p := s.Spec.PersistentVolumeClaimRetentionPolicy
	return p == nil || p.WhenDeleted != appsv1.DeletePersistentVolumeClaimRetentionPolicyType || p.WhenScaled != appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// claimVolume replaces the volume with a template's name by the pod's claim.
func claimVolume(spec *corev1.PodSpec, template, pod string) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == template })
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: template, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: template + "-" + pod},
	}})
}
