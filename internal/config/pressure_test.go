package config

import (
	"testing"

	"monopod/runner/ctrd/bounded"
)

// The highest threshold of a disk counts, whatever signal has it.
func TestImagesLeaveWhatPodsAreEvictedFor(t *testing.T) {
	c := &Config{EvictionHard: map[string]string{"nodefs.available": "10%", "imagefs.available": "15%", "nodefs.inodesFree": "5%", "memory.available": "90%"}}
	p, err := c.Pressure(false)
	if err != nil {
		t.Fatal(err)
	}
	const gib = 1 << 30
	if got, want := EvictsBelow(p.Thresholds)(bounded.Room{Bytes: 100 * gib, Inodes: 1000}), (bounded.Room{Bytes: 15 * gib, Inodes: 50}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
