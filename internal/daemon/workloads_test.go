package daemon

import (
	"testing"
	"time"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner/pool"
	"monopod/runner/rollout"
	"monopod/runner/runtimetest"
	"monopod/watcher"
)

func TestWhileNotAllPodsHaveBeenSeenTheSameIsHandedOnOnce(t *testing.T) {
	one, err := decode.All("one.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"), decode.Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	// The pool does not run, and sees nothing.
	w := &workloads{pool: pool.New(runtimetest.NewFake(), pool.Config{}), rollouts: rollout.New(rollout.Config{})}
	update := func(d watcher.Desired) *manifests.Objects {
		if next := w.update(time.Now(), d); next != seenWithin {
			t.Errorf("it looks again after %v", next)
		}
		return w.last.Objects
	}
	empty := update(watcher.Desired{})
	if empty == nil || update(watcher.Desired{}) != empty {
		t.Error("the same objects were made again")
	}
	with := update(watcher.Desired{Objects: one.Objects})
	if with.ConfigMap("default", "one") == nil {
		t.Error("the pool does not know the new object")
	}
	if update(watcher.Desired{Objects: one.Objects}) != with {
		t.Error("the same objects were made again")
	}
	if w.last.Removable != nil {
		t.Error("the next update, with what may be removed, would be left out")
	}
}
