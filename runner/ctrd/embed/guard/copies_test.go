package guard

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"monopod/internal/atomicfile/damagetest"
)

// TestCopiesFollowChangesAndRestWithoutAny: a change is in the mirror soon, without Flush, and nothing is written while nothing changes.
func TestCopiesFollowChangesAndRestWithoutAny(t *testing.T) {
	n := newNode(t)
	copies := make(chan error)
	ended := make(chan struct{})
	n.flushed = func(err error) {
		select {
		case copies <- err:
		case <-ended:
		}
	}
	n.start()
	n.container("a", "")
	for n.copiedTx() != n.tx() {
		ok(t, <-copies)
	}
	close(ended)
	n.stop() // what follows asks what it would do
	if n.backupDue(time.Now()).IsZero() {
		t.Error("a change is not backed up")
	}
	now := time.Now()
	ok(t, n.makeBackup(now))
	if due := n.backupDue(now); !due.IsZero() {
		t.Errorf("a backup is due at %v, and nothing has changed", due)
	}
	n.container("b", "")
	ok(t, n.Flush())
	if due := n.backupDue(now); due.Sub(now) != backupEvery {
		t.Errorf("the next backup comes after %v", due.Sub(now))
	}
	n.die()
}

// TestThereIsAlwaysACopy: also when an earlier version made none, before anything has changed, and of the last change before an orderly end.
func TestThereIsAlwaysACopy(t *testing.T) {
	t.Run("after an upgrade", func(t *testing.T) {
		n := newNode(t)
		n.open()
		n.container("a", "")
		n.shut()
		n.start()
		n.die()
		for _, path := range []string{n.path("state", "now", "meta.db"), n.path("state", "now", "metadata.db"), n.path("root", "backup", "meta.db"), n.path("root", "backup", "metadata.db")} {
			ok(t, n.check(path))
		}
		n.losesNothing("ca ma sa")
	})
	t.Run("before Watch returns", func(t *testing.T) {
		n := newNode(t)
		n.Guard = n.guard()
		ok(t, n.Restore())
		n.open()
		n.container("a", "")
		n.firstCopies() // all that Watch does before it returns
		n.shut()
		n.losesNothing("ca ma sa")
	})
	t.Run("after Close", func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.stop()
		n.container("a", "")
		n.shut()
		ok(t, n.Close())
		n.losesNothing("ca ma sa")
	})
}

// losesNothing damages both databases and checks what the next start knows.
func (n *node) losesNothing(want string) {
	n.t.Helper()
	for _, path := range []string{n.metaPath(), n.snapsPath()} {
		ok(n.t, os.Truncate(path, 100))
	}
	n.start()
	defer n.die()
	if got := n.known(); got != want || len(n.repairs) != 2 || !n.repairs[0].Current || !n.repairs[1].Current {
		n.t.Errorf("known %q, want %q; reported %v", got, want, n.repairs)
	}
}

// spoilLeaves makes garbage of what a database says, and leaves its meta pages.
func spoilLeaves(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	ok(t, err)
	copy(data[2*4096:], strings.Repeat("garbage ", len(data)/8))
	ok(t, os.WriteFile(path, data, 0o600))
}

// TestADamagedDatabaseDoesNotReplaceItsCopy: a disk may go bad while the agent runs.
func TestADamagedDatabaseDoesNotReplaceItsCopy(t *testing.T) {
	n := newNode(t)
	n.start()
	n.container("a", "")
	ok(t, n.Flush())
	n.die()
	for _, damage := range []func(){
		func() { spoilLeaves(t, n.metaPath()) },
		func() { ok(t, damages()["meta page 1"](n.metaPath())) },
		func() { ok(t, os.Truncate(n.metaPath(), 9000)) },
	} {
		damage()
		clear(n.copied)
		if err := n.Flush(); err == nil {
			t.Error("no error")
		}
		ok(t, n.check(n.mirror(n.metaPath())))
	}
	if left, _ := filepath.Glob(n.path("state", "now", "*.new")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	n.start()
	if got := n.known(); got != "ca ma sa" {
		t.Errorf("known: %s", got)
	}
	n.die()
}

// TestACopyThatIsOlderIsNotCalledCurrent applies if the head of the damaged database is readable.
func TestACopyThatIsOlderIsNotCalledCurrent(t *testing.T) {
	n := newNode(t)
	n.start()
	n.container("a", "")
	ok(t, n.Flush())
	n.stop()
	n.container("b", "")
	n.shut()
	spoilLeaves(t, n.metaPath())
	n.start()
	if got := n.known(); !strings.HasPrefix(got, "ca ma") || len(n.repairs) != 1 || n.repairs[0].Current || n.repairs[0].Copy == "" {
		t.Errorf("known %q, reported %v", got, n.repairs)
	}
	n.die()
}

// TestACopyThatFailedIsTriedAgain: also when nothing changes; what is wrong is logged once.
func TestACopyThatFailedIsTriedAgain(t *testing.T) {
	var log strings.Builder
	g := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	said, retry := g.reportOnce(errors.New("disk full"), "")
	said, again := g.reportOnce(errors.New("disk full"), said)
	if retry.IsZero() || again.IsZero() || strings.Count(log.String(), "disk full") != 1 {
		t.Errorf("%v %v %s", retry, again, log.String())
	}
	if said, retry := g.reportOnce(nil, said); said != "" || !retry.IsZero() {
		t.Errorf("after a good one: %q %v", said, retry)
	}
}

func (n *node) tx() (id uint64) {
	n.t.Helper()
	ok(n.t, n.meta.View(func(tx *bolt.Tx) error { id = uint64(tx.ID()); return nil }))
	return id
}

func (n *node) copiedTx() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.copied[n.metaPath()].Tx
}

// TestADamagedCopyIsReplaced: whatever is in its place, or in that of the new one.
func TestADamagedCopyIsReplaced(t *testing.T) {
	for name, damage := range damagetest.Ways() {
		n := newNode(t)
		n.start()
		n.container("a", "")
		ok(t, n.Flush())
		ok(t, n.makeBackup(time.Now()))
		n.die()
		copies := []string{n.mirror(n.metaPath()), n.mirror(n.snapsPath()), n.backup(n.metaPath()), n.backup(n.snapsPath())}
		for _, path := range copies {
			ok(t, damage(path))
			ok(t, os.WriteFile(path+".new", []byte("of a process that was killed"), 0o600))
			ok(t, damage(path+".new"))
		}
		n.start()
		n.container("b", "")
		ok(t, n.Flush())
		n.stop()
		ok(t, n.makeBackup(time.Now()))
		n.shut()
		for _, path := range copies {
			if err := n.check(path); err != nil {
				t.Errorf("%s: %s: %v", name, path, err)
			}
		}
	}
}
