package apply

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests/decode"
	"monopod/node/localapi"
	"monopod/runner/rollout"
	"monopod/watcher/applied"
)

// What a file says is not known in the first moments: nothing may slip in before it.
func TestARequestWaitsUntilTheManifestsHaveBeenRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		changes := &state.Changes{}
		b := state.New(changes, rollout.New(rollout.Config{Store: rollout.NewStore(dir + "/revisions"), Log: slog.New(slog.DiscardHandler), Notify: changes.Notify}))
		b.Blind(errors.New("no runtime"))
		a := &Applier{Store: applied.NewStore(dir), State: b, Order: []string{config.SourceFile, config.SourceApplied}, Log: slog.New(slog.DiscardHandler)}
		request := localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "web.yaml", Content: []byte(daemontest.PodYAML("web", "x"))}}}
		start := time.Now()
		if _, err := a.Apply(t.Context(), request); !apierrors.IsServiceUnavailable(err) || time.Since(start) != startTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		done := make(chan error)
		go func() {
			_, err := a.Apply(context.WithoutCancel(t.Context()), request)
			done <- err
		}()
		synctest.Wait()
		pods, err := decode.Pods("/m/web.yaml", []byte(daemontest.PodYAML("web", "y")), decode.Options{Source: config.SourceFile})
		if err != nil {
			t.Fatal(err)
		}
		b.Publish(model.Desired{Pods: pods, Reported: map[string]bool{config.SourceFile: true}})
		if err := <-done; !apierrors.IsConflict(err) {
			t.Errorf("the file was overridden: %v", err)
		}
	})
}
