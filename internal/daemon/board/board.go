// Package board keeps what the daemon knows of all pods, workloads and inputs, and hands it to those who watch or ask.
//
// It must not decide what runs. It has no goroutines.
package board

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/ctrd"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/workload"
)

// Board is where the parts of an App meet: the watcher puts up what is desired, the pool of the open runtime
// takes it from there, and the API reads both. It is node.Pods and node.Inputs.
type Board struct {
	Mu sync.Mutex
	// Desired is the latest value of the watcher; published says that there is one. objects are those of it.
	Desired   model.Desired
	Published bool
	// Rollouts stands between what is wanted and the pool.
	Rollouts *rollout.Controller
	// Pool is nil while no runtime is open; trouble says why then, once there is something to say.
	Pool    *pool.Pool
	trouble error
	// removals are the pods that the open runtime is still taking apart; nil: nothing is known of such.
	removals func() []ctrd.Removal
	// unseen are the pods that the runtime had when it was opened and that the pool has not looked at yet.
	unseen map[manifests.Key]bool
	// seen says that the pool has looked at every pod at least once.
	seen bool
	// expanding says that there are workloads, or have been: the pool is then updated by followWorkloads. expand
	// wakes that.
	expanding bool
	Expand    chan struct{}
	// hashes are those of the manifests that have been carried out.
	hashes manifestHashes
	// graces are how long pods may take that are deleted elsewhere, by uid.
	graces map[string]time.Duration
	// conditions are those of bound pods that readiness gates look at, by uid.
	conditions map[string][]corev1.PodCondition
	// Jobs are the ends of Jobs, by "namespace/name".
	Jobs map[string]string
	// clashes are the pods of workloads that are not run because another one has their name.
	clashes []workload.Clash
	// LastRuns are the times of the schedule for which CronJobs last began a Job, by "namespace/name".
	LastRuns map[string]time.Time
	// readers are the subscriptions of the API.
	readers map[chan struct{}]bool
	// Stir is told each change of a pod. It does not block.
	Stir func(pool.Change)
}

func New() *Board {
	return &Board{readers: map[chan struct{}]bool{}, hashes: manifestHashes{}, Expand: make(chan struct{}, 1), Stir: func(pool.Change) {}}
}

// Publish is called by the watcher with each new desired state.
func (b *Board) Publish(d model.Desired) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Desired, b.Published = d, true
	b.updateLocked()
	b.notifyLocked()
}

func (b *Board) updateLocked() {
	if b.Pool == nil || !b.Published {
		return
	}
	if len(b.Desired.Workloads) > 0 || b.expanding {
		b.expanding = true
		b.expandLater()
		return
	}
	b.Rollouts.Update(b.Desired, b.Pool.Update)
}

// expandLater asks for another look at the workloads.
func (b *Board) expandLater() {
	select {
	case b.Expand <- struct{}{}:
	default: // one is due already
	}
}

// Attach makes the pool the one that is shown and kept up to date, until ctx ends. existing are the pods of
// its runtime.
func (b *Board) Attach(ctx context.Context, p *pool.Pool, existing []manifests.Key) error {
	b.Rollouts.Blind()
	changes := p.Subscribe() // before it is told what is wanted: a pod may be gone at once
	b.Mu.Lock()
	b.Pool, b.trouble, b.unseen, b.seen = p, nil, map[manifests.Key]bool{}, false
	for _, key := range existing {
		b.unseen[key] = true
	}
	p.Graces(b.graces)
	p.Conditions(b.conditions)
	b.updateLocked()
	b.notifyLocked()
	b.Mu.Unlock()
	return changes.Watch(ctx, func(c pool.Change) error {
		b.Stir(c)
		seen := sighting(c.Status)
		if c.Gone {
			seen = nil
		}
		b.Rollouts.Observe(c.Key, seen)
		b.Mu.Lock()
		defer b.Mu.Unlock()
		if c.Gone || c.Status.Looked {
			delete(b.unseen, c.Key)
		}
		b.notifyLocked()
		if b.expanding {
			b.expandLater()
		}
		return nil
	})
}

// Endpoints returns the pods and the Services; ok is false until each has been looked at, and while none can be seen.
func (b *Board) Endpoints() (pods []*corev1.Pod, services []*corev1.Service, ok bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Pool == nil || !b.Published {
		return nil, nil, false
	}
	if b.seen = b.seen || b.Pool.Seen(); !b.seen {
		return nil, nil, false
	}
	for _, s := range b.Pool.Pods() {
		pods = append(pods, s.Pod)
	}
	for _, o := range b.Desired.Objects {
		if s, ok := o.Object.(*corev1.Service); ok {
			services = append(services, s)
		}
	}
	return pods, services, true
}

