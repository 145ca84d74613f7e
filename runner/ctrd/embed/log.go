package embed

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// setLog redirects containerd's global logger to l until restore is called.
func setLog(l *slog.Logger) (restore func()) {
	std := log.L.Logger
	out, level := std.Out, std.GetLevel()
	hooks := std.ReplaceHooks(logrus.LevelHooks{})
	std.AddHook(bridge{l.With("component", "containerd")})
	std.SetOutput(io.Discard)
	std.SetFormatter(noFormat{})
	// Never debug: containerd would start its shims with a debug socket each.
	std.SetLevel(logrus.WarnLevel)
	if l.Enabled(context.Background(), slog.LevelDebug) {
		std.SetLevel(logrus.InfoLevel)
	}
	return func() {
		std.ReplaceHooks(hooks)
		std.SetOutput(out)
		std.SetFormatter(&logrus.TextFormatter{TimestampFormat: log.RFC3339NanoFixed, FullTimestamp: true})
		std.SetLevel(level)
	}
}

// noFormat avoids the work of formatting for a discarded output.
type noFormat struct{}

// Format implements logrus.Formatter.
func (noFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

// bridge is a logrus hook that logs to slog. Warnings and errors become warnings, because the failed call returns an error too, and all other
// messages debug messages.
type bridge struct{ log *slog.Logger }

// Levels implements logrus.Hook.
func (bridge) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (b bridge) Fire(e *logrus.Entry) error {
	if noise(e) {
		return nil
	}
	level := slog.LevelDebug
	if e.Level <= logrus.WarnLevel && !harmless(e.Message) {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, len(e.Data))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	b.log.LogAttrs(context.Background(), level, e.Message, attrs...)
	return nil
}
