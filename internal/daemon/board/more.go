package board

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/metrics"
	"monopod/node/why"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/rollout"
)

// Sight says why no pods can be seen; nil: they can.
func (b *Board) Sight() error {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	switch {
	case b.Pool != nil && b.Published:
		return nil
	case b.trouble == nil:
		return node.ErrStarting
	}
	return b.trouble
}

// Knows says that the sources have been read, as far as they could.
func (b *Board) Knows() bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Published
}

// View returns what is known now.
func (b *Board) View() View {
	views, err := b.Pods()
	b.Mu.Lock()
	d := b.Desired
	b.Mu.Unlock()
	v := View{
		documents: make(map[manifests.Key]*manifests.Pod, len(d.Pods)), objects: map[manifests.ObjectID]*manifests.Object{},
		removable: d.Removable, pods: make(map[manifests.Key]node.PodView, len(views)), seen: err == nil,
	}
	for _, p := range d.Pods {
		v.documents[p.Key()] = p
	}
	for _, o := range slices.Concat(d.Objects, d.Workloads) {
		v.objects[o.ID()] = o
	}
	for _, p := range views {
		v.pods[manifests.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name}] = p
	}
	return v
}

// PodObjects returns the pods with their status; they are only read.
func (b *Board) PodObjects() []*corev1.Pod {
	views, err := b.Pods()
	if err != nil {
		return nil // the checks tell
	}
	pods := make([]*corev1.Pod, 0, len(views))
	for _, v := range views {
		pods = append(pods, v.Pod)
	}
	return pods
}

// CountInputs returns how many inputs there are, by source and state.
func (b *Board) CountInputs() map[[2]string]int {
	n := map[[2]string]int{}
	for _, in := range b.Inputs() {
		n[[2]string{in.Source, string(in.State)}]++
	}
	return n
}

// CountProbes returns how often each probe said what.
func (b *Board) CountProbes() []metrics.ProbeTotals {
	pool, err := b.running()
	if err != nil {
		return nil
	}
	type name struct{ uid, container, kind string }
	at := map[name]int{}
	var all []metrics.ProbeTotals
	for _, s := range pool.Pods() {
		for _, p := range s.Probes {
			key := name{string(s.Pod.UID), p.Container, p.Kind}
			i, there := at[key]
			if !there { // else another instance of the container
				i = len(all)
				at[key] = i
				all = append(all, metrics.ProbeTotals{Namespace: s.Pod.Namespace, Pod: s.Pod.Name, UID: key.uid, Container: key.container, Kind: key.kind})
			}
			if all[i].Bounds == nil {
				bounds := model.ProbeBounds()
				all[i].Bounds, all[i].Buckets = bounds[:], make([]uint64, len(bounds))
			}
			for j, n := range p.Counts.Buckets {
				all[i].Buckets[j] += uint64(n)
			}
			all[i].Took += p.Counts.Took
			all[i].Successful += p.Counts.Successful
			all[i].Failed += p.Counts.Failed
			all[i].Unknown += p.Counts.Unknown
		}
	}
	return all
}

// Statuses are those of the pods. An error says why there may be others.
func (b *Board) Statuses() ([]podstatus.Status, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	switch {
	case b.Pool == nil && b.trouble != nil:
		return nil, b.trouble
	case b.Pool == nil || !b.Published || !b.Pool.Seen():
		return nil, node.ErrStarting
	}
	return b.Pool.Pods(), nil
}

// running returns the pool and, when there is none, why.
func (b *Board) running() (*pool.Pool, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	switch {
	case b.Pool != nil:
		return b.Pool, nil
	case b.trouble != nil:
		return nil, b.trouble
	}
	return nil, errors.New("the runtime is being opened")
}

// Beat asks whether the loop that hands out pods takes notice. Without a runtime there is none.
func (b *Board) Beat(ctx context.Context) error {
	pool, err := b.running()
	if err != nil {
		return nil //nolint:nilerr // it is tried again for ever, which a restart does not hasten
	}
	if err := pool.Beat(ctx); err != nil {
		if again, _ := b.running(); again != pool {
			return nil // it has ended meanwhile
		}
		return errors.New("the loop over the pods does not answer")
	}
	return nil
}

// Reach asks whether the runtime answers.
func (b *Board) Reach(ctx context.Context) error {
	pool, err := b.running()
	if err != nil {
		return err
	}
	return Reach(ctx, pool)
}

// HaveRead says which sources have not been read.
func (b *Board) HaveRead() error {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if !b.Published {
		return errors.New("no source has been read yet")
	}
	i := slices.IndexFunc(b.Desired.Order, func(name string) bool { return !b.Desired.Reported[name] })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("source %s has not been read yet", b.Desired.Order[i])
}

// HaveSeen says whether each pod was looked at, also of those that are on their way to the pool.
func (b *Board) HaveSeen() error {
	pool, err := b.running()
	if err != nil {
		return err
	}
	b.Mu.Lock()
	wanted := b.Desired.Pods
	b.Mu.Unlock()
	if !pool.Seen(wanted...) {
		return errors.New("not all pods were looked at")
	}
	return nil
}

// Wants returns what is desired and what is known of the pods; ok is false while nothing is.
func (b *Board) Wants() (desired model.Desired, statuses []podstatus.Status, ok bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Pool != nil {
		statuses = b.Pool.Pods()
	}
	return b.Desired, statuses, b.Published && b.Pool != nil && b.Pool.Seen()
}

