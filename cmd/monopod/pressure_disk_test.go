package main

import (
	"testing"

	"monopod/runner/ctrd/bounded"
)

// An image gets no pod evicted: it leaves more than the highest threshold of a disk, whatever signal has it.
func TestImagesLeaveWhatPodsAreEvictedFor(t *testing.T) {
	c := &Config{EvictionHard: map[string]string{"nodefs.available": "10%", "imagefs.available": "15%", "nodefs.inodesFree": "5%", "memory.available": "90%"}}
	p, err := c.pressure(false)
	if err != nil {
		t.Fatal(err)
	}
	const gib = 1 << 30
	if got, want := keepOfDisk(p.Thresholds)(bounded.Room{Bytes: 100 * gib, Inodes: 1000}), (bounded.Room{Bytes: 15*gib + diskMargin, Inodes: 60}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
