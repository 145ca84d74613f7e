package network

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/atomicfile/damagetest"
	"monopod/runner/ctrd/network/lease"
)

// TestDamagedRecordsOfThePluginsAreRemoved: host-local reads all allocations to release one, and libcni tears nothing down when it cannot read
// what it has kept.
func TestDamagedRecordsOfThePluginsAreRemoved(t *testing.T) {
	for name, spoil := range damagetest.Ways() {
		dir := t.TempDir()
		at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
		networks := filepath.Join(allocationDir(dir), OwnName)
		if err := errors.Join(os.MkdirAll(networks, 0o700), os.MkdirAll(at("results"), 0o700)); err != nil {
			t.Fatal(err)
		}
		address, lock, result := filepath.Join(networks, "10.0.0.2"), filepath.Join(networks, "lock"), at("results", "monopod-id-eth0")
		for _, path := range []string{address, lock, result, at("results", "sound"), filepath.Join(networks, "10.0.0.3")} {
			if err := os.WriteFile(path, []byte(`{"kind": "cniCacheV1"}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(spoil(address), spoil(lock), spoil(result)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dropDamagedResults(at("results")), lease.New(networks, "eth0").DropEmpty()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := os.Lstat(result); err == nil {
			t.Errorf("%s: the result is still there", name)
		}
		for _, path := range []string{address, lock} {
			if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
				t.Errorf("%s: %s is %s", name, path, info.Mode())
			}
		}
		for _, path := range []string{at("results", "sound"), filepath.Join(networks, "10.0.0.3")} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
