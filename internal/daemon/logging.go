package daemon

import (
	"io"
	"log/slog"

	"monopod/internal/config"
	"monopod/internal/printer"
)

// NewLogger returns the logger of the daemon. The values have been checked with the configuration. slog quotes what is not
// printable in text; in JSON it leaves C1 control characters and bidirectional overrides.
func NewLogger(w io.Writer, l config.Logging) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(printer.JSONWriter(w), o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
