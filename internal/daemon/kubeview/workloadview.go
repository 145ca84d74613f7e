package kubeview

import (
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod/internal/daemon/kubeview/derived"
	"monopod/internal/daemon/kubeview/shown"
	"monopod/internal/daemon/kubeview/workloads"
	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
)

// ownerID names the controller of pods as shown in the API.
type ownerID struct {
	namespace string
	ownerKey
}

// uidOfOwner returns the uid of a controller as shown in the API.
func (b *build) uidOfOwner(o ownerKey, namespace string) types.UID {
	if doc := b.owners[ownerID{namespace, o}]; doc != nil {
		return uidOfDocument(b, doc)
	}
	if o.kind == b.view.kinds.replicaSet.Kind {
		return b.view.derived.UID(derived.ID{Kind: b.view.kinds.replicaSet, Namespace: namespace, Name: o.name})
	}
	return b.view.uidOf(o.kind, namespace, o.name)
}

func uidOfDocument(b *build, doc *manifests.Object) types.UID {
	if doc.Given != nil && doc.Given.UID != "" {
		return doc.Given.UID
	}
	if uid := doc.Object.GetUID(); uid != "" {
		return uid
	}
	return b.view.uidOf(doc.Kind, doc.Object.GetNamespace(), doc.Object.GetName())
}

// workloads adds the workloads, and the ReplicaSets and Jobs that Kubernetes would create for them.
func (b *build) workloads() {
	b.byOwner = map[ownerID][]*corev1.Pod{}
	for _, p := range b.shownPods {
		if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == b.uidOfOwner(ownerKey{ref.Kind, ref.Name}, p.Namespace) {
			id := ownerID{p.Namespace, ownerKey{ref.Kind, ref.Name}}
			b.byOwner[id] = append(b.byOwner[id], p)
		}
	}
	revisions := make(map[metav1.Object]string, len(b.desired.Workloads))
	for _, doc := range b.desired.Workloads {
		if t := manifests.PodTemplate(doc.Object); t != nil {
			if revisions[doc.Object] = b.view.revisions[doc.Object]; revisions[doc.Object] == "" {
				revisions[doc.Object] = workload.Revision(*t)
			}
		}
	}
	b.view.revisions = revisions
	old := b.replicaSets()
	for _, doc := range b.desired.Workloads {
		b.workload(doc, old)
	}
}

// replicaSets returns the revisions of Deployments that have pods, by the namespace and name of the Deployment.
func (b *build) replicaSets() map[string][]string {
	found := map[string][]string{}
	for id, pods := range b.byOwner {
		if revision := workloads.RevisionOf(pods[0]); id.kind == "ReplicaSet" {
			if name, ok := strings.CutSuffix(id.name, "-"+revision); ok && revision != "" {
				found[id.namespace+"/"+name] = append(found[id.namespace+"/"+name], revision)
			}
		}
	}
	return found
}

func podsOf(b *build, kind string, o metav1.Object) []*corev1.Pod {
	return b.byOwner[ownerID{o.GetNamespace(), ownerKey{kind, o.GetName()}}]
}

