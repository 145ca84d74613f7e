package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/atomicfile"
	"monopod/internal/config"
	"monopod/internal/daemon/apply"
	"monopod/internal/daemon/nodeevents"
	"monopod/internal/daemon/state"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/events"
	"monopod/node/localapi"
	"monopod/watcher/applied"
)

func TestAChangeThatIsStoredButNotFinishedIsToldAndFinished(t *testing.T) {
	dir := t.TempDir()
	b := state.New(&state.Changes{}, nil)
	b.Publish(model.Desired{Reported: map[string]bool{config.SourceFile: true}})
	bad := ""
	store := applied.NewStoreOn(applied.Disk{Write: atomicfile.Write, Replace: func(from, to string) error {
		if to == bad {
			return errors.New("the disk is bad")
		}
		return atomicfile.Replace(from, to)
	}}, dir)
	a := &apply.Applier{Store: store, State: b, Order: []string{config.SourceFile, config.SourceApplied}, Log: slog.New(slog.DiscardHandler)}
	way := store.Path(manifests.ObjectID{Kind: "Pod", Namespace: "default", Name: "b"})
	change := applied.Change{Put: map[manifests.ObjectID][]byte{
		{Kind: "Pod", Namespace: "default", Name: "a"}: []byte("a"), {Kind: "Pod", Namespace: "default", Name: "b"}: []byte("b"),
	}}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	bad = way
	var result localapi.ApplyResult
	if err := a.Change(change, &result); err != nil || len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "the change is recorded") {
		t.Errorf("%+v, %v", result, err)
	}
	app := &desiredLoop{applied: store, log: slog.New(slog.DiscardHandler)}
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
	logger := slog.New(slog.NewTextHandler(&log, nil))
	recorder := nodeevents.New(events.New(events.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}), "node", logger)
	app := &desiredLoop{applied: store, log: logger, events: recorder}
	if said := app.openApplied("") + app.openApplied(""); said != "" || strings.Count(log.String(), "re-apply it") != 1 {
		t.Errorf("%q %s", said, log.String())
	}
	all := recorder.List(events.Filter{})
	if len(all) != 1 || all[0].Reason != "AppliedChangeLost" || !strings.Contains(all[0].Message, "re-apply it") {
		t.Errorf("%+v", all)
	}
}
