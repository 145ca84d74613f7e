package kubeserver

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheEpochGrowsWhateverHappens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "api")
	early, late := time.Date(1970, 1, 1, 0, 0, 5, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	last := uint32(0)
	raise := func(what string, now time.Time) {
		t.Helper()
		epoch, err := raiseEpoch(dir, now, slog.New(slog.DiscardHandler))
		if err != nil || epoch <= last {
			t.Fatalf("%s: %d after %d, %v", what, epoch, last, err)
		}
		last = epoch
	}
	raise("the first start, without a clock", early)
	raise("the second", early)
	raise("with a clock", late)
	raise("at the same moment", late)
	raise("with the clock lost", early)
	path := filepath.Join(dir, epochFile)
	for name, damage := range map[string]func() error{
		"an empty file": func() error { return os.WriteFile(path, nil, 0o600) },
		"another text":  func() error { return os.WriteFile(path, []byte("-7"), 0o600) },
		"no file":       func() error { return os.Remove(path) },
		"a directory":   func() error { return os.Mkdir(path, 0o700) },
	} {
		if name == "a directory" {
			_ = os.Remove(path)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		late = late.Add(time.Hour)
		raise(name, late)
	}
}

func TestAnEpochThatCannotBeStoredIsNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if epoch, err := raiseEpoch(dir, time.Now(), slog.New(slog.DiscardHandler)); err == nil {
		t.Errorf("%d", epoch)
	}
}
