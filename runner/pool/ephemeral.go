package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/runner"
)

// ErrNotRunning means that ephemeral containers cannot be added, because no pod with that name and uid runs here.
var ErrNotRunning = errors.New("the pod does not run")

// ErrEphemeral means that ephemeral containers cannot be added: the name of one is taken, or there are too many.
var ErrEphemeral = errors.New("ephemeral containers can be added, but not changed")

func errNotRunning(key manifests.Key) error { return fmt.Errorf("pod %s: %w", key, ErrNotRunning) }

// addition is a request to add ephemeral containers. The worker of the pod writes to done, which has room for one result.
type addition struct {
	uid        types.UID
	containers []corev1.EphemeralContainer
	done       chan error
}

// AddEphemeral adds ephemeral containers, defaulted and valid, to the pod with this key and uid, and returns when they are on its record.
// Existing ones with the same definition are skipped. Errors are ErrNotRunning, ErrEphemeral, that of ctx, or that of the runtime.
func (p *Pool) AddEphemeral(ctx context.Context, key manifests.Key, uid types.UID, add []corev1.EphemeralContainer) error {
	a := &addition{uid: uid, containers: add, done: make(chan error, 1)}
	p.mu.Lock()
	e := p.entries[key]
	if p.ended || e == nil || uid == "" {
		p.mu.Unlock()
		return errNotRunning(key)
	}
	e.worker.additions = append(e.worker.additions, a)
	p.wakeLocked(e.worker, e.worker.assign)
	p.mu.Unlock()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.worker.additions = slices.DeleteFunc(e.worker.additions, func(o *addition) bool { return o == a })
	return ctx.Err()
}

// refuseLocked fails all pending requests with an error.
func (w *worker) refuseLocked(err error) {
	for _, a := range w.additions {
		a.done <- err
	}
	w.additions = nil
}

// addEphemeral executes the requests to add ephemeral containers, and reports whether the pod has changed.
func (w *worker) addEphemeral(ctx context.Context) bool {
	changed := false
	for {
		w.pool.mu.Lock()
		if len(w.additions) == 0 || changed {
			w.pool.mu.Unlock()
			return changed
		}
		a := w.additions[0]
		w.additions = w.additions[1:]
		w.pool.mu.Unlock()
		fresh, err := w.newEphemeral(a)
		if err == nil && len(fresh) > 0 {
			err = w.recordEphemeral(ctx, fresh)
			changed = err == nil
		}
		a.done <- err
	}
}

func (w *worker) recordEphemeral(ctx context.Context, fresh []corev1.EphemeralContainer) error {
	action := runner.Action{Kind: runner.RecordEphemeral, UID: w.observed.Sandbox.UID, Ephemeral: fresh}
	err := contained(func() error { return w.act(ctx, nil, action) })
	if err == nil {
		w.logApplied(action)
	}
	return err
}

// newEphemeral returns the ephemeral containers of a request that the pod does not have yet.
func (w *worker) newEphemeral(a *addition) ([]corev1.EphemeralContainer, error) {
	sb := w.observed.Sandbox
	if sb == nil || types.UID(sb.UID) != a.uid || w.now.desired == nil && w.now.settled && w.now.removable(w.origin()) {
		return nil, errNotRunning(w.key)
	}
	all, fresh := slices.Clone(sb.Ephemeral), []corev1.EphemeralContainer(nil)
	for i := range a.containers {
		c := &a.containers[i]
		if was := slices.IndexFunc(all, func(e corev1.EphemeralContainer) bool { return e.Name == c.Name }); was >= 0 {
			if !equality.Semantic.DeepEqual(all[was], *c) {
				return nil, fmt.Errorf("pod %s: ephemeral container %s: %w", w.key, c.Name, ErrEphemeral)
			}
			continue
		}
		if w.takenByContainer(c.Name) {
			return nil, fmt.Errorf("pod %s: the name %s is that of another container: %w", w.key, c.Name, ErrEphemeral)
		}
		all, fresh = append(all, *c), append(fresh, *c)
	}
	if len(all) > runner.MaxEphemeral {
		return nil, fmt.Errorf("pod %s: at most %d ephemeral containers: %w", w.key, runner.MaxEphemeral, ErrEphemeral)
	}
	return fresh, nil
}

// takenByContainer reports whether a container of the desired or the recorded manifest has this name.
func (w *subject) takenByContainer(name string) bool {
	for _, pod := range []*manifests.Pod{w.now.desired, w.observed.Sandbox.Pod} {
		if pod != nil && manifests.FindContainer(&pod.Object.Spec, name) != nil {
			return true
		}
	}
	return slices.ContainsFunc(w.observed.Containers, func(c runner.Container) bool { return c.Name == name })
}

// isEphemeral reports whether the pod has an ephemeral container with this name.
func (w *subject) isEphemeral(name string) bool {
	sb := w.observed.Sandbox
	if sb == nil || name == "" || !slices.ContainsFunc(sb.Ephemeral, func(e corev1.EphemeralContainer) bool { return e.Name == name }) {
		return false
	}
	return w.manifest == nil || manifests.FindContainer(&w.manifest.Object.Spec, name) == nil
}

// namesOf returns the names of ephemeral containers.
func namesOf(all []corev1.EphemeralContainer) []string {
	names := make([]string, 0, len(all))
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names
}
