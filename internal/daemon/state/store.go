// Package state is the daemon's state in memory: the desired pods, the pool that runs them, and what clients may see of both.
//
// It must not decide what runs: it passes desired pods to the rollout controller, and reports what the pool has observed. It starts no goroutines.
package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/podstatus"
	"monopod/runner/pool"
	"monopod/runner/rollout"
)

// runtimeTimeout bounds how long Reach waits for the runtime: a client is waiting for the answer.
const runtimeTimeout = 2 * time.Second

// Store connects the watcher, which publishes the desired state, the pool of the open runtime, which runs it, and the API, which reads both.
// It implements node.Pods and node.Inputs.
type Store struct {
	*Changes
	// Bound, Workloads and Removals have locks of their own. Store may call them while it holds mu, never the reverse.
	Bound     Bound
	Workloads *Workloads
	Removals  Removals
	// Rollouts receives the desired pods and passes them to the pool.
	Rollouts *rollout.Controller
	// Spaces are the boundaries between sources; nil means that there are none.
	Spaces *manifests.Spaces
	// replaced has a lock of its own, as those above.
	replaced replacements

	mu sync.Mutex // guards all below
	// desired is the latest value of the watcher, once published is true.
	desired   model.Desired
	published bool
	// pool is nil while no runtime is open; trouble is the reason, nil during startup.
	pool    *pool.Pool
	trouble error
	// unseen are pods that existed when the runtime was opened and that the pool has not observed yet.
	unseen map[manifests.Key]bool
	// seen: the pool has observed every pod at least once.
	seen   bool
	hashes manifestHashes
	// wanted are the same of the manifests that are to be applied.
	wanted manifestHashes
}

// New returns an empty Store. The controller should report changes to the same Changes.
func New(changes *Changes, rollouts *rollout.Controller) *Store {
	return &Store{Changes: changes, Workloads: newWorkloads(changes), Rollouts: rollouts, hashes: manifestHashes{}, wanted: manifestHashes{}}
}

// Publish takes a new desired state from the watcher.
func (s *Store) Publish(d model.Desired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Workloads.note(s.desired, d)
	s.desired, s.published = d, true
	s.updateLocked()
	s.Notify()
}

// updateLocked passes the desired state to the pool: through the expander if there are workloads.
func (s *Store) updateLocked() {
	if s.pool == nil || !s.published {
		return
	}
	if len(s.desired.Workloads) > 0 || s.Workloads.isEnabled() {
		s.Workloads.Enable()
		return
	}
	s.Rollouts.Update(s.desired, s.Feed(s.pool))
}

// Attach shows and updates a pool until ctx ends. existing are the pods of its runtime; each change is passed to the observers first,
// which must not block.
func (s *Store) Attach(ctx context.Context, p *pool.Pool, existing []manifests.Key, observers ...func(pool.Change)) error {
	s.Rollouts.Blind()
	changes := p.Subscribe() // before the first update, which may remove a pod at once
	s.mu.Lock()
	s.pool, s.trouble, s.unseen, s.seen = p, nil, map[manifests.Key]bool{}, false
	for _, key := range existing {
		s.unseen[key] = true
	}
	s.Bound.attach(p)
	s.updateLocked()
	s.Notify()
	s.mu.Unlock()
	return changes.Watch(ctx, func(c pool.Change) error {
		for _, observe := range observers {
			observe(c)
		}
		observed := observedRevision(c.Status)
		if c.Gone {
			observed = nil
		}
		s.Rollouts.Observe(c.Key, observed)
		s.replaced.observed(c)
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.Gone || c.Status.Looked {
			delete(s.unseen, c.Key)
		}
		s.Notify()
		s.Workloads.changed()
		return nil
	})
}

// AddEphemeral adds ephemeral containers to a pod that runs: see pool.Pool.
func (s *Store) AddEphemeral(ctx context.Context, key manifests.Key, uid types.UID, add []corev1.EphemeralContainer) error {
	s.mu.Lock()
	p := s.pool
	s.mu.Unlock()
	if p == nil {
		return errors.New("the container runtime is not open")
	}
	return p.AddEphemeral(ctx, key, uid, add)
}

// Detach forgets the pool, which has ended.
func (s *Store) Detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = nil
	s.Bound.attach(nil)
}

// Blind stores why pods cannot be observed at the moment.
func (s *Store) Blind(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
	s.Notify()
}

// Desired returns the latest desired state; ok is false before the first one.
func (s *Store) Desired() (d model.Desired, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired, s.published
}

// Expandable returns the desired state whose workloads are to be expanded for a pool; ok is false if there are none, nothing is published
// yet, or another pool is attached.
func (s *Store) Expandable(pool *pool.Pool) (d model.Desired, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired, s.Workloads.isEnabled() && s.published && s.pool == pool
}

// Endpoints returns the pods and the Services with their sources; ok is false until the pool has observed each pod, and without a pool.
func (s *Store) Endpoints() (e model.Endpoints, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool == nil || !s.published {
		return e, false
	}
	if s.seen = s.seen || s.pool.Seen(); !s.seen {
		return e, false
	}
	e.Origins = &model.Origins{Spaces: s.Spaces, Pods: map[manifests.Key]string{}, Services: serviceSources(s.desired.Objects)}
	for _, st := range s.pool.Pods() {
		e.Pods = append(e.Pods, st.Pod)
		e.Origins.Pods[st.Key()] = st.Origin.Source
	}
	e.Services = s.servicesLocked()
	return e, true
}

