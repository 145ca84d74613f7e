package file

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod/watcher/watchertest"
)

// unhurried are graces within which a test does what it does, however slow the machine is; with hasty ones, what is gone goes.
func unhurried() graces {
	return graces{loss: time.Hour, longestLoss: time.Hour, aside: time.Hour, replaced: time.Hour, shrink: time.Hour}
}

func hasty() graces {
	return graces{loss: time.Millisecond, longestLoss: 5 * time.Millisecond, aside: time.Millisecond, replaced: time.Millisecond, shrink: 2 * time.Millisecond}
}

// standOn starts a Source on path, with which nothing goes that may come again.
func standOn(tb testing.TB, path string) *watchertest.Runner {
	tb.Helper()
	return standWith(tb, Config{Path: path}, unhurried())
}

func standWith(tb testing.TB, cfg Config, g graces) *watchertest.Runner {
	tb.Helper()
	loader := &watchertest.LineLoader{Source: "file"}
	if cfg.Load == nil {
		cfg.Load = loader.Load
	}
	if cfg.CheckFrequency == 0 {
		cfg.CheckFrequency = time.Hour // what is seen is seen by events
	}
	src := New(cfg)
	src.graces = g
	s := watchertest.StartSource(tb, src)
	s.Dir, s.Loader = cfg.Path, loader
	return s
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
