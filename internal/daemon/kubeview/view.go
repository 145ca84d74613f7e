// Package kubeview shows the state of the daemon as objects of the Kubernetes API: it implements kubeapi.State.
//
// It owns what the API adds to documents and pods: kinds, metadata, origins, and the status of workloads, Services, Namespaces and the
// Node. It must not modify what it shows, decide what runs, nor store anything: its own records are in memory only. Objects are built from
// a snapshot, never while the state is locked, and share memory with it: an unchanged object is the same pointer as before.
//
// Goroutines: one per subscription, which ends with it.
package kubeview

import (
	"context"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/computed"
	"monopod/internal/daemon/kubeview/derived"
	"monopod/internal/daemon/kubeview/endpoints"
	"monopod/internal/daemon/kubeview/eventview"
	"monopod/internal/daemon/kubeview/machine"
	"monopod/internal/daemon/kubeview/shown"
	"monopod/internal/daemon/kubeview/workloads"
	"monopod/internal/daemon/state"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/workload/saved"
)

// table has the kinds that a View shows.
type table struct {
	writtenKinds
	ownKinds
}

// writtenKinds are the kinds of pods and documents.
type writtenKinds struct {
	pod, configMap, secret, volume, claim, service, runtimeClass, priorityClass, storageClass *kinds.Kind
	deployment, replicaSet, statefulSet, daemonSet, job, cronJob, controller                  *kinds.Kind
	controllerRevision                                                                        *kinds.Kind
}

// ownKinds are the kinds whose objects this package generates.
type ownKinds struct {
	namespace, node, event, newEvent, endpoints, slice, account, lease *kinds.Kind
	// inert are the kinds whose objects are only stored.
	inert []*kinds.Kind
}

func newTable() table {
	core, apps, batch := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion
	return table{writtenKinds{
		pod: kind(core, "Pod"), configMap: kind(core, "ConfigMap"), secret: kind(core, "Secret"), volume: kind(core, "PersistentVolume"),
		claim: kind(core, "PersistentVolumeClaim"), service: kind(core, "Service"), controller: kind(core, "ReplicationController"),
		runtimeClass: kind(nodev1.SchemeGroupVersion, "RuntimeClass"), priorityClass: kind(schedulingv1.SchemeGroupVersion, "PriorityClass"),
		storageClass: kind(storagev1.SchemeGroupVersion, "StorageClass"), deployment: kind(apps, "Deployment"), replicaSet: kind(apps, "ReplicaSet"),
		statefulSet: kind(apps, "StatefulSet"), daemonSet: kind(apps, "DaemonSet"), job: kind(batch, "Job"), cronJob: kind(batch, "CronJob"),
		controllerRevision: kind(apps, "ControllerRevision"),
	}, ownKinds{
		namespace: kind(core, "Namespace"), node: kind(core, "Node"), event: kind(core, "Event"), newEvent: kind(eventsv1.SchemeGroupVersion, "Event"),
		endpoints: kind(core, "Endpoints"), slice: kind(discoveryv1.SchemeGroupVersion, "EndpointSlice"), account: kind(core, "ServiceAccount"),
		lease: kind(coordinationv1.SchemeGroupVersion, "Lease"),
		inert: slices.DeleteFunc(slices.Clone(kinds.All()), func(k *kinds.Kind) bool { return !k.Inert }),
	}}
}

// written are the kinds of objects that are read from sources.
func (t *table) written() []*kinds.Kind {
	return []*kinds.Kind{
		t.configMap, t.secret, t.volume, t.claim, t.service, t.runtimeClass, t.priorityClass, t.storageClass,
		t.deployment, t.replicaSet, t.statefulSet, t.daemonSet, t.job, t.cronJob, t.controller, t.controllerRevision,
		t.namespace, t.account, t.endpoints, t.slice,
	}
}

// ofPods are the kinds of objects that follow from pods. Until the pods have been seen nothing is known about them.
func (t *table) ofPods() []*kinds.Kind {
	return []*kinds.Kind{t.deployment, t.replicaSet, t.statefulSet, t.daemonSet, t.job, t.cronJob, t.controller, t.endpoints, t.slice}
}

// View implements kubeapi.State.
type View struct {
	cfg   Config
	kinds table
	// due announces changes that are caused by time alone.
	due state.Changes
	// started is when the View was created, which is when the daemon started.
	started time.Time
	// snapshot returns the pods from the state; benchmarks replace it.
	snapshot func() (views, leaving []node.PodView, err error)

	mu sync.Mutex // guards all below
	// lives and the memos belong to the last build.
	lives    records
	objects  memo
	pods     memo
	lastPods []*corev1.Pod
	// origins are the sources of the pods and Services that were seen last.
	origins *model.Origins
	// endpoints are those of the last build.
	endpoints    map[*corev1.Service]*endpoints.Objects
	seenPods     bool // all pods have been seen once: lastPods are those
	revisions    map[metav1.Object]string
	events       *eventview.Events
	derived      *derived.Objects
	timer        *time.Timer
	subscription int
}

// New returns a View. It does no I/O.
func New(cfg Config) *View {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.LeaseDuration <= 0 {
		cfg.LeaseDuration = 40 * time.Second
	}
	v := &View{cfg: cfg, started: cfg.Now(), kinds: newTable(), lives: records{}, objects: newMemo(), pods: newMemo()}
	v.derived = derived.New(v.started, v.uidOf)
	v.events = eventview.New(func(namespace, name string) types.UID { return v.uidOf("Event", namespace, name) })
	v.snapshot = v.snapshotPods
	return v
}

