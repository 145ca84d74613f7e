package workload

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
)

// saveEvery is the interval of storing the elapsed time of Jobs.
const saveEvery = time.Minute

// Expander expands the workloads of a running agent: in addition to Expand, it remembers the result and stores the state that must survive.
// It belongs to one goroutine.
type Expander struct {
	store *Store
	log   *slog.Logger
	state State
	saved time.Time
	// made caches the pods and claims of each document.
	made   map[madeKey]*manifests.Pod
	claims map[madeKey]*manifests.Object
	// assigned are the pods of the last result.
	assigned map[manifests.Key]*manifests.Pod
	// logged are the problems that were logged last, by id.
	logged map[string]string
	// clashes are those of the last expansion.
	clashes []Clash
}

type madeKey struct {
	document metav1.Object
	name     string
}

// NewExpander reads the stored state. An error concerns only that: the Expander works anyway.
func NewExpander(store *Store, log *slog.Logger) (*Expander, error) {
	x := &Expander{
		store: store, log: log, made: map[madeKey]*manifests.Pod{}, claims: map[madeKey]*manifests.Object{},
		assigned: map[manifests.Key]*manifests.Pod{}, logged: map[string]string{},
	}
	var err error
	x.state, err = store.Load()
	return x, err
}

// Idle reports that no state is stored: Expand then has nothing to do without workloads.
func (x *Expander) Idle() bool { return len(x.state.Jobs)+len(x.state.Crons) == 0 }

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
		if n := len(c.Runs); n > 0 {
			last[strings.TrimPrefix(id, "CronJob ")] = c.Runs[n-1].At
		}
	}
	return last
}

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
	// Next is when to expand again without any change; zero means never.
	Next time.Time
}

// Clash is a pod of a workload that is not run because another pod, written at By, has its name.
type Clash struct {
	Pod    manifests.Key
	At, By manifests.Origin
}

// Expand returns the pods to run now.
func (x *Expander) Expand(now time.Time, d model.Desired, pods []Observed) Result {
	in := Input{Now: now, Pods: x.current(pods), State: x.state, Make: x.make}
	documents := map[metav1.Object]bool{}
	kept := x.kept(d.Keeps, pods)
	for _, o := range d.Workloads {
		doc := Workload{Object: o.Object, Kind: o.Kind, Origin: o.Origin}
		doc.Kept = kept(doc)
		in.Workloads = append(in.Workloads, doc)
		documents[o.Object] = true
	}
	maps.DeleteFunc(x.made, func(k madeKey, _ *manifests.Pod) bool { return !documents[k.document] })
	maps.DeleteFunc(x.claims, func(k madeKey, _ *manifests.Object) bool { return !documents[k.document] })
	out := Expand(in)
	out.State.keep(x.state, d.Removable)
	x.save(now, out.State)
	x.report(out.Problems)
	r := Result{Pods: x.merge(d.Pods, out.Pods), Next: out.Next}
	r.Clashes = x.clashes
	for _, c := range out.Claims {
		r.Claims = append(r.Claims, x.claim(in.Workloads, c))
	}
	return r
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
		key := manifests.Key{Namespace: o.Status.Namespace, Name: o.Status.Name}
		c := all[key]
		if c.Pod == nil {
			c.Pod = o.Recorded
		}
		if c.Pod == nil {
			continue
		}
		c.Settled = o.Recorded != nil && maps.Equal(o.Recorded.Object.Labels, c.Pod.Object.Labels)
		c.Phase = o.Status.Status.Phase
		for _, cond := range o.Status.Status.Conditions {
			c.Ready = c.Ready || cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue
		}
		for i := range o.Status.Status.ContainerStatuses {
			c.Restarts += int(o.Status.Status.ContainerStatuses[i].RestartCount)
		}
		all[key] = c
	}
	return all
}

// make completes a pod as if it were a document of its own.
func (x *Expander) make(w Workload, pod *corev1.Pod) (*manifests.Pod, error) {
	key := madeKey{w.Object, pod.Name + " " + pod.Labels["pod-template-hash"]}
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
func (x *Expander) save(now time.Time, st State) {
	old := x.state
	x.state = st
	if !progress(old, st) && now.Sub(x.saved) < saveEvery {
		return
	}
	x.saved = now
	if err := x.store.Save(st); err != nil {
		x.log.Error("completed Jobs cannot be stored; after a restart they may run again", "err", err)
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

// merge appends the pods of workloads to those of documents; of two with one name, the first wins.
func (x *Expander) merge(documents, made []*manifests.Pod) []*manifests.Pod {
	all := slices.Clone(documents)
	taken := map[manifests.Key]*manifests.Pod{}
	for _, p := range documents {
		taken[p.Key()] = p
	}
	clear(x.assigned)
	x.clashes = nil
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
