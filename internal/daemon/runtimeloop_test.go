package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"monopod/internal/daemontest"
)

// uninstall used to print the error.
func TestAnImportThatAStopCutsOffIsNoError(t *testing.T) {
	log := &daemontest.SyncBuffer{}
	a := &runtimeLoop{log: slog.New(slog.NewTextHandler(log, nil))}
	a.preloaded(fmt.Errorf("import: %w", context.Canceled))
	if log.String() != "" {
		t.Errorf("logged: %s", log)
	}
	if a.preloaded(errors.New("damaged")); !strings.Contains(log.String(), "damaged") {
		t.Errorf("logged: %s", log)
	}
}
