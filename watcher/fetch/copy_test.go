package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"monopod/internal/atomicfile"
	"monopod/watcher/watchertest"
)

func someCopy(body string) *Kept {
	return &Kept{
		Body: []byte(body), Signature: []byte("vouched"), Counts: []byte("{}\n"),
		Stamp: Stamp{
			Place: hashOf("https://h/"), Validators: Validators{ETag: `"v1"`, LastModified: "Fri, 20 Nov 2026 18:00:00 GMT"},
			Version: 7, Received: time.Date(2026, 11, 20, 18, 0, 1, 5, time.UTC),
		},
	}
}

func TestACopyIsReadAsItWasWrittenAndReplacedAsAWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root", "sources", "fleet")
	c := NewCopy(dir)
	if k, err := c.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a copy: %+v, %v", k, err)
	}
	for _, body := range []string{"pod x v1\n", "", "a body with\n\nlines and \x00"} {
		want := someCopy(body)
		if body == "" {
			want.Body, want.Signature, want.Counts = nil, nil, nil
		}
		watchertest.Must(t, c.Save(want))
		got, err := NewCopy(dir).Load()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	watchertest.Must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, filepath.Join(dir, copyFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v: it may hold Secrets", path, info.Mode(), err)
		}
	}
}

func TestADamagedCopyIsAnErrorWhateverTheDamage(t *testing.T) {
	dir := t.TempDir()
	watchertest.Must(t, NewCopy(dir).Save(someCopy("pod x v1\n")))
	path := filepath.Join(dir, copyFile)
	whole, err := os.ReadFile(path)
	watchertest.Must(t, err)
	refused := func(what string, data []byte) {
		t.Helper()
		if k, err := decodeCopy(data); err == nil {
			t.Fatalf("%s: %+v", what, k)
		}
	}
	for n := range whole {
		refused("cut off", whole[:n])
		flipped := bytes.Clone(whole)
		flipped[n] ^= 0x10
		refused("a bit flipped", flipped)
	}
	refused("zero bytes, as after a power cut", make([]byte, len(whole)))
	refused("something behind it", append(bytes.Clone(whole), 'x'))
	for _, sizes := range []string{"-1,0,0", "1,1000000,0", "1,0,0"} {
		if _, err := decodeCopy(sealed([]byte(`{"sizes":[` + sizes + "]}\nbody"))); err == nil {
			t.Errorf("sizes %v: no error", sizes)
		}
	}
	watchertest.Must(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	if _, err := NewCopy(dir).Load(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a file cut off: %v", err)
	}
	watchertest.Must(t, os.Remove(path))
	watchertest.Must(t, os.Symlink("/dev/zero", path))
	if _, err := NewCopy(dir).Load(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a link to a device: %v", err)
	}
}

func TestACopyThatCannotBeReplacedIsStaleUntilItCan(t *testing.T) {
	dir := t.TempDir()
	c := NewCopy(dir)
	full := fillable(c, copyFile)
	watchertest.Must(t, c.Save(someCopy("old")))
	full.Store(true)
	for range 2 {
		if err := c.Save(someCopy("new")); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	if k, err := c.Load(); err != nil || string(k.Body) != "old" || !k.Stale {
		t.Errorf("%+v, %v", k, err)
	}
	full.Store(false)
	watchertest.Must(t, c.Save(someCopy("new")))
	if k, err := c.Load(); err != nil || string(k.Body) != "new" || k.Stale {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := os.Stat(filepath.Join(dir, staleFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stale copy is still there: %v", err)
	}
}

func TestAFirstAnswerThatCannotBeKeptLeavesASign(t *testing.T) {
	dir := t.TempDir()
	c := NewCopy(dir)
	fillable(c, copyFile).Store(true)
	if err := c.Save(someCopy("new")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("on a full disk: %v", err)
	}
	if k, err := NewCopy(dir).Load(); !errors.Is(err, ErrDamaged) {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestCopiesOfSourcesThatAreNoMoreAreRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sources")
	watchertest.Must(t, RemoveCopies(root, nil))
	for _, name := range []string{"http", "fleet", "gone"} {
		watchertest.Must(t, NewCopy(filepath.Join(root, name)).Save(someCopy(name)))
	}
	watchertest.Must(t, RemoveCopies(root, []string{"fleet", "http", "new"}))
	left, err := filepath.Glob(root + "/*")
	watchertest.Must(t, err)
	if want := []string{root + "/fleet", root + "/http"}; !reflect.DeepEqual(left, want) {
		t.Errorf("left %v", left)
	}
}

// fillable gives c a disk on which the file of a name cannot be written as long as it is full.
func fillable(c *Copy, name string) (full *atomic.Bool) {
	full = &atomic.Bool{}
	c.write = func(path string, data []byte, mode fs.FileMode) error {
		if full.Load() && filepath.Base(path) == name {
			return syscall.ENOSPC
		}
		return atomicfile.Write(path, data, mode)
	}
	return full
}

// sealed gives data a right checksum.
func sealed(data []byte) []byte {
	return append([]byte(copyFormat+checksum(data)+"\n"), data...)
}

func FuzzACopyIsWhatWasWrittenOrAnError(f *testing.F) {
	whole, err := encodeCopy(someCopy("pod x v1\n"))
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range [][]byte{whole, sealed([]byte("{}\n")), sealed([]byte(`{"sizes":[1,2,3]}` + "\nabcdef")), sealed([]byte("x")), []byte(copyFormat)} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := decodeCopy(sealed(data)) // a fuzzer does not find the checksum by itself
		if err != nil {
			return
		}
		again, err := encodeCopy(k)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := decodeCopy(again); err != nil || !reflect.DeepEqual(same, k) {
			t.Errorf("%+v is read as %+v, %v", k, same, err)
		}
	})
}

func TestAPowerCutWhileACopyIsWrittenLeavesTheOldOne(t *testing.T) {
	dir := t.TempDir()
	watchertest.Must(t, NewCopy(dir).Save(someCopy("old")))
	next, err := encodeCopy(someCopy("new"))
	watchertest.Must(t, err)
	for _, written := range []int{0, len(next) / 2, len(next)} {
		watchertest.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(".tmp-", written)), next[:written], 0o600))
		if k, err := NewCopy(dir).Load(); err != nil || string(k.Body) != "old" || k.Stale {
			t.Errorf("%d bytes written: %+v, %v", written, k, err)
		}
	}
	watchertest.Must(t, NewCopy(dir).Save(someCopy("newer")))
	if k, err := NewCopy(dir).Load(); err != nil || string(k.Body) != "newer" {
		t.Errorf("%+v, %v", k, err)
	}
	if left, err := filepath.Glob(dir + "/.tmp-*"); err != nil || len(left) > 0 {
		t.Errorf("left, with what may be Secrets: %v %v", left, err)
	}
}