// WhyBlind says why nothing can be seen.
func (b *Board) WhyBlind() string {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.trouble == nil {
		return node.ErrStarting.Error()
	}
	return printer.OneLine(b.trouble.Error())
}

// withRevision adds to a view which revision of the pod runs.
func (b *Board) withRevision(v node.PodView) node.PodView {
	r, ok := b.Rollouts.View(manifests.Key{Namespace: v.Pod.Namespace, Name: v.Pod.Name})
	if !ok {
		return v
	}
	v.Revision = node.RevisionView{Number: r.Active, Rollback: RollbackText(r), Update: UpdateText(r)}
	if r.Rollback != nil {
		v.Revision.Written = r.Written
	}
	v.Why = cmp.Or(v.Why, v.Revision.Rollback, v.Revision.Update)
	return v
}

// Known returns ErrStarting until there is something to tell.
func (b *Board) Known() (known, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	k := known{Desired: b.Desired, Trouble: b.trouble}
	k.Desired.Inputs = withClashes(k.Desired.Inputs, b.clashes)
	switch {
	case !b.Published, b.Pool == nil && b.trouble == nil:
		return k, node.ErrStarting
	case b.Pool != nil:
		k.Trouble, k.Pool = nil, b.Pool
		k.Statuses = b.Pool.Pods()
		return k, nil
	}
	for _, p := range b.Desired.Pods {
		k.Statuses = append(k.Statuses, podstatus.Status{Pod: offline.Unseen(p), Origin: p.Origin})
	}
	return k, nil
}

// StartExpanding makes the board leave updates to followWorkloads from now on.
func (b *Board) StartExpanding() {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.expanding = true
	b.expandLater()
}

// Wanted returns what the documents ask for; ok is false while that is not known, for another pool, and without workloads.
func (b *Board) Wanted(pool *pool.Pool) (d model.Desired, ok bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Desired, b.expanding && b.Published && b.Pool == pool
}

// Hidden is what the API server does not show as it is, and why. The zero hidden is ready, and so is nil: it shows all.
type Hidden struct {
	mu   sync.Mutex
	whys map[manifests.Key]string
}

// sighting is what a status says about the revision that runs; nil: the pod has not been looked at, or cannot be.
func sighting(s podstatus.Status) *rollout.Observed {
	if !s.Looked || s.Halted() { // a trial does not fail because nothing may run
		return nil
	}
	o := &rollout.Observed{Recorded: s.Recorded, Seen: rollout.Seen{Why: s.Why, Images: s.Images, Ready: s.Pod.Status.Phase == corev1.PodSucceeded}}
	for _, c := range s.Pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionUnknown {
			return nil
		}
		o.Ready = o.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	for _, list := range [][]corev1.ContainerStatus{s.Pod.Status.InitContainerStatuses, s.Pod.Status.ContainerStatuses} {
		for i := range list {
			o.Restarts += int(list[i].RestartCount)
		}
	}
	return o
}

// RollbackText is empty when the pod was not gone back with.
func RollbackText(v rollout.View) string {
	r := v.Rollback
	if r == nil {
		return ""
	}
	why := "by hand"
	if r.Kind == rollout.Automatic {
		why = r.Reason
	}
	return fmt.Sprintf("revision %d runs instead of %d until the manifest changes: %s", v.Active, v.Wanted, why)
}

// RollbackOf is the rollback of a pod as `why` explains it.
func RollbackOf(v rollout.View) why.Rollback {
	if v.Rollback == nil {
		return why.Rollback{}
	}
	return why.Rollback{Text: RollbackText(v), Wanted: v.Wanted, ByHand: v.Rollback.Kind != rollout.Automatic, Culprit: v.Rollback.Culprit}
}

// UpdateText is empty when nothing is awaited.
func UpdateText(v rollout.View) string {
	switch {
	case v.Waits != manifests.Key{}:
		return fmt.Sprintf("revision %d waits until pod %s is Ready, which comes before it in its update group", v.Wanted, v.Waits)
	case v.Trial != nil && v.Trial.ReadyAt != 0:
		return fmt.Sprintf("revision %d is on trial: it must stay Ready, or revision %d returns", v.Active, v.Base)
	case v.Trial != nil:
		return fmt.Sprintf("revision %d is on trial: it must become Ready in time, or revision %d returns", v.Active, v.Base)
	}
	return ""
}

// Known is what the board knows at one moment.
type known struct {
	Desired  model.Desired
	Statuses []podstatus.Status
	Trouble  error
	// Pool is nil while no runtime is open.
	Pool *pool.Pool
}

func (h *Hidden) Note(key manifests.Key, trouble error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case trouble == nil:
		delete(h.whys, key)
	case h.whys == nil:
		h.whys = map[manifests.Key]string{key: printer.OneLine(trouble.Error())}
	default:
		h.whys[key] = printer.OneLine(trouble.Error())
	}
}

func (h *Hidden) Why(key manifests.Key) string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.whys[key]
}

// Reach asks whether the runtime answers at this moment. What nobody asked it lately looks as it did before.
func Reach(ctx context.Context, pool *pool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, runtimePatience)
	defer cancel()
	return pool.Reach(ctx)
}

// runtimePatience is how long the runtime is waited for: who asks why wants an answer.
const runtimePatience = 2 * time.Second
