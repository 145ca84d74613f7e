package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// database makes one with all kinds of pages: branches, leaves, values that go on for several pages, buckets within pages and with pages
// of their own, and free pages, whose list is in the file or not.
func database(t testing.TB, noFreelist bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: noFreelist, NoSync: true})
	ok(t, err)
	for round := range 2 {
		ok(t, db.Update(func(tx *bolt.Tx) error {
			root, err := tx.CreateBucketIfNotExists([]byte("v1"))
			ok(t, err)
			for i := range 120 {
				b, err := root.CreateBucketIfNotExists(fmt.Appendf(nil, "container-%03d", i))
				ok(t, err)
				ok(t, b.Put([]byte("image"), []byte("example.com/image:1")))
				ok(t, b.Put([]byte("spec"), bytes.Repeat([]byte{byte(i)}, 100*(round+1))))
				if i%10 == 0 {
					ok(t, b.Put([]byte("large"), bytes.Repeat([]byte("large "), 2000)))
				}
				labels, err := b.CreateBucketIfNotExists([]byte("labels"))
				ok(t, err)
				ok(t, labels.Put([]byte("name"), fmt.Appendf(nil, "%d", i)))
			}
			return nil
		}))
		ok(t, db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("v1")).DeleteBucket(fmt.Appendf(nil, "container-%03d", round))
		}))
	}
	ok(t, db.Close())
	return path
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(data []byte) (Head, error) { return Check(bytes.NewReader(data), int64(len(data)), nil) }

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	ok(t, err)
	return data
}

// TestASoundDatabaseIsSoundAndAllOfItIsVisited compares with what bbolt reads.
func TestASoundDatabaseIsSoundAndAllOfItIsVisited(t *testing.T) {
	for _, noFreelist := range []bool{false, true} {
		path := database(t, noFreelist)
		got, want := map[string]string{}, map[string]string{}
		data := read(t, path)
		h, err := Check(bytes.NewReader(data), int64(len(data)), func(buckets []string, k, v []byte) error {
			got[fmt.Sprintf("%q %q %v", buckets, k, v == nil)] = string(v)
			return nil
		})
		if err != nil || h.Torn {
			t.Fatalf("%+v, %v", h, err)
		}
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
		ok(t, err)
		defer db.Close()
		var walk func(path []string, b *bolt.Bucket) error
		walk = func(path []string, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				want[fmt.Sprintf("%q %q %v", path, k, v == nil)] = string(v)
				if v == nil {
					return walk(append(slices.Clip(path), string(k)), b.Bucket(k))
				}
				return nil
			})
		}
		ok(t, db.View(func(tx *bolt.Tx) error {
			if tx.ID() != int(h.Tx) {
				t.Errorf("transaction %d, bbolt says %d", h.Tx, tx.ID())
			}
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				want[fmt.Sprintf("%q %q true", []string(nil), name)] = ""
				return walk([]string{string(name)}, b)
			})
		}))
		if !maps.Equal(got, want) || len(got) < 200 {
			t.Errorf("%d entries were visited, bbolt has %d", len(got), len(want))
		}
	}
}

// pages returns the numbers of pages in use with a flag.
func pages(data []byte, flag uint16) []int {
	h, _ := ReadHead(bytes.NewReader(data))
	var found []int
	c := &checker{r: bytes.NewReader(data), head: h, seen: make([]uint64, h.Pages/64+1)}
	if c.bucket(h.Root, 0) != nil {
		return nil
	}
	if h.Freelist != noFreelist {
		c.mark(h.Freelist)
	}
	for id := uint64(2); id < h.Pages; id++ {
		page := data[id*uint64(h.PageSize):]
		if c.mark(id) && binary.NativeEndian.Uint64(page) == id && binary.NativeEndian.Uint16(page[8:]) == flag {
			found = append(found, int(id))
		}
	}
	return found
}

