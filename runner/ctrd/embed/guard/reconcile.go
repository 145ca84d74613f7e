package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The copies may be older than the disk, and of different times. A snapshot must be in both databases and on the disk. Otherwise a missing image
// would count as unpacked, or the directory of the next container would exist already.

// Names of buckets and keys; see readable.
const (
	keyVersion   = "v1"
	keySnapshots = "snapshots"
	keyParents   = "parents"
	keyID        = "id"
	keyName      = "name"
	keyParent    = "parent"
	keyChildren  = "children"
)

// reconcile removes missing snapshots from the databases.
func (g *Guard) reconcile() error {
	dirs, most, err := snapshotDirs(filepath.Join(filepath.Dir(g.cfg.Snapshots), "snapshots"))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	if most > 0 { // a new database must know which numbers there are
		err = create(g.cfg.Snapshots)
	}
	if err != nil {
		return err
	}
	err = update(g.cfg.Snapshots, func(tx *bolt.Tx) (err error) {
		there, err = keepSnapshots(tx, dirs, most)
		return err
	})
	if err != nil {
		return err
	}
	return update(g.cfg.Metadata, func(tx *bolt.Tx) error { return keepReferences(tx, there) })
}

// create creates a file for a database, unless it exists.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// update modifies a database, unless it is missing.
func update(path string, change func(*bolt.Tx) error) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return change(nil)
	}
	// With the options of containerd: the free list is stored in one of the databases only.
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: 5 * time.Second, NoFreelistSync: filepath.Base(path) == "meta.db"})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(db.Update(change), db.Close())
}

// snapshotDirs returns the numbers of the snapshot directories, and the highest one.
func snapshotDirs(dir string) (dirs map[uint64]bool, most uint64, err error) {
	dirs = map[uint64]bool{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dirs, 0, nil
	}
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			dirs[id] = true
			most = max(most, id)
		}
	}
	return dirs, most, err
}

// keepSnapshots removes snapshots without a directory, and those based on them, from the snapshotter's database. It returns the names of the
// others. The next snapshot gets an unused number.
func keepSnapshots(tx *bolt.Tx, dirs map[uint64]bool, most uint64) (map[string]bool, error) {
	there := map[string]bool{}
	if tx == nil {
		return there, nil
	}
	root, err := tx.CreateBucketIfNotExists([]byte(keyVersion))
	if err != nil {
		return nil, err
	}
	all, err := root.CreateBucketIfNotExists([]byte(keySnapshots))
	if err != nil {
		return nil, err
	}
	if all.Sequence() < most {
		if err := all.SetSequence(most); err != nil {
			return nil, err
		}
	}
	parents := map[string]string{}
	gone := map[uint64]bool{}
	err = all.ForEachBucket(func(k []byte) error {
		b := all.Bucket(k)
		id, _ := binary.Uvarint(b.Get([]byte(keyID)))
		parents[string(k)] = string(b.Get([]byte(keyParent)))
		there[string(k)] = dirs[id]
		return nil
	})
	if err != nil {
		return nil, err
	}
	dropOrphans(there, parents)
	for name := range parents {
		if there[name] {
			continue
		}
		id, _ := binary.Uvarint(all.Bucket([]byte(name)).Get([]byte(keyID)))
		gone[id] = true
		if err := all.DeleteBucket([]byte(name)); err != nil {
			return nil, err
		}
	}
	return there, dropParents(root.Bucket([]byte(keyParents)), gone)
}

// dropOrphans sets all snapshots to false that are based on one that is false.
func dropOrphans(there map[string]bool, parents map[string]string) {
	for changed := true; changed; {
		changed = false
		for name, parent := range parents {
			if there[name] && parent != "" && !there[parent] {
				there[name], changed = false, true
			}
		}
	}
}

// dropParents removes missing children from the index of parents. Its keys are both numbers, separated by a zero byte.
func dropParents(index *bolt.Bucket, gone map[uint64]bool) error {
	if index == nil {
		return nil
	}
	var drop [][]byte
	err := index.ForEach(func(k, _ []byte) error {
		if _, n := binary.Uvarint(k); n > 0 && len(k) > n+1 {
			if child, _ := binary.Uvarint(k[n+1:]); gone[child] {
				drop = append(drop, append([]byte(nil), k...))
			}
		}
		return nil
	})
	for _, k := range drop {
		err = errors.Join(err, index.Delete(k))
	}
	return err
}

// keepReferences removes the snapshots that the snapshotter lacks from containerd's database.
func keepReferences(tx *bolt.Tx, there map[string]bool) error {
	if tx == nil || tx.Bucket([]byte(keyVersion)) == nil {
		return nil
	}
	root := tx.Bucket([]byte(keyVersion))
	return root.ForEachBucket(func(namespace []byte) error {
		all := root.Bucket(namespace).Bucket([]byte(keySnapshots))
		if all == nil {
			return nil
		}
		return all.ForEachBucket(func(snapshotter []byte) error { return keepOf(all.Bucket(snapshotter), there) })
	})
}

// keepOf does that for one namespace and snapshotter.
func keepOf(all *bolt.Bucket, there map[string]bool) error {
	kept, parents := map[string]bool{}, map[string]string{}
	err := all.ForEachBucket(func(k []byte) error {
		b := all.Bucket(k)
		kept[string(k)] = there[string(b.Get([]byte(keyName)))]
		parents[string(k)] = string(b.Get([]byte(keyParent)))
		return nil
	})
	if err != nil {
		return err
	}
	dropOrphans(kept, parents)
	for name, parent := range parents {
		if kept[name] {
			continue
		}
		if err := all.DeleteBucket([]byte(name)); err != nil {
			return err
		}
		if p := all.Bucket([]byte(parent)); parent != "" && p != nil && p.Bucket([]byte(keyChildren)) != nil {
			if err := p.Bucket([]byte(keyChildren)).Delete([]byte(name)); err != nil {
				return err
			}
		}
	}
	return nil
}
