// Package kubewrite stores the writes of Kubernetes API clients: manifests as applied objects, Namespaces, ServiceAccounts and objects of
// inert kinds next to them, Leases and Events in memory.
//
// It implements kubeapi.Writer. It must not decide the result of a write, which node/kubeapi does, nor start or stop pods: the watcher
// reads the stored objects. It starts no goroutines.
package kubewrite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/daemon/apply"
	"monopod/manifests"
	known "monopod/manifests/kinds"
	"monopod/node"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
	"monopod/node/nodemeta"
	"monopod/runner/workload/saved"
	"monopod/watcher/applied"
)

// dropTimeout is how long an answer waits until a run of a CronJob is forgotten for good.
const dropTimeout = 5 * time.Second

// Config is what a Writer works with.
type Config struct {
	// Applier has the lock, the store and the state, and validates.
	Applier *apply.Applier
	// Memory holds the objects that are not manifests.
	Memory *OwnObjects
	// Cordon cordons or uncordons the node; if nil, writes to the Node are refused.
	Cordon func(unschedulable bool) error
	// Node returns the Node as clients see it, nil if it is not known.
	Node func() *corev1.Node
	// NodeMeta stores the labels and annotations that clients set on the Node; if nil, writes to the Node are refused. NodeLabels are those of
	// the configuration, which clients cannot change.
	NodeMeta   NodeMeta
	NodeLabels map[string]string
	// Immutable reports that pods change only as in Kubernetes: then clients expect which containers are restarted, and get no warnings.
	Immutable bool
	// Shown is what clients see; nil: nothing but what is stored.
	Shown Shown
	// Refused returns why a Service cannot have the cluster IP or the node ports that it asks for; nil: any can.
	Refused func(*corev1.Service) field.ErrorList
}

// NodeMeta stores what clients set on the Node.
type NodeMeta interface {
	Current() nodemeta.Metadata
	Set(next nodemeta.Metadata) error
}

// Shown shows objects to clients, also those that are made of others.
type Shown interface {
	// Maker returns what makes an object, and whether clients may delete it; empty: it is written.
	Maker(r kubeapi.Ref) (name string, deletable bool)
	// Deleted takes that a client deletes an object that may still be shown: what is shown of its name from now on is another one.
	Deleted(r kubeapi.Ref)
}

// Writer implements kubeapi.Writer.
type Writer struct{ cfg Config }

// New returns a Writer. It does no I/O.
func New(cfg Config) *Writer { return &Writer{cfg: cfg} }

// Load passes the conditions that clients set on pods before the last start to the state. Without it, they are passed with the first write.
func (w *Writer) Load() {
	byUID := map[types.UID][]corev1.PodCondition{}
	for _, note := range w.cfg.Applier.Store.Notes() {
		if note.PodUID != "" && len(note.Conditions) > 0 {
			byUID[note.PodUID] = note.Conditions
		}
	}
	if err := w.cfg.Memory.readGates(); err != nil {
		w.cfg.Applier.Log.Warn("conditions of readiness gates cannot be read: their pods are not Ready until a client sets them again", "err", err)
	}
	w.cfg.Memory.gatesTo(byUID)
	w.cfg.Applier.State.Bound.SetOwnConditions(byUID)
}

// Definition implements kubeapi.Writer.
func (w *Writer) Definition(r kubeapi.Ref) kubeapi.Definition {
	id := manifests.ObjectID{Kind: r.Kind.Kind, Namespace: r.Namespace, Name: r.Name}
	switch {
	case id.Kind == "Node", id.Kind == "Lease", id.Kind == "Event", applied.Kept(id.Kind):
		return kubeapi.Definition{Applied: true}
	case !stored(id.Kind):
		return kubeapi.Definition{Place: "monopod, which computes it", Derived: true}
	}
	d := kubeapi.Definition{Applied: w.cfg.Applier.Stored(id)}
	if at, found := w.cfg.Applier.Elsewhere(id)[id]; found {
		d.Place, d.Derived, d.Deletable = at.At, at.Workload != "", at.Workload != ""
		if d.Derived {
			d.Place = at.Workload
		}
	}
	if !d.Applied && d.Place == "" && w.cfg.Shown != nil {
		d.Place, d.Deletable = w.cfg.Shown.Maker(r)
		d.Derived = d.Place != ""
	}
	return d
}

// stored reports whether objects of a kind are stored as manifests.
func stored(kind string) bool {
	_, found := known.Known().ByKind[kind]
	return found || kind == "Pod"
}

