package diagnose

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/events"
	"monopod/runner/rollout"
)

// TestOfOtherPodsNothingIsLookedUp: there may be thousands of them.
func TestOfOtherPodsNothingIsLookedUp(t *testing.T) {
	var pods []*manifests.Pod
	for _, name := range []string{"web", "other"} {
		loaded, err := decode.Pods("/m/"+name+".yaml", []byte(daemontest.PodYAML(name, "x")), decode.Options{Source: config.SourceFile})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, loaded...)
	}
	b := state.New(&state.Changes{}, rollout.New(rollout.Config{Log: slog.New(slog.DiscardHandler), Clock: func() boottime.Moment { return boottime.Moment{Boot: "b", Since: time.Hour} }}))
	ctx, cancel := context.WithCancel(t.Context())
	ended, handed := make(chan error, 1), make(chan struct{})
	go func() { ended <- b.Rollouts.Run(ctx) }()
	b.Rollouts.Update(model.Desired{Pods: pods}, func(model.Desired) { close(handed) })
	<-handed
	b.Blind(errors.New("no runtime"))
	b.Publish(model.Desired{Pods: pods})
	e := &Explainer{State: b, Now: time.Now, Events: events.New(events.Config{Dir: t.TempDir()})}
	for name, want := range map[string]map[string]int{"web": {"web": 1, "other": 0}, "": {"web": 1, "other": 1}} {
		f, err := e.facts(ctx, "default", name)
		got := map[string]int{}
		for _, p := range f.Pods {
			if got[p.Object.Name] = p.Revision; p.Where == "" {
				t.Errorf("%s is nowhere", p.Object.Name)
			}
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("about %q: revisions %v, %v", name, got, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