// serviceSources returns the sources of Services.
func serviceSources(objects []*manifests.Object) map[manifests.Key]string {
	all := map[manifests.Key]string{}
	for _, o := range objects {
		if s, ok := o.Object.(*corev1.Service); ok {
			all[manifests.Key{Namespace: s.Namespace, Name: s.Name}] = o.Origin.Source
		}
	}
	return all
}

// Services returns the desired Services; ok is false before the first desired state.
func (s *Store) Services() (services []*corev1.Service, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servicesLocked(), s.published
}

func (s *Store) servicesLocked() (out []*corev1.Service) {
	for _, o := range s.desired.Objects {
		if service, ok := o.Object.(*corev1.Service); ok {
			out = append(out, service)
		}
	}
	return out
}

// ServiceOrigins returns the sources of the desired Services.
func (s *Store) ServiceOrigins() *model.Origins {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &model.Origins{Spaces: s.Spaces, Services: serviceSources(s.desired.Objects)}
}

// Empty reports whether no pods are desired and none are left.
func (s *Store) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool == nil || !s.published || len(s.desired.Pods)+len(s.desired.Workloads) > 0 {
		return false
	}
	return s.pool.Seen() && len(s.viewsLocked()) == 0
}

// Trouble returns why pods cannot be observed; nil: they can.
func (s *Store) Trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pool != nil && s.published:
		return nil
	case s.trouble == nil:
		return node.ErrStarting
	}
	return s.trouble
}

// TroubleText returns in one line why no runtime is open, for the end of a sentence.
func (s *Store) TroubleText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil {
		return node.ErrStarting.Error()
	}
	return printer.OneLine(s.trouble.Error())
}

// Statuses returns the status of all pods. An error is the reason why there may be more.
func (s *Store) Statuses() ([]podstatus.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pool == nil && s.trouble != nil:
		return nil, s.trouble
	case s.pool == nil || !s.published || !s.pool.Seen():
		return nil, node.ErrStarting
	}
	return s.pool.Pods(), nil
}

// Current returns the desired state and the known status of pods; complete is false until each pod has been observed.
func (s *Store) Current() (desired model.Desired, statuses []podstatus.Status, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool != nil {
		statuses = s.pool.Pods()
	}
	return s.desired, statuses, s.published && s.pool != nil && s.pool.Seen()
}

// Known is what the Store knows at one moment.
type Known struct {
	Desired  model.Desired
	Statuses []podstatus.Status
	Trouble  error
	// Pool is nil while no runtime is open.
	Pool *pool.Pool
}

// Known returns node.ErrStarting until something has been published, and a runtime has been opened or has failed to open.
func (s *Store) Known() (Known, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := Known{Desired: s.desired, Trouble: s.trouble}
	k.Desired.Inputs = s.Workloads.report(k.Desired.Inputs)
	switch {
	case !s.published, s.pool == nil && s.trouble == nil:
		return k, node.ErrStarting
	case s.pool != nil:
		k.Trouble, k.Pool = nil, s.pool
		k.Statuses = s.pool.Pods()
		return k, nil
	}
	for _, p := range s.desired.Pods {
		k.Statuses = append(k.Statuses, podstatus.Status{Pod: offline.Unseen(p), Origin: p.Origin})
	}
	return k, nil
}

// running returns the pool, or why there is none.
func (s *Store) running() (*pool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pool != nil:
		return s.pool, nil
	case s.trouble != nil:
		return nil, s.trouble
	}
	return nil, errors.New("connecting to the runtime")
}

// CheckPodLoop returns an error if the loop of the pool does not answer. Without a runtime there is no such loop.
func (s *Store) CheckPodLoop(ctx context.Context) error {
	pool, err := s.running()
	if err != nil {
		return nil //nolint:nilerr // opening the runtime is retried forever, which a restart would not hasten
	}
	if err := pool.Beat(ctx); err != nil {
		if again, _ := s.running(); again != pool {
			return nil // it has ended meanwhile
		}
		return errors.New("the pod loop does not respond")
	}
	return nil
}

// CheckRuntime returns an error if the runtime does not answer.
func (s *Store) CheckRuntime(ctx context.Context) error {
	pool, err := s.running()
	if err != nil {
		return err
	}
	return Reach(ctx, pool)
}

// Reach returns an error if the runtime of a pool does not answer soon. If nothing has used the runtime lately, its last answer counts.
func Reach(ctx context.Context, pool *pool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	return pool.Reach(ctx)
}

// CheckSources returns an error naming a source that has not been read yet.
func (s *Store) CheckSources(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.published {
		return errors.New("no source has been read yet")
	}
	i := slices.IndexFunc(s.desired.Order, func(name string) bool { return !s.desired.Reported[name] })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("source %s has not been read yet", s.desired.Order[i])
}

// CheckObserved returns an error unless each pod has been observed, including desired pods that have not reached the pool yet.
func (s *Store) CheckObserved(context.Context) error {
	pool, err := s.running()
	if err != nil {
		return err
	}
	d, _ := s.Desired()
	if !pool.Seen(d.Pods...) {
		return errors.New("not all pods have been observed")
	}
	return nil
}

// observedRevision returns what a status says about the running revision; nil: the pod has not been observed, cannot be, or is halted.
func observedRevision(s podstatus.Status) *rollout.Observed {
	if !s.Looked || s.Halted() { // a trial must not fail because pods are not allowed to run
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
