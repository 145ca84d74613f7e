package embed

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestBundlesThatWereBeingRemovedAreRemoved(t *testing.T) {
	cfg := Config{Root: t.TempDir(), State: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for _, top := range []string{cfg.Root, cfg.State} {
		for _, id := range []string{".gone", "there"} {
			if err := os.MkdirAll(filepath.Join(top, "io.containerd.runtime.v2.task", Namespace, id, "rootfs"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	cleanBundles(cfg)
	for _, top := range []string{cfg.Root, cfg.State} {
		entries, err := os.ReadDir(filepath.Join(top, "io.containerd.runtime.v2.task", Namespace))
		if err != nil || len(entries) != 1 || entries[0].Name() != "there" {
			t.Errorf("left are %v, %v", entries, err)
		}
	}
}
