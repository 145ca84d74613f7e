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
	"monopod/runner/workload/revisions"
)

// replicaSet is a number of pods from one template.
type replicaSet struct {
	template corev1.PodTemplateSpec
	// hash is the label value of pods of the template.
	hash     string
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
	// before is the template of pods below partition, which has the hash beforeHash; nil: the same as of the others.
	before     *corev1.PodTemplateSpec
	beforeHash string
	// frozen reports that an edit is not applied to existing pods.
	frozen bool
	// renews reports that a pod that is deleted is created again from the new template.
	renews bool
	// edit completes the pod with an ordinal.
	edit func(p *corev1.Pod, ordinal int)
}

func newReplicaSet(t corev1.PodTemplateSpec, replicas int, label string) replicaSet {
	return replicaSet{template: t, hash: revision(t), replicas: replicas, label: label}
}

// of returns the template of the pod with an index, and its hash.
func (r *replicaSet) of(i int) (corev1.PodTemplateSpec, string) {
	if r.before != nil && r.first+i < r.partition {
		return *r.before, r.beforeHash
	}
	return r.template, r.hash
}

// deployment adds the pods of a Deployment. While it is paused, pods that are missing are created from the template of the others, and none
// is updated.
func (e *expansion) deployment(w Workload, o *appsv1.Deployment) {
	r := newReplicaSet(o.Spec.Template, number(o.Spec.Replicas), appsv1.DefaultDeploymentUniqueLabelKey)
	r.atOnce = o.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	h := e.follow(w, &r)
	if o.Spec.Paused {
		last := e.active(w, &r, h)
		if last == nil {
			e.existing(w, &r)
			return
		}
		t, err := last.PodTemplate()
		if err != nil {
			e.problem(w, fmt.Errorf("revision %d: %w", last.Number, err))
			e.existing(w, &r)
			return
		}
		r.template, r.hash, r.frozen, r.atOnce = *t, last.Hash, true, false
	}
	e.replicas(w, r)
}

// follow adds the present template of a workload to its history, and returns it; nil if it has none, because it was created paused.
func (e *expansion) follow(w Workload, r *replicaSet) *revisions.History {
	doc := revisions.Document{Object: w.Object, Origin: w.Origin, UID: w.UID}
	used := map[string]bool{}
	for i := range r.replicas {
		if p := e.current(w, r.name(w, i)).Pod; p != nil {
			used[p.Object.Labels[r.label]] = true
		}
	}
	h := e.State.Histories[w.id()]
	if h == nil && used[r.hash] { // pods of a version of monopod that kept no history
		h = revisions.Adopt(doc, r.hash)
	}
	h = revisions.Follow(h, doc, r.hash)
	if h == nil {
		return nil
	}
	h = h.Trim(doc, len(e.Workloads), used)
	e.out.State.Histories[w.id()] = h
	return h
}

// active returns the revision of the existing pods if they have the same, else the last one; nil if none.
func (e *expansion) active(w Workload, r *replicaSet, h *revisions.History) *revisions.Revision {
	found := ""
	for i := range r.replicas {
		p := e.current(w, r.name(w, i)).Pod
		switch {
		case p == nil:
		case found != "" && found != p.Object.Labels[r.label]:
			return h.Latest()
		default:
			found = p.Object.Labels[r.label]
		}
	}
	if last := h.Find(found); last != nil {
		return last
	}
	return h.Latest()
}

// existing keeps the existing pods of a workload that has no template to create others from.
func (e *expansion) existing(w Workload, r *replicaSet) {
	for i := range r.replicas {
		if p := e.current(w, r.name(w, i)).Pod; p != nil {
			e.out.Pods = append(e.out.Pods, p)
		}
	}
}

func (e *expansion) daemonSet(w Workload, o *appsv1.DaemonSet) {
	r := newReplicaSet(o.Spec.Template, 1, appsv1.DefaultDaemonSetUniqueLabelKey)
	r.frozen, r.renews = o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType, true
	e.follow(w, &r)
	e.replicas(w, r)
}

// replicas adds numbered pods. An edit of the template is applied to one pod after the other: the next one follows when all updated pods
// are ready. Pods that are not ready come first, so that a bad edit can be fixed.
func (e *expansion) replicas(w Workload, r replicaSet) {
	made := make([]*manifests.Pod, r.replicas)
	for i := range made {
		t, hash := r.of(i)
		var edit func(*corev1.Pod)
		if r.edit != nil {
			edit = func(p *corev1.Pod) { r.edit(p, r.first+i) }
		}
		p, err := e.pod(w, t, r.name(w, i), stamp{r.label, hash}, edit)
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
	if h := e.State.Histories[w.id()]; h != nil {
		e.out.State.Histories[w.id()] = h
	}
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
		case old != nil && !sameRevision(r, old, p) && !r.atOnce && i != next && (!r.renews || !now[i].Deleted):
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
	if r.frozen {
		return -1
	}
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
		case now[i].Pod == nil, r.descending && r.first+i < r.partition:
			continue
		case sameRevision(r, now[i].Pod, made[i]):
			if !now[i].Ready || !now[i].Settled {
				return -1 // it has just been updated, or the template is bad
			}
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
		if c := e.current(w, fmt.Sprintf("%s-%d", w.Object.GetName(), n)); i < len(extra)-1 && c.Pod != nil {
			e.out.Pods = append(e.out.Pods, c.Pod)
		}
	}
}

// statefulSet adds the pods of a StatefulSet: with host names in the domain of its Service, a claim for each claim template, and in order
// unless podManagementPolicy is Parallel.
func (e *expansion) statefulSet(w Workload, s *appsv1.StatefulSet) {
	r := newReplicaSet(s.Spec.Template, number(s.Spec.Replicas), appsv1.ControllerRevisionHashLabelKey)
	r.descending, r.ordered, r.renews = true, s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement, true
	r.frozen = s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
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
	e.revise(w, &r)
	e.replicas(w, r)
}

// revise adds the present template of a StatefulSet to its history, and chooses the template of the pods below the partition. As in
// Kubernetes, an update ends once all pods are of the new revision and ready.
func (e *expansion) revise(w Workload, r *replicaSet) {
	h := e.follow(w, r)
	if h.Current == r.hash {
		return
	}
	if !r.frozen && e.updated(w, r) {
		done := *h
		done.Current = r.hash
		e.out.State.Histories[w.id()] = &done
		return
	}
	t, err := h.Find(h.Current).PodTemplate()
	if err != nil {
		e.problem(w, fmt.Errorf("revision %s: %w", h.Current, err))
		return
	}
	r.before, r.beforeHash = t, h.Current
}

// updated reports whether all pods are of the new template and ready.
func (e *expansion) updated(w Workload, r *replicaSet) bool {
	for i := range r.replicas {
		c := e.current(w, r.name(w, i))
		if c.Pod == nil || !c.Ready || !c.Settled || c.Pod.Object.Labels[r.label] != r.hash {
			return false
		}
	}
	return true
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
