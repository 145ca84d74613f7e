package runner

import (
	"context"
	"errors"
)

// ErrRemoved is the error of a step that was ended because its pod is to be removed.
var ErrRemoved = errors.New("the pod is to be removed")

type removalKey struct{}

// WithRemoval returns a context for an action on a pod. The caller calls removed when the pod is to be removed while the action is in
// progress.
func WithRemoval(ctx context.Context) (_ context.Context, removed context.CancelFunc) {
	removal, removed := context.WithCancel(ctx)
	return context.WithValue(ctx, removalKey{}, removal), removed
}

// UntilRemoval returns a context for a part of an action that may take long and leaves nothing behind if it is ended: it also ends, with
// ErrRemoved as its cause, when the pod is to be removed. A Runtime calls it, and must call stop.
func UntilRemoval(ctx context.Context) (_ context.Context, stop func()) {
	removal, ok := ctx.Value(removalKey{}).(context.Context)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(removal, func() { cancel(ErrRemoved) })
	return ctx, func() { unwatch(); cancel(nil) }
}
