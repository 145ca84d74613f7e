package embed

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// setLog sends containerd's messages to l until restore is called. containerd's default logger is a global.
func setLog(l *slog.Logger) (restore func()) {
	std := log.L.Logger
	out, level := std.Out, std.GetLevel()
	hooks := std.ReplaceHooks(logrus.LevelHooks{})
	std.AddHook(bridge{l.With("component", "containerd")})
	std.SetOutput(io.Discard)
	std.SetFormatter(noFormat{})
	// Never debug: at that level containerd starts its shims with a debug socket each.
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

// noFormat spares logrus the work of formatting for an output nobody reads.
type noFormat struct{}

// Format implements logrus.Formatter.
func (noFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

// bridge is a logrus hook that logs to slog: warnings and errors as warnings, because what matters to
// a pod is also an error of the call that failed, and the rest as debug.
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
