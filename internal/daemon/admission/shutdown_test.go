package admission

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemon/board"
	"monopod/internal/daemontest"
)

func TestWhatDoesNotStopInTimeIsNamed(t *testing.T) {
	t.Parallel()
	log := &daemontest.SyncBuffer{}
	g := New(nil, board.New(), slog.New(slog.DiscardHandler))
	s := &Shutdown{Gate: g, Groups: []config.ShutdownGroup{{Grace: time.Millisecond}}, Log: slog.New(slog.NewTextHandler(log, nil)), Tell: func(string, string, string) {}, Marker: ShutdownMarker{Path: t.TempDir() + "/none/marker"}}
	s.stop(t.Context(), "a test") // nothing is known of any pod
	if !g.IsEnding() || !strings.Contains(log.String(), "the machine may go down") {
		t.Errorf("%s", log)
	}
}
