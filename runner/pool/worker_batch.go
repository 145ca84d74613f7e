package pool

import (
	"context"
	"slices"

	"monopod/manifests"
	"monopod/runner"
)

// batch is a plan that is being carried out.
//
// Its actions are applied in order, one after another, with one exception. Creating a container takes long and mostly waits for processes,
// so up to Options.Parallel containers are created concurrently, and each is started as soon as all earlier starts of the plan are done.
//
//	plan:        Create a, Start a, Create b, Start b, Remove c
//	worker:               Start a --------> Start b, Remove c
//	concurrent:  Create a
//	             Create b ----------------
//
// Only images, creations and starts overtake a start that waits for its creation, and no start overtakes another.
type batch struct {
	w    *worker
	pod  *manifests.Pod
	slot slot
	// rest are the actions that have not begun yet, in the plan's order.
	rest []runner.Action
	// skip has the containers with a failed action.
	skip map[string]bool
	// making has the containers that are being created.
	making map[string]bool
	// over receives each completed creation. It has room for all.
	over chan creation
}

// creation is a completed CreateContainer.
type creation struct {
	action runner.Action
	pod    *manifests.Pod
	err    error
}

// apply carries out a plan as described at plan.Plan.
func (w *worker) apply(ctx context.Context, pod *manifests.Pod, actions []runner.Action) {
	b := &batch{
		w: w, pod: pod, rest: slices.Clone(actions), skip: map[string]bool{}, making: map[string]bool{},
		over: make(chan creation, len(actions)),
	}
	defer b.slot.release()
	defer b.drain(ctx)
	for len(b.rest)+len(b.making) > 0 {
		i := b.next()
		if i < 0 {
			if !b.made(ctx, <-b.over) {
				return
			}
			continue
		}
		if ctx.Err() != nil || w.reassigned() || !b.begin(ctx, i) {
			return
		}
	}
}

// next returns the index of the action to begin now; it is negative if a creation must complete first. A possible creation goes before a
// start, because it does not have to wait for it.
func (b *batch) next() int {
	if b.alone() {
		return 0
	}
	start, starts, passed := -1, false, map[string]bool{}
	for i, a := range b.rest {
		switch ready := !passed[a.Container] && !b.making[a.Container]; {
		case a.Kind == runner.StartContainer && ready && !starts:
			start = i
		case a.Kind == runner.StartContainer:
		case a.Kind == runner.CreateContainer && ready && b.room():
			return i
		case a.Kind == runner.CreateContainer:
		case start >= 0:
			return start
		case ready && (a.Kind == runner.EnsureImage || len(b.making) == 0):
			return i
		case a.Kind != runner.EnsureImage:
			return -1
		}
		passed[a.Container] = true
		starts = starts || a.Kind == runner.StartContainer
	}
	return start
}

// alone reports whether containers are created one after another.
func (b *batch) alone() bool { return b.w.observed.Options.Parallel <= 1 }

// room reports whether one more container may be created.
func (b *batch) room() bool { return len(b.making) < b.w.observed.Options.Parallel }

// begin applies an action, or starts to create a container, and reports whether to continue.
func (b *batch) begin(ctx context.Context, i int) bool {
	a := b.rest[i]
	b.rest = slices.Delete(b.rest, i, i+1)
	if a.Container != "" && b.skip[a.Container] {
		return true
	}
	w, pod := b.w, b.w.followed(b.pod, a)
	if !w.acquire(ctx, &b.slot, a.Kind) || w.reassigned() {
		return false // the wait for a slot may have been long
	}
	if a.Kind != runner.CreateContainer || b.alone() {
		return b.proceed(a, w.do(ctx, pod, a, b.over))
	}
	b.making[a.Container] = true
	w.pool.group.Go(func() {
		b.over <- creation{action: a, pod: pod, err: contained(func() error { return w.act(ctx, pod, a) })}
	})
	return true
}

// made records a creation and reports whether to continue.
func (b *batch) made(ctx context.Context, c creation) bool {
	delete(b.making, c.action.Container)
	return b.proceed(c.action, b.w.book(ctx, c.pod, c.action, c.err))
}

// proceed reports whether to continue after an action.
func (b *batch) proceed(a runner.Action, result outcome) bool {
	if result == applied {
		return true
	}
	if result == dropped || a.Container == "" || replacesLater(b.rest) {
		return false
	}
	b.skip[a.Container] = true
	return true
}

// drain waits for running creations.
func (b *batch) drain(ctx context.Context) {
	for len(b.making) > 0 {
		b.made(ctx, <-b.over)
	}
}
