package pool

import (
	"context"
	"slices"
	"sync"
	"time"

	"monopod/internal/model"
	"monopod/runner"
)

// activities are the actions of a pod that the runtime has not completed yet. The zero value is empty.
type activities struct {
	mu  sync.Mutex
	all []*model.Doing
}

// begin registers an action until end is called. Phases of the action are registered through the returned context.
func (d *activities) begin(ctx context.Context, a runner.Action, now func() time.Time) (_ context.Context, end func()) {
	of := model.Doing{Kind: string(a.Kind), Container: a.Container, Since: now()}
	ctx = runner.WithBegin(ctx, func(phase string) func() {
		part := of
		part.Phase, part.Since = phase, now()
		return d.add(&part)
	})
	return ctx, d.add(&of)
}

func (d *activities) add(one *model.Doing) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = slices.DeleteFunc(d.all, func(o *model.Doing) bool { return o == one })
	}
}

// list returns the actions, oldest first.
func (d *activities) list() []model.Doing {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []model.Doing
	for _, one := range d.all {
		all = append(all, *one)
	}
	return all
}
