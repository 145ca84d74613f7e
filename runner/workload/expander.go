package workload

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/workload/saved"
)

const (
	// saveEvery is the interval of storing the elapsed time of Jobs.
	saveEvery = time.Minute
	// leavingRetry is how long an expansion whose pods wait for the end of others is valid.
	leavingRetry = time.Second
)

// Expander expands the workloads of a running agent: in addition to Expand, it remembers the result and stores the state that must survive.
// It belongs to one goroutine.
type Expander struct {
	store *saved.Store
	log   *slog.Logger
	state saved.State
	saved time.Time
	// made caches the pods and claims of each document.
	made   map[madeKey]*manifests.Pod
	claims map[madeKey]*manifests.Object
	// assigned are the pods of the last result.
	assigned map[manifests.Key]*manifests.Pod
	// leaving are the pods of workloads that were left out of a result, with their uids: they are being removed.
	leaving map[manifests.Key]types.UID
	// deleted are the pods that clients have deleted since the last expansion.
	deleted []manifests.Key
	// logged are the problems that were logged last, by id.
	logged map[string]string
	// dropped are runs that the next expansion forgets.
	dropped []saved.RunID
	// clashes are those of the last expansion.
	clashes []Clash
	// Spaces are the boundaries between sources; nil means that there are none.
	Spaces *manifests.Spaces
}

type madeKey struct {
	document metav1.Object
	name     string
}

// NewExpander reads the stored state. An error concerns only that: the Expander works anyway.
func NewExpander(store *saved.Store, log *slog.Logger) (*Expander, error) {
	x := &Expander{
		store: store, log: log, made: map[madeKey]*manifests.Pod{}, claims: map[madeKey]*manifests.Object{},
		assigned: map[manifests.Key]*manifests.Pod{}, leaving: map[manifests.Key]types.UID{}, logged: map[string]string{},
	}
	var err error
	x.state, err = store.Load()
	return x, err
}

// Idle reports that no state is stored: Expand then has nothing to do without workloads.
func (x *Expander) Idle() bool {
	return len(x.state.Jobs)+len(x.state.Crons)+len(x.state.Histories) == 0
}

// Finished returns, by "namespace/name", the Jobs that are Complete or Failed.
func (x *Expander) Finished() map[string]string {
	ends := map[string]string{}
	for id, j := range x.state.Jobs {
		if j.Finished != "" {
			ends[strings.TrimPrefix(id, "Job ")] = j.Finished
		}
	}
	return ends
}

// LastRuns returns, by "namespace/name", the latest scheduled time for which each CronJob began a Job.
func (x *Expander) LastRuns() map[string]time.Time {
	last := map[string]time.Time{}
	for id, c := range x.state.Crons {
		if at := c.LastRun(); !at.IsZero() {
			last[strings.TrimPrefix(id, "CronJob ")] = at
		}
	}
	return last
}

// State returns the progress of Jobs and CronJobs, and the revisions of the others. It is shared and must not be changed; neither does the Expander.
func (x *Expander) State() saved.State { return x.state }

// Drop forgets runs of CronJobs, whose pods the next expansion leaves out. They do not begin again.
func (x *Expander) Drop(runs []saved.RunID) { x.dropped = append(x.dropped, runs...) }

// Observed is a pod as the runner observes it.
type Observed struct {
	Status *corev1.Pod
	// Recorded is the manifest that has been applied completely; nil if none has.
	Recorded *manifests.Pod
}

// Result contains the pods to run, including those of documents.
type Result struct {
	Pods   []*manifests.Pod
	Claims []*manifests.Object
	// Clashes are the pods that are not run because another pod has their name.
	Clashes []Clash
	// Expired are the finished Jobs whose ttlSecondsAfterFinished has elapsed.
	Expired []Expired
	// Next is when to expand again without any change; zero means never.
	Next time.Time
}

// Of returns the workload of a document.
func Of(doc *manifests.Object) Workload {
	w := Workload{Object: doc.Object, Kind: doc.Kind, Origin: doc.Origin}
	if doc.Given != nil {
		w.UID = doc.Given.UID
	}
	return w
}

// Clash is a pod that is not run because another pod, written at By, has its name; one of them is of a workload.
type Clash struct {
	Pod    manifests.Key
	At, By manifests.Origin
}

// Deleted reports pods that clients have deleted, to the next expansion: where an update strategy keeps pods of an earlier template, their
// successors are made from the new one.
func (x *Expander) Deleted(pods []manifests.Key) { x.deleted = append(x.deleted, pods...) }

