package bundle

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// programs makes files with these contents by name.
func programs(t *testing.T, contents map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for name, content := range contents {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(content), 0o600))
		paths = append(paths, path)
	}
	return paths
}

func packed(t *testing.T, contents map[string]string) parcel {
	t.Helper()
	var buf bytes.Buffer
	check(t, Pack(&buf, programs(t, contents)...))
	return parcel{buf.Bytes(), Version(buf.Bytes())}
}

func hold(t *testing.T, dir string, contents map[string]string) {
	t.Helper()
	for name, want := range contents {
		got, err := os.ReadFile(filepath.Join(dir, name))
		check(t, err)
		if string(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		st, err := os.Stat(filepath.Join(dir, name))
		check(t, err)
		if st.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %s", name, st.Mode())
		}
	}
}

func two() map[string]string {
	return map[string]string{"runc": "#!runc", "shim": strings.Repeat("shim", 1000)}
}

func TestUnpackKeepsWhatIsIntactAndRepairsWhatIsNot(t *testing.T) {
	archive, dir := packed(t, two()), filepath.Join(t.TempDir(), "bin")
	final, err := unpack(archive, dir)
	check(t, err)
	hold(t, final, two())
	shim := filepath.Join(final, "shim")
	inode := func() os.FileInfo { st, err := os.Stat(shim); check(t, err); return st }

	before := inode()
	again, err := unpack(archive, dir)
	check(t, err)
	if again != final || !os.SameFile(before, inode()) {
		t.Error("an intact file was written again")
	}
	for what, damage := range map[string]func() error{
		"missing":        func() error { return os.Remove(shim) },
		"empty":          func() error { return os.Truncate(shim, 0) },
		"changed":        func() error { return os.WriteFile(shim, []byte("other"), 0o700) },
		"not executable": func() error { return os.Chmod(shim, 0o600) },
		"no list":        func() error { return os.Remove(filepath.Join(final, sumsFile)) },
		"broken list":    func() error { return os.WriteFile(filepath.Join(final, sumsFile), []byte("x\n"), 0o600) },
	} {
		check(t, damage())
		_, err := unpack(archive, dir)
		check(t, err)
		if !intact(final) {
			t.Errorf("%s: not repaired", what)
		}
		hold(t, final, two())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestUpgradeKeepsTheOldVersion(t *testing.T) {
	dir := t.TempDir()
	v1, err := unpack(packed(t, two()), dir)
	check(t, err)
	newer := map[string]string{"runc": "#!runc 2", "shim": "shim 2"}
	v2, err := unpack(packed(t, newer), dir)
	check(t, err)
	if v1 == v2 {
		t.Error("two versions share a directory")
	}
	hold(t, v1, two())
	hold(t, v2, newer)
}

func TestSeveralProcessesMayUnpackAtOnce(t *testing.T) {
	archive, dir := packed(t, two()), t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			final, err := unpack(archive, dir)
			if err != nil || !intact(final) {
				t.Errorf("%s: %v", final, err)
			}
		})
	}
	wg.Wait()
}

func TestSameProgramsGiveTheSameArchive(t *testing.T) {
	a, files := packed(t, two()), programs(t, two())
	for _, file := range files {
		check(t, os.Chtimes(file, time.Unix(1, 0), time.Unix(2, 0)))
	}
	var b bytes.Buffer
	check(t, Pack(&b, files...))
	if !bytes.Equal(a.archive, b.Bytes()) {
		t.Error("archives differ")
	}
}

func TestDamagedArchiveIsRefusedAndLeavesNothing(t *testing.T) {
	good := packed(t, two()).archive
	d, err := zstd.NewReader(nil)
	check(t, err)
	defer d.Close()
	raw, err := d.DecodeAll(good, nil)
	check(t, err)
	e, err := zstd.NewWriter(nil)
	check(t, err)
	repack := func(old, replacement string) []byte {
		changed := bytes.Replace(raw, []byte(old), []byte(replacement), 1)
		if bytes.Equal(changed, raw) {
			t.Fatalf("no %q in the archive", old)
		}
		return e.EncodeAll(changed, nil)
	}
	for what, archive := range map[string][]byte{
		"cut off":        good[:len(good)/2],
		"other content":  repack("#!runc", "#!evil"),
		"other checksum": repack("  shim\n", "  shxm\n"),
		"no archive":     []byte("hello"),
	} {
		dir := t.TempDir()
		if _, err := unpack(parcel{archive, "v"}, dir); err == nil {
			t.Errorf("%s: unpacked", what)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: left behind %v, %v", what, entries, err)
		}
	}
}
