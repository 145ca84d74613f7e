//go:build e2e

package events

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/boottime"
)

// shutdownExt4 is EXT4_IOC_SHUTDOWN; with dropLog nothing more reaches the disk, not even the journal, as in a power cut.
const (
	shutdownExt4 = 0x8004587d
	dropLog      = 2
)

// disk is an ext4 file system of its own.
type disk struct {
	t          *testing.T
	image, dir string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file system")
	}
	d := &disk{t: t, image: filepath.Join(t.TempDir(), "disk"), dir: filepath.Join(t.TempDir(), "mounted")}
	d.must("truncate", "-s", "16M", d.image)
	d.must("mkfs.ext4", "-q", d.image)
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	d.mount()
	return d
}

func (d *disk) must(command string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

func (d *disk) mount() { d.must("mount", "-o", "loop", d.image, d.dir) }

// cut is the power cut.
func (d *disk) cut() {
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Error(err)
		return
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdownExt4, dropLog); err != nil {
		d.t.Errorf("shut the file system down: %v", err)
	}
}

// powerOn mounts the disk again, as the machine does at its next boot. That takes a while when another process has made a mount namespace
// meanwhile, which still has the old mount.
func (d *disk) powerOn() {
	d.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Unmount(d.dir, 0)
		if err == nil {
			d.mount()
			// A file system that has been shut down may be read as far as it is in memory, but not written.
			probe := filepath.Join(d.dir, "probe")
			if err = errors.Join(os.WriteFile(probe, nil, 0o600), os.Remove(probe)); err == nil {
				return
			}
		}
		if time.Now().After(end) {
			d.t.Fatalf("mount again: %v", err)
		}
	}
}

// TestAPowerCutLosesNothingThatHadBeenWritten cuts the power at any moment while events are written, repeated, and turned
// into new files. What the store had reported as written before is there at each next boot, with its count.
func TestAPowerCutLosesNothingThatHadBeenWritten(t *testing.T) {
	const limit = 16 << 10
	d := newDisk(t)
	dir := filepath.Join(d.dir, "events")
	written := map[uint64]record{}
	writes, turns, lost := 0, 0, 0
	for round := 0; round < 20 || round < 200 && (writes < 50 || turns < 3); round++ { // a slow disk gets little done in each
		s := &store{dir: dir, limit: limit}
		found, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		b := newBook(limit / 2)
		b.load(found, fmt.Sprint("boot-", round))
		there := map[uint64]record{}
		for _, r := range latest(found) {
			there[r.ID] = r
		}
		for id, r := range written {
			if there[id].Rev < r.Rev || there[id].Count < r.Count {
				lost++
				t.Errorf("round %d: on disk is %+v, written was %+v", round, there[id], r)
			}
		}
		if lost > 0 {
			return
		}
		began, size := time.Now(), int64(0)
		var falling atomic.Bool // what is reported from then on, nobody hears any more
		dark := make(chan struct{})
		for i, last := 0, rand.IntN(15); err == nil; i++ {
			if i == last {
				time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { falling.Store(true); d.cut(); close(dark) })
			}
			at := boottime.Moment{Boot: fmt.Sprint("boot-", round), Since: time.Since(began), Wall: time.Now()}
			b.add(observe(at, pod(fmt.Sprint("pod-", i%9)), corev1.EventTypeWarning, fmt.Sprint("Reason", i%5), "the same again"))
			b.add(observe(at, pod(fmt.Sprint("pod-", i)), corev1.EventTypeNormal, "Started", "Container started"))
			if err = s.write(b.take(true), b.all); err != nil || falling.Load() {
				break
			}
			writes++
			if s.size < size {
				turns++
			}
			size = s.size
			clear(written)
			for _, r := range b.all() {
				written[r.ID] = r
			}
		}
		<-dark
		s.close()
		d.powerOn()
	}
	if writes < 50 || turns < 3 {
		t.Errorf("only %d writes and %d turns in all", writes, turns)
	}
	t.Logf("%d writes, %d turns", writes, turns)
}