// Expand returns the pods to run now.
func (x *Expander) Expand(now time.Time, d model.Desired, pods []Observed) Result {
	x.left(pods)
	in := Input{Now: now, Pods: x.current(pods), State: x.state.WithoutRuns(x.dropped), Make: x.make}
	x.dropped = nil
	documents := map[metav1.Object]bool{}
	kept := x.kept(d.Keeps, pods)
	for _, o := range d.Workloads {
		doc := Of(o)
		doc.Kept = kept(doc)
		in.Workloads = append(in.Workloads, doc)
		documents[o.Object] = true
	}
	x.disown(&in)
	maps.DeleteFunc(x.made, func(k madeKey, _ *manifests.Pod) bool { return !documents[k.document] })
	maps.DeleteFunc(x.claims, func(k madeKey, _ *manifests.Object) bool { return !documents[k.document] })
	out := Expand(in)
	out.State.Keep(in.State, d.Removable)
	x.save(now, out.State)
	x.report(out.Problems)
	x.dismiss(&in, pods)
	x.replace(out.Pods, &in, pods, d.Removable)
	made := slices.DeleteFunc(out.Pods, func(p *manifests.Pod) bool { return x.waits(p.Key()) })
	r := Result{Pods: x.merge(d.Pods, made), Expired: out.Expired, Next: out.Next}
	if retry := now.Add(leavingRetry); len(made) < len(out.Pods) && (r.Next.IsZero() || retry.Before(r.Next)) {
		r.Next = retry // besides, each change of a pod leads to another expansion
	}
	x.leave(r.Pods, &in, pods, d.Removable)
	r.Clashes = x.clashes
	for _, c := range out.Claims {
		r.Claims = append(r.Claims, x.claim(in.Workloads, c))
	}
	return r
}

// disown drops the histories of workloads that are in another space now: no pod is made from a template that is not of this one.
func (x *Expander) disown(in *Input) {
	in.State.Histories = maps.Clone(in.State.Histories)
	for _, w := range in.Workloads {
		if h := in.State.Histories[w.id()]; h != nil && !w.Kept && x.Spaces.Of(h.Origin.Source) != x.Spaces.Of(w.Origin.Source) {
			delete(in.State.Histories, w.id())
		}
	}
}

// left forgets the pods that are gone.
func (x *Expander) left(pods []Observed) {
	now := make(map[manifests.Key]types.UID, len(x.leaving))
	for _, o := range pods {
		key := keyOf(o)
		if uid, ok := x.leaving[key]; ok && uid == o.Status.UID {
			now[key] = uid
		}
	}
	x.leaving = now
}

func keyOf(o Observed) manifests.Key {
	return manifests.Key{Namespace: o.Status.Namespace, Name: o.Status.Name}
}

// waits reports whether a name is not used yet, because its last pod is still there.
func (x *Expander) waits(name manifests.Key) bool {
	_, ok := x.leaving[name]
	return ok
}

// replace has existing pods removed whose names pods of other workloads are to have: those of a deleted workload of the same name.
func (x *Expander) replace(made []*manifests.Pod, in *Input, pods []Observed, removable func(manifests.Origin) bool) {
	given := map[types.UID]bool{}
	for _, w := range in.Workloads {
		if w.UID != "" {
			given[uidOf(w)] = true
		}
	}
	if len(given) == 0 {
		return
	}
	owners := map[manifests.Key]types.UID{}
	for _, p := range made {
		if uid := controllerOf(p); given[uid] {
			owners[p.Key()] = uid
		}
	}
	for _, o := range pods {
		key := keyOf(o)
		p := in.Pods[key].Pod
		if p == nil || owners[key] == "" {
			continue
		}
		if uid := controllerOf(p); uid != "" && uid != owners[key] && removable(p.Origin) {
			x.leaving[key] = o.Status.UID
		}
	}
}

// dismiss has the pods of Jobs removed that clients have deleted. Whether others follow is decided once they are gone: of what has been done,
// none does.
func (x *Expander) dismiss(in *Input, pods []Observed) {
	for _, o := range pods {
		if c := in.Pods[keyOf(o)]; c.Deleted && OfJob(c.Pod) {
			x.leaving[keyOf(o)] = o.Status.UID
		}
	}
}

// leave records the existing pods of workloads that are not in a result: the pool removes them.
func (x *Expander) leave(result []*manifests.Pod, in *Input, pods []Observed, removable func(manifests.Origin) bool) {
	listed := make(map[manifests.Key]bool, len(result))
	for _, p := range result {
		listed[p.Key()] = true
	}
	for _, o := range pods {
		key := keyOf(o)
		p := in.Pods[key].Pod
		switch {
		case listed[key]:
			delete(x.leaving, key)
		case p != nil && controllerOf(p) != "" && removable(p.Origin):
			x.leaving[key] = o.Status.UID
		}
	}
}

// kept returns a function that reports whether a document must not be followed now, because its pods keep running as written elsewhere.
func (x *Expander) kept(keeps func(was, now manifests.Origin) bool, pods []Observed) func(Workload) bool {
	if keeps == nil {
		return func(Workload) bool { return false }
	}
	written := map[string][]manifests.Origin{}
	for _, o := range pods {
		if o.Recorded == nil {
			continue
		}
		for _, id := range ownersOf(o.Recorded) {
			if at := o.Recorded.Origin; !slices.Contains(written[id], at) {
				written[id] = append(written[id], at)
			}
		}
	}
	return func(w Workload) bool {
		places := written[w.id()]
		if j := x.state.Jobs[w.id()]; j != nil {
			places = append(places, j.Origin)
		}
		if c := x.state.Crons[w.id()]; c != nil {
			places = append(places, c.Origin)
		}
		if h := x.state.Histories[w.id()]; h != nil {
			places = append(places, h.Origin)
		}
		return slices.ContainsFunc(places, func(was manifests.Origin) bool { return keeps(was, w.Origin) })
	}
}