// Leave says how many seconds pods have to stop that are deleted elsewhere, by uid.
func (b *Board) Leave(seconds map[types.UID]int64) {
	graces := make(map[string]time.Duration, len(seconds))
	for uid, s := range seconds {
		graces[string(uid)] = time.Duration(min(s, math.MaxInt32)) * time.Second
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.graces = graces
	if b.Pool != nil {
		b.Pool.Graces(graces)
	}
}

// Given notes the conditions that controllers have set on bound pods.
func (b *Board) Given(byUID map[types.UID][]corev1.PodCondition) {
	all := make(map[string][]corev1.PodCondition, len(byUID))
	for uid, c := range byUID {
		all[string(uid)] = c
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.conditions = all
	if b.Pool != nil {
		b.Pool.Conditions(all)
	}
}

// NoteJobs takes down which Jobs have ended, and how, and when CronJobs last ran.
func (b *Board) NoteJobs(ends map[string]string, lastRuns map[string]time.Time) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.LastRuns = lastRuns
	if !maps.Equal(b.Jobs, ends) {
		b.Jobs = ends
		b.notifyLocked()
	}
}

// Finished returns what noteJobs was last told.
func (b *Board) Finished() map[string]string {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Jobs
}

// Emptied says that nothing is wanted and nothing is left.
func (b *Board) Emptied() bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Pool == nil || !b.Published || len(b.Desired.Pods)+len(b.Desired.Workloads) > 0 {
		return false
	}
	return b.Pool.Seen() && len(b.seenLocked()) == 0
}

// Detach is the end of the pool.
func (b *Board) Detach() {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Pool = nil
}

// Blind notes why nothing can be seen at the moment.
func (b *Board) Blind(err error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.trouble = err
	b.notifyLocked()
}

// Notify tells the readers that something has changed.
func (b *Board) Notify() {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.notifyLocked()
}

func (b *Board) notifyLocked() {
	for c := range b.readers {
		select {
		case c <- struct{}{}:
		default: // it has not looked at the last change yet
		}
	}
}

// Subscribe implements node.Pods.
func (b *Board) Subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.readers[c] = true
	return c, func() {
		b.Mu.Lock()
		defer b.Mu.Unlock()
		delete(b.readers, c)
	}
}

// Pods implements node.Pods. Without a runtime nothing is known of the pods but their manifests.
func (b *Board) Pods() ([]node.PodView, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	switch {
	case b.Pool != nil && b.Published:
		return b.seenLocked(), nil
	case b.trouble == nil:
		return nil, node.ErrStarting
	}
	err := fmt.Errorf("containers cannot be seen now: %s", printer.OneLine(b.trouble.Error()))
	var out []node.PodView
	for _, p := range b.Desired.Pods {
		out = append(out, b.withRevision(node.PodView{Pod: offline.Unseen(p), Origin: p.Origin, Why: err.Error()}))
	}
	return out, err
}

// NotLookedAt is why nothing is known of a pod that may run.
const NotLookedAt = "monopod has just started and has not looked at it yet"

// seenLocked returns what the pool tells, and the names of pods that it has not got to yet.
func (b *Board) seenLocked() []node.PodView {
	var out []node.PodView
	told := map[manifests.Key]bool{}
	for _, s := range b.Pool.Pods() {
		told[s.Key()] = true
		if b.unseen[s.Key()] && !s.Looked && s.Trouble.Kind != podstatus.TroubleBlind {
			out = append(out, b.withRevision(node.PodView{Pod: offline.Unknown(s.Pod), Origin: s.Origin, Why: NotLookedAt}))
			continue
		}
		out = append(out, b.withRevision(node.PodView{Pod: s.Pod, Origin: s.Origin, Why: s.Why, NextTry: s.NextTry, Failing: s.Failing, Probes: s.Probes, Manifest: b.hashes.get(s.Recorded)}))
	}
	maps.DeleteFunc(b.hashes, func(key manifests.Key, _ recordedHash) bool { return !told[key] })
	for key := range b.unseen {
		if !told[key] {
			pod := offline.Unknown(&corev1.Pod{})
			pod.Namespace, pod.Name = key.Namespace, key.Name
			out = append(out, node.PodView{Pod: pod, Why: NotLookedAt})
		}
	}
	return out
}

// Inputs implements node.Inputs.
func (b *Board) Inputs() []model.Input {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	out := []model.Input{}
	for _, r := range withClashes(b.Desired.Inputs, b.clashes) {
		if IsOwnDirectory(r) {
			continue
		}
		out = append(out, r)
	}
	return out
}

// IsOwnDirectory says that a report is about the directory of what is applied, which nobody asks for.
func IsOwnDirectory(r model.Input) bool {
	return r.Source == config.SourceApplied && r.State == model.InputAccepted && len(r.Pods)+len(r.Objects) == 0
}
