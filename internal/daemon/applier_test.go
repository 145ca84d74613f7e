package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/atomicfile"
	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/node/events"
	"monopod/runner/rollout"
	"monopod/watcher"
	"monopod/watcher/applied"
)

func TestAChangeThatIsStoredButNotFinishedIsToldAndFinished(t *testing.T) {
	dir := t.TempDir()
	b := newBoard()
	b.publish(watcher.Desired{Reported: map[string]bool{config.SourceFile: true}})
	bad := ""
	store := applied.NewStoreOn(applied.Disk{Write: atomicfile.Write, Replace: func(from, to string) error {
		if to == bad {
			return errors.New("the disk is bad")
		}
		return atomicfile.Replace(from, to)
	}}, dir)
	a := &applier{store: store, board: b, order: []string{config.SourceFile, config.SourceApplied}, log: slog.New(slog.DiscardHandler)}
	way := store.Path(manifests.ObjectID{Kind: "Pod", Namespace: "default", Name: "b"})
	change := applied.Change{Put: map[manifests.ObjectID][]byte{
		{Kind: "Pod", Namespace: "default", Name: "a"}: []byte("a"), {Kind: "Pod", Namespace: "default", Name: "b"}: []byte("b"),
	}}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	bad = way
	var result node.ApplyResult
	if err := a.change(change, &result); err != nil || len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "it is stored") {
		t.Errorf("%+v, %v", result, err)
	}
	app := &App{applied: store, Log: slog.New(slog.DiscardHandler)}
	said := app.openApplied("")
	if said == "" || app.openApplied(said) != said {
		t.Errorf("it says %q", said)
	}
	bad = ""
	if said := app.openApplied(said); said != "" {
		t.Errorf("it says %q", said)
	}
	if got, err := os.ReadFile(way); err != nil || string(got) != "b" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAChangeOfAppliedObjectsThatIsLostIsReported: once, by log and event, and it blocks nothing.
func TestAChangeOfAppliedObjectsThatIsLostIsReported(t *testing.T) {
	store := applied.NewStore(t.TempDir())
	if err := os.WriteFile(filepath.Join(store.Dir(), ".change"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	app := &App{
		applied: store, Log: slog.New(slog.NewTextHandler(&log, nil)), cfg: &config.Loaded{},
		events: events.New(events.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}),
	}
	if said := app.openApplied("") + app.openApplied(""); said != "" || strings.Count(log.String(), "apply it again") != 1 {
		t.Errorf("%q %s", said, log.String())
	}
	all := app.events.List(events.Filter{})
	if len(all) != 1 || all[0].Reason != eventAppliedLost || !strings.Contains(all[0].Message, "apply it again") {
		t.Errorf("%+v", all)
	}
}

// What a file says is not known in the first moments: nothing may slip in before it.
func TestARequestWaitsUntilTheManifestsHaveBeenRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.rollouts = rollout.New(rollout.Config{Store: rollout.NewStore(dir + "/revisions"), Log: slog.New(slog.DiscardHandler), Notify: b.notify})
		b.blind(errors.New("no runtime"))
		a := &applier{store: applied.NewStore(dir), board: b, order: []string{config.SourceFile, config.SourceApplied}, log: slog.New(slog.DiscardHandler)}
		request := node.ApplyRequest{Files: []node.ManifestFile{{Name: "web.yaml", Content: []byte(daemontest.PodYAML("web", "x"))}}}
		start := time.Now()
		if _, err := a.Apply(t.Context(), request); !apierrors.IsServiceUnavailable(err) || time.Since(start) != knownWithin {
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
		b.publish(watcher.Desired{Pods: pods, Reported: map[string]bool{config.SourceFile: true}})
		if err := <-done; !apierrors.IsConflict(err) {
			t.Errorf("the file was overridden: %v", err)
		}
	})
}
