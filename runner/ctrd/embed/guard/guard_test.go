package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a directory with the databases of a containerd.
type node struct {
	t    testing.TB
	dir  string
	boot string
	// spec is added to the spec of containers.
	spec    string
	repairs []Repair
	// flushed is called after each copy that is made in the background.
	flushed func(error)
	meta    *bolt.DB
	snaps   *bolt.DB
	*Guard
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), boot: "now"}
	for _, d := range []string{"root/bolt", "root/overlay/snapshots"} {
		ok(t, os.MkdirAll(filepath.Join(n.dir, d), 0o700))
	}
	return n
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }
func (n *node) metaPath() string           { return n.path("root", "bolt", "meta.db") }
func (n *node) snapsPath() string          { return n.path("root", "overlay", "metadata.db") }

func (n *node) guard() *Guard {
	g := New(Config{
		Metadata: n.metaPath(), Snapshots: n.snapsPath(), Mirror: n.path("state"), Backup: n.path("root", "backup"), Boot: n.boot,
		OnRepair: func(r Repair) { n.repairs = append(n.repairs, r) }, Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)),
	})
	g.flushed = n.flushed
	return g
}

// start checks and opens the databases as the agent does.
func (n *node) start() {
	n.t.Helper()
	n.repairs = nil
	n.Guard = n.guard()
	ok(n.t, n.Restore())
	n.open()
	ok(n.t, n.Watch())
}

// open opens the databases as containerd does.
func (n *node) open() {
	n.t.Helper()
	var err error
	n.meta, err = bolt.Open(n.metaPath(), 0o600, &bolt.Options{NoFreelistSync: true, Timeout: time.Second, NoSync: true})
	ok(n.t, err)
	n.snaps, err = bolt.Open(n.snapsPath(), 0o600, &bolt.Options{Timeout: time.Second, NoSync: true})
	ok(n.t, err)
}

// shut closes the databases.
func (n *node) shut() {
	n.t.Helper()
	ok(n.t, errors.Join(n.meta.Close(), n.snaps.Close()))
}

// die leaves what a killed agent leaves.
func (n *node) die() {
	n.t.Helper()
	n.stop()
	n.shut()
}

// container makes what containerd has of one: a record and a snapshot on another, in both databases and on the disk.
func (n *node) container(name, parent string) {
	n.t.Helper()
	ok(n.t, n.meta.Update(func(tx *bolt.Tx) error {
		c := bucket(n.t, tx, "v1", "monopod", "containers", name)
		spec, err := proto.Marshal(&anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: []byte(`{"of": "` + name + `"` + n.spec + `}`)})
		ok(n.t, err)
		at, err := time.Now().MarshalBinary()
		ok(n.t, err)
		ok(n.t, errors.Join(c.Put([]byte("spec"), spec), c.Put([]byte("createdat"), at)))
		s := bucket(n.t, tx, "v1", "monopod", "snapshots", "overlayfs", name)
		ok(n.t, s.Put([]byte(keyName), []byte("monopod/1/"+name)))
		if parent != "" {
			ok(n.t, s.Put([]byte(keyParent), []byte(parent)))
			ok(n.t, bucket(n.t, tx, "v1", "monopod", "snapshots", "overlayfs", parent, "children").Put([]byte(name), nil))
		}
		return nil
	}))
	ok(n.t, n.snaps.Update(func(tx *bolt.Tx) error {
		all := bucket(n.t, tx, "v1", "snapshots")
		s := bucket(n.t, tx, "v1", "snapshots", "monopod/1/"+name)
		id, err := all.NextSequence()
		ok(n.t, err)
		ok(n.t, s.Put([]byte(keyID), binary.AppendUvarint(nil, id)))
		if parent != "" {
			ok(n.t, s.Put([]byte(keyParent), []byte("monopod/1/"+parent)))
			of, _ := binary.Uvarint(all.Bucket([]byte("monopod/1/" + parent)).Get([]byte(keyID)))
			ok(n.t, bucket(n.t, tx, "v1", "parents").Put(binary.AppendUvarint(append(binary.AppendUvarint(nil, of), 0), id), []byte("monopod/1/"+name)))
		}
		// A directory that exists is a failure: that is what a number means.
		return os.Mkdir(n.path("root", "overlay", "snapshots", fmt.Sprint(id)), 0o700)
	}))
}