func TestEachKindOfDamageIsFound(t *testing.T) {
	data := read(t, database(t, false))
	h, err := check(data)
	ok(t, err)
	branch, leaf := pages(data, branchFlag), pages(data, leafFlag)
	if len(branch) == 0 || len(leaf) < 6 {
		t.Fatalf("%d branches, %d leaves", len(branch), len(leaf))
	}
	at := func(page int) []byte { return data[page*h.PageSize : (page+1)*h.PageSize] }
	with := func(page int, change func([]byte)) func([]byte) []byte {
		return func(d []byte) []byte {
			change(d[page*h.PageSize : (page+1)*h.PageSize])
			return d
		}
	}
	zero := func(b []byte) { clear(b) }
	garbage := func(b []byte) {
		for i := range b {
			b[i] = byte(i*7 + 3)
		}
	}
	for name, damage := range map[string]func([]byte) []byte{
		"empty":                      func([]byte) []byte { return nil },
		"one byte":                   func(d []byte) []byte { return d[:1] },
		"cut in the middle":          func(d []byte) []byte { return d[:h.Size()/2] },
		"cut within the second meta": func(d []byte) []byte { return d[:h.PageSize+20] },
		"zero":                       func(d []byte) []byte { return make([]byte, len(d)) },
		"a text":                     func([]byte) []byte { return bytes.Repeat([]byte("no database\n"), 10000) },
		"zero leaf":                  with(leaf[3], zero),
		"garbage leaf":               with(leaf[3], garbage),
		"another leaf":               with(leaf[3], func(b []byte) { copy(b, at(leaf[4])) }),
		"zero branch":                with(branch[0], zero),
		"garbage branch":             with(branch[0], garbage),
		"branch leads to itself":     with(branch[0], func(b []byte) { binary.NativeEndian.PutUint64(b[pageHeader+8:], uint64(branch[0])) }),
		"branch leads nowhere":       with(branch[0], func(b []byte) { binary.NativeEndian.PutUint64(b[pageHeader+8:], 1<<60) }),
		"zero freelist":              with(int(h.Freelist), zero),
		"garbage freelist":           with(int(h.Freelist), garbage),
		"freelist names a used page": with(int(h.Freelist), func(b []byte) { binary.NativeEndian.PutUint64(b[pageHeader:], uint64(leaf[0])) }),
		"leaf goes on for ever":      with(leaf[3], func(b []byte) { binary.NativeEndian.PutUint32(b[12:], 1<<31) }),
		"leaf with 65535 entries":    with(leaf[3], func(b []byte) { binary.NativeEndian.PutUint16(b[10:], 1<<16-1) }),
		"key without an end":         with(leaf[3], func(b []byte) { binary.NativeEndian.PutUint32(b[pageHeader+8:], 1<<31) }),
		"both meta pages":            func(d []byte) []byte { clear(d[:2*h.PageSize]); return d },
	} {
		if _, err := check(damage(bytes.Clone(data))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for page := range 2 { // bbolt goes on with the transaction before
		h, err := check(with(page, zero)(bytes.Clone(data)))
		if err != nil || !h.Torn {
			t.Errorf("without meta page %d: %+v, %v", page, h, err)
		}
	}
}

// TestWhatPassesDoesNotPanic: bbolt reads and changes what Check lets pass, whatever was done to the file.
func TestWhatPassesDoesNotPanic(t *testing.T) {
	t.Parallel()
	passed := 0
	for _, noFreelist := range []bool{false, true} {
		data := read(t, database(t, noFreelist))
		h, err := check(data)
		ok(t, err)
		for seed := range uint64(30) {
			rnd := rand.New(rand.NewPCG(seed, 11))
			d := bytes.Clone(data)
			for range 1 + rnd.IntN(3) {
				at := rnd.IntN(int(h.Size()))
				if rnd.IntN(2) == 0 { // headers are where it hurts
					at = at/h.PageSize*h.PageSize + rnd.IntN(64)
				}
				d[at] ^= 1 << rnd.IntN(8)
			}
			if h, err := check(d); err != nil || h.Torn {
				continue
			}
			passed++
			use(t, d, noFreelist)
		}
	}
	if passed < 5 {
		t.Errorf("only %d passed: nothing was tested", passed)
	}
}

// use reads all of a database with bbolt, changes it, and has bbolt check it. A panic ends the test.
func use(t *testing.T, data []byte, noFreelist bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	ok(t, os.WriteFile(path, data, 0o600))
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: noFreelist, NoSync: true})
	ok(t, err)
	ok(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("v1"))
		if err != nil {
			return err
		}
		for i := range 50 {
			ok(t, b.Put(fmt.Appendf(nil, "new-%d", i), make([]byte, 300)))
		}
		return nil
	}))
	ok(t, db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Logf("bbolt says: %v", err)
		}
		return nil
	}))
	ok(t, db.Close())
}

// TestCopiesOfADatabaseInUseAreSound: copies are made while transactions are committed; each is one of its states.
func TestCopiesOfADatabaseInUseAreSound(t *testing.T) {
	t.Parallel()
	path := database(t, true)
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	ok(t, err)
	defer db.Close()
	from, err := os.Open(path)
	ok(t, err)
	defer from.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			err := db.Update(func(tx *bolt.Tx) error {
				b := tx.Bucket([]byte("v1"))
				for j := range 20 {
					if err := b.Bucket(fmt.Appendf(nil, "container-%03d", 10+(i+j)%50)).Put([]byte("spec"), fmt.Appendf(nil, "%0*d", 50+i%900, i)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	copies := 0
	for range 20 {
		w, err := os.Create(filepath.Join(t.TempDir(), "copy"))
		ok(t, err)
		h, err := Copy(w, from)
		if errors.Is(err, ErrBusy) {
			ok(t, w.Close())
			continue
		}
		ok(t, err)
		copies++
		if got, err := Check(w, h.Size(), nil); err != nil || got != h {
			t.Errorf("copy %+v: %+v, %v", h, got, err)
		}
		ok(t, w.Close())
	}
	close(stop)
	wg.Wait()
	if copies == 0 {
		t.Error("no copy was made")
	}
}

func BenchmarkCheck(b *testing.B) {
	data := read(b, database(b, true))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := check(data); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzCheck: whatever the file holds, it is read to its end or refused.
func FuzzCheck(f *testing.F) {
	f.Add(read(f, database(f, false))[:8*4096])
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = check(data) })
}