func (b *build) workload(doc *manifests.Object, old map[string][]string) {
	t := &b.view.kinds
	id := doc.Object.GetNamespace() + "/" + doc.Object.GetName()
	revision := b.view.revisions[doc.Object]
	switch o := doc.Object.(type) {
	case *appsv1.Deployment:
		b.deployment(doc, o, revision, old[id])
	case *appsv1.ReplicaSet:
		if doc.Kind == "ReplicationController" {
			addController(b, doc, o, revision)
			return
		}
		show(b, t.replicaSet, doc, nil, workloads.DefaultReplicaSet, statusOf[*appsv1.ReplicaSet, appsv1.ReplicaSetStatus]{
			func(s *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &s.Status },
			func(s *appsv1.ReplicaSet, _ *appsv1.ReplicaSetStatus) appsv1.ReplicaSetStatus {
				return workloads.ReplicaSet(s, workloads.Count(&b.moment, podsOf(b, doc.Kind, s), revision, s.Spec.MinReadySeconds))
			},
		})
	case *appsv1.StatefulSet:
		h := b.history(doc, revision)
		set := show(b, t.statefulSet, doc, nil, workloads.DefaultStatefulSet, statusOf[*appsv1.StatefulSet, appsv1.StatefulSetStatus]{
			func(s *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &s.Status },
			func(s *appsv1.StatefulSet, _ *appsv1.StatefulSetStatus) appsv1.StatefulSetStatus {
				pods := podsOf(b, doc.Kind, s)
				tally := workloads.Count(&b.moment, pods, revision, s.Spec.MinReadySeconds)
				if h != nil {
					tally = tally.Since(h.Current, pods)
				}
				return workloads.StatefulSet(s, tally, revision)
			},
		})
		b.controllerRevisions(set, doc, h, controllerRevisionLabel)
	case *appsv1.DaemonSet:
		set := show(b, t.daemonSet, doc, nil, workloads.DefaultDaemonSet, statusOf[*appsv1.DaemonSet, appsv1.DaemonSetStatus]{
			func(s *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &s.Status },
			func(s *appsv1.DaemonSet, _ *appsv1.DaemonSetStatus) appsv1.DaemonSetStatus {
				tally := workloads.Count(&b.moment, podsOf(b, doc.Kind, s), revision, s.Spec.MinReadySeconds)
				return workloads.DaemonSet(s, tally, b.view.cfg.Matches == nil || b.view.cfg.Matches(&s.Spec.Template.Spec))
			},
		})
		b.controllerRevisions(set, doc, b.history(doc, revision), appsv1.DefaultDaemonSetUniqueLabelKey)
	case *batchv1.Job:
		b.job(doc, o)
	case *batchv1.CronJob:
		b.cronJob(doc, o)
	}
}

// statusOf locates the status of a kind and computes it.
type statusOf[T kinds.Object, S any] struct {
	field func(T) *S
	of    func(o T, before *S) S
}

// show adds a workload of a document. fill sets defaults on a shallow copy. While neither the document nor the status changes, it is the same
// pointer.
func show[T kinds.Object, S any](b *build, k *kinds.Kind, doc *manifests.Object, extra any, fill func(T), status statusOf[T, S]) T {
	id := doc.ID()
	key := memoKey{k, id.Namespace, id.Name}
	in := docInputs{doc.Object, doc.Given, doc.Origin, extra}
	return settle(b, key, in, func() T {
		o := shallow(doc.Object.(T))
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		b.identify(o, k.Kind, doc)
		fill(o)
		return o
	}, status)
}

// settle adds an object built from inputs, with its current status.
func settle[T kinds.Object, S any](b *build, key memoKey, in any, create func() T, status statusOf[T, S]) T {
	v := b.view
	e, known := v.objects.last[key]
	var o T
	var before *S
	if known {
		last := e.object.(T)
		before = status.field(last)
		o = last
	}
	if fresh := !known || e.inputs != in; fresh {
		o = create()
		*status.field(o) = status.of(o, before)
	} else if s := status.of(o, before); !reflect.DeepEqual(*before, s) {
		o = shallow(o)
		*status.field(o) = s
	}
	v.objects.now[key] = memoEntry{in, o}
	v.lives.of(o.GetUID(), b.born)
	b.add(key.kind, o)
	return o
}

// addController adds a ReplicationController, which runs as a ReplicaSet.
func addController(b *build, doc *manifests.Object, o *appsv1.ReplicaSet, revision string) {
	k := b.view.kinds.controller
	settle(b, memoKey{k, o.Namespace, o.Name}, docInputs{doc.Object, doc.Given, doc.Origin, nil}, func() *corev1.ReplicationController {
		c := &corev1.ReplicationController{ObjectMeta: o.ObjectMeta}
		c.SetGroupVersionKind(k.GroupVersionKind)
		b.identify(c, k.Kind, doc)
		replicas, template := ptr.Deref(o.Spec.Replicas, 1), o.Spec.Template
		workloads.DefaultTemplate(&template)
		c.Spec = corev1.ReplicationControllerSpec{Replicas: &replicas, MinReadySeconds: o.Spec.MinReadySeconds, Template: &template}
		if o.Spec.Selector != nil {
			c.Spec.Selector = o.Spec.Selector.MatchLabels
		}
		return c
	}, statusOf[*corev1.ReplicationController, corev1.ReplicationControllerStatus]{
		func(c *corev1.ReplicationController) *corev1.ReplicationControllerStatus { return &c.Status },
		func(c *corev1.ReplicationController, _ *corev1.ReplicationControllerStatus) corev1.ReplicationControllerStatus {
			return workloads.Controller(c, workloads.Count(&b.moment, podsOf(b, doc.Kind, c), revision, c.Spec.MinReadySeconds))
		},
	})
}