// build is one call of Objects.
type build struct {
	view *View
	now  time.Time
	// born is the creation time of objects that are new: now, but for the first build, which may come long after the start.
	born    time.Time
	moment  workloads.Moment
	desired model.Desired
	// progress is the progress of Jobs and CronJobs, bound maps claims to volumes, claimOf volumes to claims.
	progress       saved.State
	bound, claimOf map[string]string
	objects        map[*kinds.Kind][]kinds.Object
	unseen         map[*kinds.Kind]error
	// shownPods are all pods, byOwner those of workloads, services the Services with their addresses.
	shownPods []*corev1.Pod
	byOwner   map[ownerID][]*corev1.Pod
	services  []*corev1.Service
	// assigned are the Services with their addresses, as far as they have any.
	assigned map[manifests.Key]*corev1.Service
	// owners are the documents of workloads.
	owners     map[ownerID]*manifests.Object
	priorities shown.Priorities
	// namespaces are the namespaces with objects, taken the names that generated objects must not use.
	namespaces map[string]bool
	taken      map[memoKey]bool
}

func (b *build) add(k *kinds.Kind, o kinds.Object) {
	b.objects[k] = append(b.objects[k], o)
	if k.Namespaced && k != b.view.kinds.event && k != b.view.kinds.newEvent { // events outlive their Namespace
		b.namespaces[o.GetNamespace()] = true
	}
	switch name := o.GetName(); name {
	case b.view.cfg.Node, machine.APIService, defaultAccount, rootCA:
		b.taken[memoKey{k, o.GetNamespace(), name}] = true
	}
}

// has reports whether an added object already uses the name of a generated object.
func (b *build) has(k *kinds.Kind, namespace, name string) bool {
	return b.taken[memoKey{k, namespace, name}]
}

// Objects implements kubeapi.State.
func (v *View) Objects(context.Context) (objects map[*kinds.Kind][]kinds.Object, unseen map[*kinds.Kind]error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.cfg.Now()
	b := &build{
		view: v, now: now, moment: workloads.Moment{Now: now, Since: v.started.Truncate(time.Second)}, objects: map[*kinds.Kind][]kinds.Object{}, unseen: map[*kinds.Kind]error{},
		namespaces: map[string]bool{}, taken: map[memoKey]bool{}, owners: map[ownerID]*manifests.Object{},
	}
	if b.born = now; len(v.lives) == 0 {
		b.born = v.started
	}
	var published bool
	b.desired, published = v.cfg.State.Desired()
	if !published || !b.desired.Answered() {
		for _, k := range v.kinds.written() {
			b.unseen[k] = node.ErrStarting
		}
	}
	for _, p := range b.desired.Pods {
		b.namespaces[p.Object.Namespace] = true
	}
	for _, doc := range b.desired.Workloads {
		b.namespaces[doc.Object.GetNamespace()] = true
		b.owners[ownerID{doc.Object.GetNamespace(), ownerKey{doc.Kind, doc.Object.GetName()}}] = doc
	}
	v.objects.begin()
	v.derived.Begin()
	b.kept()
	b.pods()
	b.documents()
	if v.seenPods {
		b.workloads()
		b.serviceEndpoints()
	}
	addOwnService(b)
	b.events()
	b.machine()
	b.inNamespaces()
	pruneDerived(b)
	v.lives.prune()
	v.wake(b.moment.Due)
	return b.objects, b.unseen
}

// Computed implements kubeapi.State.
func (v *View) Computed(ctx context.Context, k *kinds.Kind) (objects []kinds.Object, ok bool, err error) {
	m, c := computed.Maker{Started: v.started, UID: v.uidOf}, &v.cfg
	m.Node, m.State, m.Stats, m.Images, m.Revisions, m.Agent, m.Now = c.Node, c.State, c.Stats, c.Images, c.Revisions, c.Agent, c.Now
	return m.Objects(ctx, k)
}

// kept adds the objects that the API keeps itself.
func (b *build) kept() {
	if b.view.cfg.Kept == nil {
		return
	}
	t := &b.view.kinds
	for _, k := range append([]*kinds.Kind{t.lease, t.account, t.event, t.newEvent}, t.inert...) {
		for _, o := range b.view.cfg.Kept.Objects(k) {
			b.add(k, o)
		}
	}
}

// Subscribe implements kubeapi.State.
func (v *View) Subscribe() (changed <-chan struct{}, cancel func()) {
	pods, noPods := v.cfg.State.Subscribe()
	due, noDue := v.due.Subscribe()
	var events <-chan struct{}
	noEvents := func() {}
	if v.cfg.Events != nil {
		events, noEvents = v.cfg.Events.Subscribe()
	}
	v.mu.Lock()
	v.subscription++
	v.mu.Unlock()
	out, done, ended := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-pods:
			case <-due:
			case <-events:
			}
			select {
			case out <- struct{}{}:
			default: // the previous notification is still pending
			}
		}
	}()
	return out, sync.OnceFunc(func() {
		close(done)
		<-ended
		noPods()
		noDue()
		noEvents()
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.subscription--; v.subscription == 0 && v.timer != nil {
			v.timer.Stop()
		}
	})
}

// wake announces a change at a given time, if there are subscribers.
func (v *View) wake(at time.Time) {
	if v.timer != nil {
		v.timer.Stop()
	}
	if at.IsZero() || v.subscription == 0 {
		return
	}
	v.timer = time.AfterFunc(at.Sub(v.cfg.Now())+time.Millisecond, v.due.Notify)
}

var _ kubeapi.State = (*View)(nil)
