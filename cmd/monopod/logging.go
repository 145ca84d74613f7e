package main

import (
	"io"
	"log/slog"
)

// newLogger returns the logger of the daemon. The values have been checked with the configuration.
func newLogger(w io.Writer, l Logging) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