// Write implements kubeapi.Writer.
func (w *Writer) Write(ctx context.Context, dryRun bool, decide func() (kubeapi.Change, error)) ([]string, error) {
	p, err := w.write(ctx, dryRun, decide)
	if err != nil {
		return nil, err
	}
	if !dryRun && p.debug != nil {
		return p.warnings, w.debug(ctx, p.debug)
	}
	if dryRun {
		return p.warnings, nil
	}
	w.cfg.Applier.Await(ctx, p.checked, p.expectGone)
	w.cfg.Applier.AwaitEnd(ctx, p.ending())
	return p.warnings, w.awaitDropped(ctx, p.runs)
}

// write is the part of Write that holds the write lock.
func (w *Writer) write(ctx context.Context, dryRun bool, decide func() (kubeapi.Change, error)) (*plan, error) {
	end, err := w.cfg.Applier.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	change, err := decide()
	if err != nil {
		return nil, err
	}
	if change.Ephemeral != nil {
		return &plan{debug: change.Ephemeral}, w.checkEphemeral(change.Ephemeral)
	}
	p, err := w.plan(change)
	if err != nil || dryRun {
		return p, err
	}
	return p, w.commit(p)
}

// plan is a change that has been checked.
type plan struct {
	proposals []apply.Proposal
	checked   *apply.Checked
	change    applied.Change
	// put and remove are the changes of Memory.
	put    []kinds.Object
	remove []manifests.ObjectID
	// expectGone are the removed manifests that no other source defines.
	expectGone []manifests.ObjectID
	// replaced are pods of workloads, which are recreated; granted are all removed pods.
	replaced, gracefulDeletes []kubeapi.Removal
	// renamed are objects that may still be shown, as others of the same names; runs are Jobs of CronJobs.
	renamed []kubeapi.Ref
	runs    []saved.RunID
	// conditions reports that those of a stored pod may have changed; gates are other pods of which nothing but conditions is kept.
	conditions bool
	gates      []*corev1.Pod
	// last are terminating pods, of which only metadata changes.
	last []*corev1.Pod
	// cordon is the desired cordon of the Node, nodeMeta what clients set on it; nil leaves it unchanged.
	cordon   *bool
	nodeMeta *nodemeta.Metadata
	warnings []string
	// debug are the ephemeral containers to add; nil if none.
	debug *kubeapi.Ephemeral
}

// ending returns the pods to be terminated.
func (p *plan) ending() map[manifests.Key]types.UID {
	all := map[manifests.Key]types.UID{}
	for _, r := range p.gracefulDeletes {
		if r.UID != "" {
			all[manifests.Key{Namespace: r.Namespace, Name: r.Name}] = r.UID
		}
	}
	return all
}

// plan checks a change.
func (w *Writer) plan(c kubeapi.Change) (*plan, error) {
	p := &plan{change: applied.Change{Put: map[manifests.ObjectID][]byte{}, Notes: map[manifests.ObjectID]*applied.Note{}}}
	for _, o := range c.Put {
		if err := w.put(p, o); err != nil {
			return nil, err
		}
	}
	for _, r := range c.Remove {
		if err := w.removal(p, r); err != nil {
			return nil, err
		}
	}
	checked, errs, err := w.cfg.Applier.Check(p.proposals)
	switch {
	case err != nil:
		return nil, err
	case len(errs) > 0:
		return nil, invalid(p.proposals, errs)
	}
	p.checked, p.warnings = checked, append(p.warnings, checked.Warnings...)
	if !w.cfg.Immutable {
		p.warnings = append(p.warnings, apply.Replaced(w.cfg.Applier, checked)...)
	}
	checked.AddTo(&p.change)
	return p, apply.Fits(w.cfg.Applier.Store, p.change)
}

