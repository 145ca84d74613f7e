// Package activity keeps the actions of a pod that are in progress: what users see of them, and how those that take long are ended with
// the pod. It must not know what an action does. It has no goroutines.
package activity

import (
	"context"
	"slices"
	"sync"
	"time"

	"monopod/internal/model"
	"monopod/runner"
)

// Actions are those of a pod that the runtime has not completed yet. The zero value is empty.
type Actions struct {
	mu  sync.Mutex
	all []*model.Doing
	// removals end the parts of actions that need not be completed for a pod that is removed.
	removals map[*model.Doing]context.CancelFunc
}

// Begin registers an action until end is called. Phases of the action are registered through the returned context.
func (d *Actions) Begin(ctx context.Context, a runner.Action, now func() time.Time) (_ context.Context, end func()) {
	of := model.Doing{Kind: string(a.Kind), Container: a.Container, Since: now()}
	ctx = runner.WithBegin(ctx, func(phase string) func() {
		part := of
		part.Phase, part.Since = phase, now()
		return d.add(&part)
	})
	ctx, removed := runner.WithRemoval(ctx)
	over := d.add(&of)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removals == nil {
		d.removals = map[*model.Doing]context.CancelFunc{}
	}
	d.removals[&of] = removed
	return ctx, func() {
		over()
		removed()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.removals, &of)
	}
}

// Remove tells the actions in progress that the pod is to be removed.
func (d *Actions) Remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, removed := range d.removals {
		removed()
	}
}

func (d *Actions) add(one *model.Doing) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = slices.DeleteFunc(d.all, func(o *model.Doing) bool { return o == one })
	}
}

// List returns the actions, oldest first.
func (d *Actions) List() []model.Doing {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []model.Doing
	for _, one := range d.all {
		all = append(all, *one)
	}
	return all
}