func bucket(t testing.TB, tx *bolt.Tx, path ...string) *bolt.Bucket {
	t.Helper()
	b, err := tx.CreateBucketIfNotExists([]byte(path[0]))
	ok(t, err)
	for _, p := range path[1:] {
		b, err = b.CreateBucketIfNotExists([]byte(p))
		ok(t, err)
	}
	return b
}

// known are the containers, snapshots in either database and the index of parents.
func (n *node) known() string {
	n.t.Helper()
	var all []string
	list := func(db *bolt.DB, what string, path ...string) {
		ok(n.t, db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte(path[0]))
			for _, p := range path[1:] {
				if b != nil {
					b = b.Bucket([]byte(p))
				}
			}
			if b == nil {
				return nil
			}
			return b.ForEach(func(k, v []byte) error {
				if v != nil && what != "p" {
					return nil
				}
				if what == "p" {
					k = v
				}
				all = append(all, what+strings.TrimPrefix(string(k), "monopod/1/"))
				return nil
			})
		}))
	}
	list(n.meta, "c", "v1", "monopod", "containers")
	list(n.meta, "m", "v1", "monopod", "snapshots", "overlayfs")
	list(n.snaps, "s", "v1", "snapshots")
	list(n.snaps, "p", "v1", "parents")
	slices.Sort(all)
	return strings.Join(all, " ")
}

// damages are ways to lose a database.
func damages() map[string]func(path string) error {
	page := func(n int64, fill byte) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			b := make([]byte, 4096)
			for i := range b {
				b[i] = fill
			}
			_, err = f.WriteAt(b, n*4096)
			return errors.Join(err, f.Close())
		}
	}
	all := map[string]func(string) error{
		"deleted":   os.Remove,
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"truncated": func(p string) error { return os.Truncate(p, 9000) },
		"garbage":   func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("garbage ", 5000)), 0o600) },
		"zero": func(p string) error {
			info, err := os.Stat(p)
			return errors.Join(err, os.WriteFile(p, make([]byte, info.Size()), 0o600))
		},
		"directory":     func(p string) error { return errors.Join(os.Remove(p), os.MkdirAll(filepath.Join(p, "in"), 0o700)) },
		"dangling link": func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/none", p)) },
	}
	for n := range int64(2) { // the rest depends on where pages are: see boltfile
		all[fmt.Sprintf("meta page %d", n)] = page(n, 0)
	}
	return all
}

// TestADatabaseThatIsLostCostsNothing: with the agent killed and a database damaged, or both, all is there at the next start.
func TestADatabaseThatIsLostCostsNothing(t *testing.T) {
	for name, damage := range damages() {
		for _, which := range []string{"meta.db", "metadata.db", "both"} {
			if which == "both" && name != "garbage" && name != "deleted" {
				continue
			}
			t.Run(name+" "+which, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				n.start()
				n.container("image", "")
				n.container("a", "image")
				n.container("b", "image")
				ok(t, n.Flush())
				want := n.known()
				n.die()
				broken := 0
				for _, path := range []string{n.metaPath(), n.snapsPath()} {
					if which == "both" || which == filepath.Base(path) {
						ok(t, damage(path))
						broken++
					}
				}
				n.start()
				if got := n.known(); got != want || !strings.Contains(want, "ca cb") {
					t.Errorf("known: %s\nwas: %s", got, want)
				}
				if len(n.repairs) != broken {
					t.Errorf("%d databases were damaged; reported: %v", broken, n.repairs)
				}
				for _, r := range n.repairs {
					if _, err := os.Lstat(r.Path + ".damaged"); !r.Current || (err == nil) != (name != "deleted") || !strings.Contains(r.String(), "nothing is lost") {
						t.Errorf("reported: %s, %v", r, err)
					}
				}
				n.container("c", "a") // goes on
				n.die()
				n.start()
				if len(n.repairs) > 0 || !strings.Contains(n.known(), "cc") {
					t.Errorf("at the next start: %v; known %s", n.repairs, n.known())
				}
				n.die()
			})
		}
	}
}