// put plans an object that is stored.
func (w *Writer) put(p *plan, o kinds.Object) error {
	kind, err := kindOf(o)
	if err != nil {
		return err
	}
	o = o.DeepCopyObject().(kinds.Object)
	o.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	id := idOf(o)
	switch {
	case kind.Kind == "Node":
		return w.node(p, kind, o)
	case kind.Kind == "Lease", kind.Kind == "Event":
		o, err := volatileObject(o)
		if err != nil {
			return apierrors.NewRequestEntityTooLargeError(err.Error())
		}
		p.put = append(p.put, o)
		return nil
	case applied.Kept(kind.Kind):
		return w.keep(p, id, o)
	case !stored(kind.Kind):
		return forbidden(kind, o.GetName(), "it is managed by monopod and read-only")
	case ends(o):
		p.last = append(p.last, o.(*corev1.Pod))
		return nil
	}
	if at, found := w.cfg.Applier.Elsewhere(id)[id]; found {
		if pod, ok := o.(*corev1.Pod); ok && w.runs(pod) && len(pod.Spec.ReadinessGates) > 0 {
			p.gates = append(p.gates, pod)
			return nil
		}
		return forbidden(kind, o.GetName(), fmt.Sprintf("%s is %s; change it there", id, at.Text))
	}
	if err := w.admit(p, kind, id, o); err != nil {
		return err
	}
	manifest, err := manifestOf(o)
	if err != nil {
		return err
	}
	if err := w.same(kind, id, o.GetUID()); err != nil {
		return err
	}
	note := w.noteOf(id, o)
	if _, err := applied.Join(note, nil); err != nil {
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	was := w.cfg.Applier.Store.Note(id)
	p.conditions = p.conditions || len(note.Conditions) > 0 || was != nil && len(was.Conditions) > 0
	p.proposals = append(p.proposals, apply.Proposal{ID: id, Manifest: manifest, Note: note})
	return nil
}

// ends reports whether an object is a terminating pod that is no longer stored.
func ends(o kinds.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0
}

// admit refuses objects that are made of others or ask for what another one has, and completes the rest.
func (w *Writer) admit(p *plan, kind *kinds.Kind, id manifests.ObjectID, o kinds.Object) error {
	if d := w.Definition(kubeapi.Ref{Kind: kind, Namespace: id.Namespace, Name: id.Name}); d.Derived {
		return forbidden(kind, id.Name, fmt.Sprintf("it is made by %s; change it there", d.Place))
	}
	if err := w.refused(kind, o); err != nil {
		return err
	}
	return w.runtimeClass(p, kind, id, o)
}

// same refuses a write that was decided for another object of the same name, which has been replaced since.
func (w *Writer) same(kind *kinds.Kind, id manifests.ObjectID, uid types.UID) error {
	if note := w.cfg.Applier.Store.Note(id); note == nil || note.UID == "" || uid == "" || note.UID == uid {
		return nil
	}
	return apierrors.NewConflict(kind.Resource().GroupResource(), id.Name, errors.New("it has been deleted and recreated; get it again and retry"))
}

// runtimeClass sets the overhead of a new pod from its class, or refuses the pod if the class is missing, like the admission of Kubernetes.
// An existing pod waits for its class.
func (w *Writer) runtimeClass(p *plan, kind *kinds.Kind, id manifests.ObjectID, o kinds.Object) error {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.RuntimeClassName == nil || w.cfg.Applier.Stored(id) {
		return nil
	}
	class := manifests.ObjectID{Kind: "RuntimeClass", Name: *pod.Spec.RuntimeClassName}
	d, _ := w.cfg.Applier.State.Desired()
	for _, o := range d.Objects {
		if c, ok := o.Object.(*nodev1.RuntimeClass); ok && o.ID() == class {
			if c.Overhead != nil && len(pod.Spec.Overhead) == 0 {
				pod.Spec.Overhead = c.Overhead.PodFixed
			}
			return nil
		}
	}
	if slices.ContainsFunc(p.proposals, func(o apply.Proposal) bool { return o.ID == class }) {
		return nil
	}
	return forbidden(kind, o.GetName(), fmt.Sprintf("pod rejected: RuntimeClass %q not found", class.Name))
}

// refused refuses a Service that asks for what another one has.
func (w *Writer) refused(kind *kinds.Kind, o kinds.Object) error {
	s, ok := o.(*corev1.Service)
	if !ok || w.cfg.Refused == nil {
		return nil
	}
	if errs := w.cfg.Refused(s); len(errs) > 0 {
		return apierrors.NewInvalid(kind.GroupKind(), s.Name, errs)
	}
	return nil
}

// keep plans an object that is stored and is no manifest.
func (w *Writer) keep(p *plan, id manifests.ObjectID, o kinds.Object) error {
	if !w.cfg.Memory.has(id) && w.cfg.Memory.count()+len(p.put) >= maxKept {
		return apierrors.NewTooManyRequestsError(fmt.Sprintf("limit of %d Namespaces, ServiceAccounts and objects of apiServer.inertKinds reached; delete some", maxKept))
	}
	document, err := manifestOf(o)
	if err != nil {
		return err
	}
	note := noteFor(o)
	if _, err := applied.Join(note, nil); err != nil {
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	p.change.Put[id], p.change.Notes[id] = document, note
	p.put = append(p.put, o)
	return nil
}

// removal plans the removal of an object.
func (w *Writer) removal(p *plan, r kubeapi.Removal) error {
	id := manifests.ObjectID{Kind: r.Kind.Kind, Namespace: r.Namespace, Name: r.Name}
	switch {
	case id.Kind == "Lease", id.Kind == "Event":
		p.remove, p.renamed = append(p.remove, id), append(p.renamed, r.Ref)
		return nil
	case applied.Kept(id.Kind):
		p.remove, p.renamed = append(p.remove, id), append(p.renamed, r.Ref)
		if w.cfg.Applier.Stored(id) {
			p.change.Remove = append(p.change.Remove, id)
		}
		return nil
	case !stored(id.Kind):
		return forbidden(r.Kind, r.Name, "it is managed by monopod and read-only")
	}
	if err := w.same(r.Kind, id, r.UID); err != nil {
		return err
	}
	if d := w.Definition(r.Ref); d.Derived && id.Kind != "Pod" {
		return w.derived(p, r, d)
	}
	at, elsewhere := w.cfg.Applier.Elsewhere(id)[id]
	there := w.cfg.Applier.Stored(id)
	switch {
	case elsewhere && at.Workload != "" && id.Kind == "Pod":
		p.replaced, p.gracefulDeletes = append(p.replaced, r), append(p.gracefulDeletes, r)
	case elsewhere && !there:
		return forbidden(r.Kind, r.Name, fmt.Sprintf("%s is %s; remove it there", id, at.Text))
	case elsewhere:
		p.warnings = append(p.warnings, fmt.Sprintf("%s still exists: it is also %s", id, at.Text))
	case there:
		p.expectGone = append(p.expectGone, id)
	}
	if there {
		p.change.Remove = append(p.change.Remove, id)
		if note := w.cfg.Applier.Store.Note(id); note != nil {
			p.conditions = p.conditions || len(note.Conditions) > 0
			r.GraceSeconds = graceOf(note, r.GraceSeconds)
		}
	}
	if id.Kind == "Pod" && !elsewhere { // if it is already terminating, this shortens its grace period
		p.gracefulDeletes = append(p.gracefulDeletes, r)
	}
	return nil
}

// derived plans the removal of an object that is made of others.
func (w *Writer) derived(p *plan, r kubeapi.Removal, d kubeapi.Definition) error {
	cron, isRun := strings.CutPrefix(d.Place, "CronJob ")
	_, err := w.cfg.Applier.State.Pods()
	switch {
	case !d.Deletable:
		return forbidden(r.Kind, r.Name, fmt.Sprintf("it is made by %s; change it there", d.Place))
	case err != nil && r.Kind.Group != "": // what it has to end cannot be reached
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%s %s cannot be deleted now: %v", r.Kind.Kind, r.Name, err))
	case isRun:
		p.runs = append(p.runs, saved.RunID{Namespace: r.Namespace, CronJob: cron, Name: r.Name})
	default:
		p.renamed = append(p.renamed, r.Ref)
	}
	return nil
}

// awaitDropped waits until runs of CronJobs are forgotten for good.
func (w *Writer) awaitDropped(ctx context.Context, runs []saved.RunID) error {
	if len(runs) == 0 {
		return nil
	}
	state := w.cfg.Applier.State
	changed, stop := state.Subscribe()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	for slices.ContainsFunc(runs, state.Workloads.Has) {
		select {
		case <-ctx.Done():
			return apierrors.NewServerTimeout(batchv1.Resource("jobs"), "delete", 1)
		case <-changed:
		}
	}
	return nil
}

// graceOf returns the grace period of a removal: the stored one, if the pod ran until its last finalizer was removed, else the given one.
func graceOf(note *applied.Note, given *int64) *int64 {
	if note.DeletionTimestamp != nil && note.DeletionGracePeriodSeconds != nil {
		return note.DeletionGracePeriodSeconds
	}
	return given
}

// commit stores a change, then updates the parts that do not follow the store.
func (w *Writer) commit(p *plan) error {
	state := w.cfg.Applier.State
	for _, r := range p.gracefulDeletes { // before the pod is removed
		if r.UID != "" {
			state.Bound.SetGracePeriod(r.UID, r.GraceSeconds)
		}
	}
	warnings, err := w.cfg.Applier.Commit(p.change, p.checked, p.expectGone)
	if err != nil {
		for _, r := range p.gracefulDeletes {
			state.Bound.SetGracePeriod(r.UID, nil)
		}
		return err
	}
	p.warnings = append(p.warnings, warnings...)
	if w.cfg.Shown != nil {
		for _, r := range p.renamed {
			w.cfg.Shown.Deleted(r)
		}
	}
	for _, run := range p.runs { // before its pods end: they would begin again
		state.Workloads.Drop(run)
	}
	w.cfg.Memory.change(p.put, p.remove)
	set := gates{}
	for _, pod := range p.gates {
		set[pod.UID] = manifests.GateConditions(pod)
	}
	for _, pod := range p.last {
		w.cfg.Memory.setLast(pod, w.exists())
		if given := manifests.GateConditions(pod); len(given) > 0 {
			set[pod.UID] = given
		}
	}
	lost := w.cfg.Memory.setGates(set, w.exists)
	if p.conditions || len(set) > 0 {
		w.Load()
	}
	for _, r := range p.replaced {
		state.Replace(manifests.Key{Namespace: r.Namespace, Name: r.Name}, r.UID)
	}
	if err := w.changeNode(p); err != nil {
		return err
	}
	state.Notify()
	if len(set) > 0 {
		return lost // otherwise nothing but those of removed pods is stored in vain
	}
	return nil
}

// noteOf returns the note of a manifest. An object that was stored without a uid keeps the uid that is derived from its name, or the uid of
// its pod.
func (w *Writer) noteOf(id manifests.ObjectID, o kinds.Object) *applied.Note {
	note := noteFor(o)
	if was := w.cfg.Applier.Store.Note(id); w.cfg.Applier.Stored(id) && (was == nil || was.UID == "") {
		note.UID = ""
	}
	return note
}

// noteFor returns the metadata of an object that is not part of its manifest.
func noteFor(o kinds.Object) *applied.Note {
	note := &applied.Note{
		UID: o.GetUID(), GenerateName: o.GetGenerateName(), CreationTimestamp: o.GetCreationTimestamp(), Generation: o.GetGeneration(),
		OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(), DeletionTimestamp: o.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: o.GetDeletionGracePeriodSeconds(), ManagedFields: o.GetManagedFields(),
	}
	if pod, ok := o.(*corev1.Pod); ok {
		note.Generation = max(0, note.Generation-int64(len(pod.Spec.EphemeralContainers))) // each of these counts while it exists
		if note.Conditions = manifests.GateConditions(pod); len(note.Conditions) > 0 {
			note.PodUID = pod.UID
		}
	}
	return note
}

// exists returns which pods there are, by their uids. While not all pods can be seen, it is any.
func (w *Writer) exists() func(types.UID) bool {
	views, err := w.cfg.Applier.State.Pods()
	if _, _, complete := w.cfg.Applier.State.Current(); !complete {
		return func(types.UID) bool { return true }
	}
	uids := map[types.UID]bool{}
	for i := range views {
		uids[views[i].Pod.UID] = true
	}
	return func(uid types.UID) bool { return err != nil || uids[uid] }
}

// runs reports whether a pod with that uid exists, so that its status can be written wherever it is defined.
func (w *Writer) runs(pod *corev1.Pod) bool {
	views, err := w.cfg.Applier.State.Pods()
	return err == nil && slices.ContainsFunc(views, func(v node.PodView) bool {
		return v.Pod.UID == pod.UID && v.Pod.Namespace == pod.Namespace && v.Pod.Name == pod.Name
	})
}

// kindOf returns the kind of an object, which need not be set in it.
func kindOf(o kinds.Object) (*kinds.Kind, error) {
	if k := kinds.ByKind(o.GetObjectKind().GroupVersionKind()); k != nil {
		return k, nil
	}
	all, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		return nil, err
	}
	for _, gvk := range all {
		if k := kinds.ByKind(gvk); k != nil {
			return k, nil
		}
	}
	return nil, errors.New("the kind of the object is not served")
}

// forbidden refuses a write permanently: clients do not retry it.
func forbidden(kind *kinds.Kind, name, why string) error {
	return apierrors.NewForbidden(kind.Resource().GroupResource(), name, errors.New(why))
}
