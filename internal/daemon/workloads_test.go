package daemon

import (
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
)

func TestWhileNotAllPodsHaveBeenSeenTheSameIsHandedOnOnce(t *testing.T) {
	one, err := decode.All("one.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"), decode.Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	// The pool does not run, and sees nothing.
	p := pool.New(runtimetest.NewFake(), pool.Config{})
	w := &workloads{pool: p, handTo: p.Update, rollouts: rollout.New(rollout.Config{})}
	update := func(d model.Desired) bool {
		w.last.Order = []string{"stays"}
		if next := w.update(time.Now(), d, nil); next != seenWithin {
			t.Errorf("it looks again after %v", next)
		}
		return len(w.last.Order) == 0
	}
	if !update(model.Desired{}) || update(model.Desired{}) {
		t.Error("an empty desired state is not handed on once")
	}
	if !update(model.Desired{Objects: one.Objects}) || len(w.last.Objects) != 1 {
		t.Error("the pool does not know the new object")
	}
	if update(model.Desired{Objects: one.Objects}) {
		t.Error("the same objects were handed on again")
	}
	if !w.last.Incomplete || w.last.Removable(manifests.Origin{}) {
		t.Error("something may be removed before all pods have been seen")
	}
}
