package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemontest"
)

func TestWhatDoesNotStopInTimeIsNamed(t *testing.T) {
	t.Parallel()
	log := &daemontest.SyncBuffer{}
	g := newGate(nil, newBoard(), slog.New(slog.DiscardHandler))
	s := &shutdown{gate: g, groups: []config.ShutdownGroup{{Grace: time.Millisecond}}, log: slog.New(slog.NewTextHandler(log, nil)), tell: func(string, string, string) {}, marker: shutdownMarker{path: t.TempDir() + "/none/marker"}}
	s.stop(t.Context(), "a test") // nothing is known of any pod
	if !g.isEnding() || !strings.Contains(log.String(), "the machine may go down") {
		t.Errorf("%s", log)
	}
}
