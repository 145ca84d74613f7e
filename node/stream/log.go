package stream

import (
	"context"
	"log/slog"
)

// debugHandler writes what a library has to say at the level of details, whatever it thinks of it: most of it is about
// clients that have gone.
type debugHandler struct{ slog.Handler }

// Enabled implements slog.Handler.
func (d debugHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (d debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{d.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (d debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{d.Handler.WithGroup(name)}
}
