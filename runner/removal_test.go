package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"monopod/runner"
)

func TestAPartOfAnActionEndsWithThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		action, removed := runner.WithRemoval(t.Context())
		part, stop := runner.UntilRemoval(action)
		other, stopOther := runner.UntilRemoval(action)
		stopOther()
		synctest.Wait()
		if part.Err() != nil || other.Err() == nil {
			t.Errorf("before the removal: %v, and one that is over %v", part.Err(), other.Err())
		}
		removed()
		synctest.Wait()
		if !errors.Is(context.Cause(part), runner.ErrRemoved) || errors.Is(context.Cause(other), runner.ErrRemoved) || action.Err() != nil {
			t.Errorf("after it: %v, one that was over %v, the action %v", context.Cause(part), context.Cause(other), action.Err())
		}
		stop()
		alone, stop := runner.UntilRemoval(t.Context()) // an action that no pool applies
		stop()
		if alone.Err() != nil {
			t.Error(alone.Err())
		}
	})
}
