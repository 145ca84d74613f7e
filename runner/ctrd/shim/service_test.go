package shim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAContextOutlivesItsParentForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		parent, end := context.WithCancel(context.WithValue(t.Context(), key{}, "namespace"))
		ctx, cancel := outlive(parent, time.Minute)
		defer cancel()
		if ctx.Value(key{}) != "namespace" {
			t.Error("its values are lost")
		}
		end()
		time.Sleep(time.Minute - time.Second)
		if ctx.Err() != nil {
			t.Error("it ended too early")
		}
		time.Sleep(2 * time.Second)
		if ctx.Err() == nil {
			t.Error("it does not end")
		}
		done, cancelDone := outlive(t.Context(), time.Minute)
		cancelDone()
		if done.Err() == nil {
			t.Error("its own end does not end it")
		}
	})
}
