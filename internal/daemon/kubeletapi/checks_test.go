package kubeletapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/node/health"
)

func TestAnUnwritableDirectoryIsReported(t *testing.T) {
	if err := writable(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := writable("/proc"); err == nil || !strings.Contains(err.Error(), "file system is full") {
		t.Errorf("error %v", err) // it has no blocks
	}
	if err := writable("/no/such/directory"); err == nil {
		t.Error("no error of what is not there")
	}
}

// TestALoopThatStandsStillIsUnhealthyAndALostRuntimeOnlyNotReady: a restart helps against the one, not against the other.
func TestALoopThatStandsStillIsUnhealthyAndALostRuntimeOnlyNotReady(t *testing.T) {
	fine, still := func(context.Context) error { return nil }, func(context.Context) error { return errors.New("it stands still") }
	for name, c := range map[string]struct {
		loops      Loops
		published  bool
		live, bad  string
		unreadable bool
	}{
		"no runtime yet":     {loops: Loops{fine, fine, fine}, bad: "runtime sources podsseen"},
		"manifests are read": {loops: Loops{fine, fine, fine}, published: true, bad: "runtime podsseen"},
		"sources":            {loops: Loops{still, fine, fine}, published: true, live: "sourceloop", bad: "sourceloop runtime podsseen"},
		"revisions":          {loops: Loops{fine, still, fine}, published: true, live: "revisionloop", bad: "revisionloop runtime podsseen"},
		"drain":              {loops: Loops{fine, fine, still}, published: true, live: "drainloop", bad: "drainloop runtime podsseen"},
		"full disk":          {loops: Loops{fine, fine, fine}, published: true, unreadable: true, bad: "runtime podsseen store"},
	} {
		_, d := newParts(t)
		root := t.TempDir()
		if c.published {
			d.State.Publish(model.Desired{Order: []string{config.SourceFile}, Reported: map[string]bool{config.SourceFile: true}})
		}
		if c.unreadable {
			root = "/proc"
		}
		checks := NewChecks(d.State, c.loops, root)
		if got := failed(t.Context(), checks, health.Live); got != c.live {
			t.Errorf("%s: not live because of %q, want %q", name, got, c.live)
		}
		if got := failed(t.Context(), checks, health.Ready); got != c.bad {
			t.Errorf("%s: not ready because of %q, want %q", name, got, c.bad)
		}
	}
}

// failed returns the names of the checks that fail.
func failed(ctx context.Context, c *health.Checks, kind health.Kind) string {
	var names []string
	for _, r := range c.Ask(ctx, kind) {
		if r.Err != nil {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, " ")
}