func jobStatus(b *build, progress *saved.Job) statusOf[*batchv1.Job, batchv1.JobStatus] {
	return statusOf[*batchv1.Job, batchv1.JobStatus]{
		func(j *batchv1.Job) *batchv1.JobStatus { return &j.Status },
		func(j *batchv1.Job, before *batchv1.JobStatus) batchv1.JobStatus {
			return workloads.Job(&b.moment, j, podsOf(b, "Job", j), progress, before)
		},
	}
}

// job adds a Job of a document.
func (b *build) job(doc *manifests.Object, o *batchv1.Job) {
	progress := workload.JobOf(b.progress, doc, b.view.revisions[doc.Object])
	show(b, b.view.kinds.job, doc, nil, func(j *batchv1.Job) {
		workloads.DefaultJob(&j.Spec)
		selectByUID(j, workload.UID("Job", o))
	}, jobStatus(b, progress))
}

// selectByUID sets the selector of a Job, and the labels of its template, as Kubernetes does.
func selectByUID(j *batchv1.Job, uid types.UID) {
	if j.Spec.Selector != nil {
		return
	}
	j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: string(uid)}}
	l := shown.WithLabel(j.Spec.Template.Labels, batchv1.ControllerUidLabel, string(uid))
	l["controller-uid"], l[batchv1.JobNameLabel], l["job-name"] = string(uid), j.Name, j.Name
	j.Spec.Template.Labels = l
}

// runInputs are the inputs of the Job of a run.
type runInputs struct {
	document metav1.Object
	uid      types.UID
}

// cronJob adds a CronJob and the Jobs of its runs.
func (b *build) cronJob(doc *manifests.Object, o *batchv1.CronJob) {
	progress, uid := workload.CronJobOf(b.progress, doc), uidOfDocument(b, doc)
	var jobs []*batchv1.Job
	if progress != nil {
		for i := range progress.Runs {
			jobs = append(jobs, runOf(b, doc, o, uid, &progress.Runs[i]))
		}
	}
	show(b, b.view.kinds.cronJob, doc, nil, workloads.DefaultCronJob, statusOf[*batchv1.CronJob, batchv1.CronJobStatus]{
		func(c *batchv1.CronJob) *batchv1.CronJobStatus { return &c.Status },
		func(_ *batchv1.CronJob, before *batchv1.CronJobStatus) batchv1.CronJobStatus {
			s := workloads.CronJob(progress, jobs)
			if s.LastSuccessfulTime == nil && before != nil {
				s.LastSuccessfulTime = before.LastSuccessfulTime // its Job is gone
			}
			return s
		},
	})
}

// runOf adds the Job of a run of a CronJob.
func runOf(b *build, doc *manifests.Object, o *batchv1.CronJob, uid types.UID, run *saved.Run) *batchv1.Job {
	k := b.view.kinds.job
	b.view.derived.Made(derived.ID{Kind: k, Namespace: o.Namespace, Name: run.Name}, "CronJob "+o.Name, true)
	return settle(b, memoKey{k, o.Namespace, run.Name}, runInputs{doc.Object, uid}, func() *batchv1.Job {
		yes, t := true, &o.Spec.JobTemplate
		j := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: run.Name, Labels: t.Labels, Generation: 1,
				Annotations:     shown.WithLabel(t.Annotations, batchv1.CronJobScheduledTimestampAnnotation, run.At.Format("2006-01-02T15:04:05Z07:00")),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: o.Name, UID: uid, Controller: &yes, BlockOwnerDeletion: &yes}},
			},
			Spec: t.Spec,
		}
		b.made(j, k)
		j.CreationTimestamp = metav1.NewTime(run.At)
		workloads.DefaultJob(&j.Spec)
		if j.Spec.Selector == nil { // the pods of all runs have the uid of the CronJob
			j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.JobNameLabel: run.Name}}
		}
		return j
	}, jobStatus(b, run.Job))
}