// TestAfterABootTheBackupCounts: the mirror is gone. What the backup has and the disk has not is forgotten, numbers of
// snapshots do not come twice, and without a backup all begins empty.
func TestAfterABootTheBackupCounts(t *testing.T) {
	n := newNode(t)
	n.start()
	n.container("image", "")
	n.container("old", "image")
	n.container("older", "old")
	ok(t, n.Flush())
	ok(t, n.makeBackup(time.Now()))
	n.container("new", "image")
	ok(t, n.Flush())
	n.die()
	// "old" has been removed after the backup, with what is based on it.
	ok(t, os.RemoveAll(n.path("root", "overlay", "snapshots", "2")))
	for _, path := range []string{n.metaPath(), n.snapsPath()} {
		ok(t, os.Truncate(path, 100))
	}
	n.boot = "later"
	n.start()
	if got := n.known(); got != "cimage cold colder mimage simage" {
		t.Errorf("known: %s", got)
	}
	if len(n.repairs) != 2 || n.repairs[0].Current || n.repairs[0].Copy == "" {
		t.Errorf("reported: %v", n.repairs)
	}
	if _, err := os.Stat(n.path("state", "now")); err == nil {
		t.Error("the mirror of the earlier boot is kept")
	}
	n.container("next", "image") // its number is one that no directory has
	n.die()

	n.boot = "still later"
	for _, path := range []string{n.metaPath(), n.snapsPath(), n.path("root", "backup", "meta.db"), n.path("root", "backup", "metadata.db")} {
		ok(t, os.WriteFile(path, []byte("garbage"), 0o600))
	}
	n.start()
	if got := n.known(); got != "" || len(n.repairs) != 2 || n.repairs[0].Copy != "" || !strings.Contains(n.repairs[0].String(), "starts empty") {
		t.Errorf("known %q, reported %v", got, n.repairs)
	}
	n.container("first", "")
	n.die()
}

// TestValuesThatContainerdCannotReadAreDamage: it lists all records or none.
func TestValuesThatContainerdCannotReadAreDamage(t *testing.T) {
	broken := &anypb.Any{TypeUrl: "monopod.dev/pod", Value: []byte(`{"cut`)}
	wrong, err := proto.Marshal(broken)
	ok(t, err)
	for key, value := range map[string][]byte{"spec": []byte("\xff\xff"), "createdat": []byte("now"), "options": wrong} {
		n := newNode(t)
		n.start()
		n.container("a", "")
		ok(t, n.Flush())
		n.stop() // a copy would be as wrong
		ok(t, n.meta.Update(func(tx *bolt.Tx) error {
			return bucket(t, tx, "v1", "monopod", "containers", "a").Put([]byte(key), value)
		}))
		n.die()
		n.start()
		if len(n.repairs) != 1 || !strings.Contains(n.known(), "ca") {
			t.Errorf("%s: reported %v, known %s", key, n.repairs, n.known())
		}
		n.die()
		ok(t, readable([]string{"v1", "labels"}, []byte(key), value)) // there it is any text
	}
}

func TestWithoutAGuardNothingIsDone(t *testing.T) {
	var g *Guard
	ok(t, errors.Join(g.Restore(), g.Watch(), g.Flush(), g.Close()))
}

// BenchmarkStart is what the check takes at each start with the databases of 60 containers, and BenchmarkFlush a copy after a change.
func BenchmarkStart(b *testing.B) {
	n := filled(b)
	for b.Loop() {
		if err := n.Restore(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFlush(b *testing.B) {
	n := filled(b)
	n.start()
	b.ResetTimer()
	for b.Loop() {
		n.mu.Lock()
		clear(n.copied)
		n.mu.Unlock()
		if err := n.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	n.die()
}

func filled(b *testing.B) *node {
	b.Helper()
	n := newNode(b)
	n.spec = `,"large":"` + strings.Repeat("x", 12<<10) + `"`
	n.start()
	n.container("image", "")
	for i := range 60 {
		n.container(fmt.Sprint(i), "image")
	}
	n.die()
	info, err := os.Stat(n.metaPath())
	ok(b, err)
	b.Logf("meta.db has %d bytes", info.Size())
	return n
}