// current combines the last result with the observed pods.
func (x *Expander) current(pods []Observed) map[manifests.Key]Current {
	all := map[manifests.Key]Current{}
	for key, p := range x.assigned {
		all[key] = Current{Pod: p}
	}
	for _, o := range pods {
		key := keyOf(o)
		c := all[key]
		if c.Pod == nil {
			c.Pod = o.Recorded
		}
		if c.Pod == nil {
			continue
		}
		c.Settled = o.Recorded != nil && maps.Equal(o.Recorded.Object.Labels, c.Pod.Object.Labels)
		c.Leaving = x.waits(key)
		c.Phase = o.Status.Status.Phase
		c.Ready = manifests.IsReady(o.Status)
		for i := range o.Status.Status.ContainerStatuses {
			c.Restarts += int(o.Status.Status.ContainerStatuses[i].RestartCount)
		}
		all[key] = c
	}
	for _, key := range x.deleted {
		if c, ok := all[key]; ok {
			c.Deleted = true
			all[key] = c
		}
	}
	x.deleted = nil
	return all
}

// make completes a pod as if it were a document of its own.
func (x *Expander) make(w Workload, pod *corev1.Pod) (*manifests.Pod, error) {
	key := madeKey{w.Object, pod.Name + " " + pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] + " " + pod.Labels[appsv1.ControllerRevisionHashLabelKey]}
	if p := x.made[key]; p != nil {
		return p, nil
	}
	p, err := complete(w, pod)
	if err != nil {
		return nil, err
	}
	x.made[key] = p
	return p, nil
}

func (x *Expander) claim(all []Workload, c Claim) *manifests.Object {
	var document metav1.Object
	for _, w := range all {
		if w.Origin == c.Origin {
			document = w.Object
		}
	}
	key := madeKey{document, c.Object.Namespace + "/" + c.Object.Name}
	if x.claims[key] == nil {
		x.claims[key] = &manifests.Object{Object: c.Object, Kind: "PersistentVolumeClaim", Origin: c.Origin}
	}
	return x.claims[key]
}

// save stores the state before it is acted on. A state that cannot be stored is acted on anyway: a Job that runs twice is better than one
// that does not run.
func (x *Expander) save(now time.Time, st saved.State) {
	old := x.state
	x.state = st
	if !saved.Differs(old, st) && now.Sub(x.saved) < saveEvery {
		return
	}
	x.saved = now
	if err := x.store.Save(st); err != nil {
		x.log.Error("the state of workloads cannot be stored; after a restart completed Jobs may run again, and revisions be missing", "err", err)
	}
}

// report logs each problem once.
func (x *Expander) report(problems map[string]error) {
	for id, err := range problems {
		if x.logged[id] != err.Error() {
			x.logged[id] = err.Error()
			x.log.Error("workload cannot be run as written; its pods stay as they are", "workload", id, "err", err)
		}
	}
	maps.DeleteFunc(x.logged, func(id, _ string) bool { return problems[id] == nil && !strings.HasPrefix(id, clashPrefix) })
}

// merge appends the pods of workloads to those of documents; of two with one name, that of the local space wins, else the first.
func (x *Expander) merge(documents, made []*manifests.Pod) []*manifests.Pod {
	clear(x.assigned)
	x.clashes = nil
	local := map[manifests.Key]*manifests.Pod{}
	for _, p := range made {
		if x.isLocal(p) && local[p.Key()] == nil {
			local[p.Key()] = p
		}
	}
	all := make([]*manifests.Pod, 0, len(documents)+len(made))
	taken := map[manifests.Key]*manifests.Pod{}
	for _, p := range documents {
		if by := local[p.Key()]; by != nil && !x.isLocal(p) {
			x.clash(p, by)
			continue
		}
		taken[p.Key()] = p
		all = append(all, p)
	}
	for _, p := range made {
		if by := taken[p.Key()]; by != nil {
			x.clash(p, by)
			continue
		}
		taken[p.Key()], x.assigned[p.Key()] = p, p
		all = append(all, p)
	}
	return all
}

// isLocal reports whether a pod is of the local space.
func (x *Expander) isLocal(p *manifests.Pod) bool {
	return x.Spaces.Of(p.Origin.Source) == manifests.LocalSpace
}

// clashPrefix is the prefix of the keys of clashes in logged.
const clashPrefix = "name "

func (x *Expander) clash(p, by *manifests.Pod) {
	x.clashes = append(x.clashes, Clash{Pod: p.Key(), At: p.Origin, By: by.Origin})
	id := clashPrefix + p.Key().String()
	text := fmt.Sprintf("%s:%d and %s:%d", p.Origin.File, p.Origin.Line, by.Origin.File, by.Origin.Line)
	if x.logged[id] != text {
		x.logged[id] = text
		x.log.Error("two pods have the same name; the first one is not run", "pod", p.Key(), "places", text)
	}
}
