package bundle

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// quickly compresses as Compress does, for tests that have no time.
func quickly(plain []byte) ([]byte, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(plain, nil), nil
}

func packed(t *testing.T, contents map[string]string) *Parcel {
	t.Helper()
	archive, text, err := Pack(quickly, programs(t, contents)...)
	check(t, err)
	p, err := newParcel(archive, text)
	check(t, err)
	p.proc = t.TempDir() // other tests, and their shims, run at the same time
	return p
}

// running returns a /proc that has these programs.
func running(t *testing.T, programs ...string) string {
	t.Helper()
	proc := t.TempDir()
	check(t, os.WriteFile(filepath.Join(proc, "uptime"), nil, 0o600))
	for i, program := range append(programs, "/nowhere (deleted)") {
		dir := filepath.Join(proc, strconv.Itoa(i+1))
		check(t, os.Mkdir(dir, 0o700))
		check(t, os.Symlink(program, filepath.Join(dir, "exe")))
	}
	check(t, os.Mkdir(filepath.Join(proc, "100"), 0o700)) // a thread of the kernel
	return proc
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
	p, dir := packed(t, two()), filepath.Join(t.TempDir(), "bin")
	final, err := p.Unpack(dir, p.Whole)
	check(t, err)
	hold(t, final, two())
	shim := filepath.Join(final, "shim")
	inode := func() os.FileInfo { st, err := os.Stat(shim); check(t, err); return st }

	before := inode()
	again, err := p.Unpack(dir, p.Whole)
	check(t, err)
	if again != final || !os.SameFile(before, inode()) {
		t.Error("an intact file was written again")
	}
	for what, damage := range map[string]func() error{
		"missing":           func() error { return os.Remove(shim) },
		"empty":             func() error { return os.Truncate(shim, 0) },
		"cut off":           func() error { return errors.Join(os.Truncate(shim, 10), os.Chtimes(shim, unpackedAt(), unpackedAt())) },
		"changed":           func() error { return os.WriteFile(shim, []byte("other"), 0o700) },
		"not executable":    func() error { return os.Chmod(shim, 0o600) },
		"for others":        func() error { return os.Chmod(shim, 0o777) },
		"a link":            func() error { return errors.Join(os.Rename(shim, shim+"2"), os.Symlink(shim+"2", shim)) },
		"no directory":      func() error { return os.RemoveAll(final) },
		"not a directory":   func() error { return errors.Join(os.RemoveAll(final), os.WriteFile(final, nil, 0o600)) },
		"an empty one":      func() error { return errors.Join(os.RemoveAll(final), os.Mkdir(final, 0o700)) },
		"of another moment": func() error { return os.Chtimes(shim, time.Now(), time.Now()) },
	} {
		check(t, damage())
		if p.Whole(final) {
			t.Errorf("%s: whole", what)
		}
		_, err := p.Unpack(dir, p.Whole)
		check(t, err)
		if !p.Whole(final) {
			t.Errorf("%s: not repaired", what)
		}
		hold(t, final, two())
	}
	onlyVersions(t, dir, filepath.Base(final))
}

// onlyVersions fails when there is anything else in dir.
func onlyVersions(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var got []string
	for _, e := range entries {
		if e.Name() != lockFile {
			got = append(got, e.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}

// TestRotIsFoundByTheFirstDaemonOfABoot: bytes that changed without a trace.
func TestRotIsFoundByTheFirstDaemonOfABoot(t *testing.T) {
	p, dir := packed(t, two()), t.TempDir()
	final, err := p.Unpack(dir, p.Sound)
	check(t, err)
	shim, mark := filepath.Join(final, "shim"), filepath.Join(final, checkedFile)
	if !p.Sound(final) {
		t.Fatal("fresh programs are not sound")
	}
	rot := func() {
		f, err := os.OpenFile(shim, os.O_WRONLY, 0)
		check(t, err)
		_, err = f.WriteAt([]byte("rot"), 100)
		check(t, errors.Join(err, f.Close(), os.Chtimes(shim, unpackedAt(), unpackedAt())))
	}
	rot()
	if !p.Whole(final) {
		t.Fatal("this damage should be one that times and sizes do not tell")
	}
	if p.Sound(final) {
		t.Error("a file that was touched after it had been checked passes for sound")
	}
	_, err = p.Unpack(dir, p.Sound)
	check(t, err)
	hold(t, final, two())

	// What was checked is not read again, until the next boot.
	if !p.Sound(final) {
		t.Fatal("not repaired")
	}
	checked, err := os.ReadFile(mark)
	check(t, err)
	rot()
	seen, ok := p.look(final)
	if !ok {
		t.Fatal("not whole")
	}
	boot, _, _ := strings.Cut(string(checked), "\n")
	check(t, os.WriteFile(mark, []byte(boot+"\n"+seen), 0o600)) // as if the disk had lost the bytes after the check
	if !p.Sound(final) {
		t.Error("checksums are computed at each start")
	}
	check(t, os.WriteFile(mark, []byte("another boot\n"+seen), 0o600))
	if p.Sound(final) {
		t.Error("not found after a boot")
	}
}

func TestUpgradeKeepsTheVersionBefore(t *testing.T) {
	dir := t.TempDir()
	unpack := func(runc string) string {
		p := packed(t, map[string]string{"runc": runc, "shim": "shim"})
		final, err := p.Unpack(dir, p.Whole)
		check(t, err)
		return filepath.Base(final)
	}
	v1 := unpack("1")
	v2 := unpack("2")
	if v1 == v2 {
		t.Error("two versions share a directory")
	}
	onlyVersions(t, dir, v1, v2)
	check(t, os.Mkdir(filepath.Join(dir, "somebody's"), 0o700))
	v3 := unpack("3")
	onlyVersions(t, dir, v2, v3, "somebody's")
}

// TestAVersionThatRunsStays: whose program a process runs, though it was started under another name.
func TestAVersionThatRunsStays(t *testing.T) {
	target, dir := t.TempDir(), filepath.Join(t.TempDir(), "link")
	check(t, os.Symlink(target, dir))
	proc := running(t)
	unpack := func(runc string) string {
		p := packed(t, map[string]string{"runc": runc, "shim": "shim"})
		p.proc = proc
		final, err := p.Unpack(dir, p.Whole)
		check(t, err)
		return filepath.Base(final)
	}
	v1 := unpack("1")
	other := filepath.Join(t.TempDir(), "hard")
	check(t, os.Link(filepath.Join(target, v1, "shim"), other))
	proc = running(t, "/bin/sh", other)
	unpack("2")
	v3 := unpack("3")
	v4 := unpack("4")
	onlyVersions(t, target, v1, v3, v4)
	proc = running(t, "/bin/sh")
	v5 := unpack("5")
	onlyVersions(t, target, v4, v5)
}

func TestAShimFromElsewhereKeepsAllVersions(t *testing.T) {
	for _, shim := range []string{"/opt/" + shimProgram, "/opt/" + shimProgram + " (deleted)"} {
		dir, all := t.TempDir(), []string(nil)
		for _, runc := range []string{"1", "2", "3"} {
			p := packed(t, map[string]string{"runc": runc})
			p.proc = running(t, "/bin/sh", shim)
			final, err := p.Unpack(dir, p.Whole)
			check(t, err)
			all = append(all, filepath.Base(final))
		}
		onlyVersions(t, dir, all...)
	}
}

// TestTheProcessesOfThisMachineAreSeen: this test is a program of a version.
func TestTheProcessesOfThisMachineAreSeen(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "0123456789abcdef")
	check(t, os.Mkdir(old, 0o700))
	if err := os.Link("/proc/self/exe", filepath.Join(old, "runc")); err != nil {
		me, err := os.Executable()
		check(t, err)
		check(t, os.Symlink(me, filepath.Join(old, "runc")))
	}
	for _, runc := range []string{"1", "2", "3"} {
		p := packed(t, map[string]string{"runc": runc})
		p.proc = "/proc"
		_, err := p.Unpack(dir, p.Whole)
		check(t, err)
	}
	if _, err := os.Stat(old); err != nil {
		t.Error(err)
	}
}

func TestSeveralProcessesMayUnpackAtOnce(t *testing.T) {
	p, dir := packed(t, two()), t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			final, err := p.Unpack(dir, p.Sound)
			if err != nil || !p.Whole(final) {
				t.Errorf("%s: %v", final, err)
			}
		})
	}
	wg.Wait()
	onlyVersions(t, dir, p.list.version)
}

// TestAnUnpackThatWasKilledLeavesNothingForLong: the next one removes what it had written.
func TestAnUnpackThatWasKilledLeavesNothingForLong(t *testing.T) {
	p, dir := packed(t, two()), t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, tmpPrefix+"123", "new", "runc"), 0o700))
	_, err := p.Unpack(dir, p.Whole)
	check(t, err)
	onlyVersions(t, dir, p.list.version)
}

func TestAMaskOfTheCallerDoesNotHideThePrograms(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	p, dir := packed(t, two()), t.TempDir()
	final, err := p.Unpack(dir, p.Whole)
	check(t, err)
	if st, err := os.Stat(final); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	hold(t, final, two())
}

func TestSameProgramsGiveTheSameArchive(t *testing.T) {
	a, files := packed(t, two()), programs(t, two())
	for _, file := range files {
		check(t, os.Chtimes(file, time.Unix(1, 0), time.Unix(2, 0)))
	}
	archive, text, err := Pack(quickly, files...)
	check(t, err)
	if !bytes.Equal(a.archive, archive) {
		t.Error("archives differ")
	}
	if !Packed(archive, text, files...) {
		t.Error("what was packed is not known again")
	}
	check(t, os.WriteFile(files[0], []byte("new"), 0o600))
	if Packed(archive, text, files...) || Packed(archive[1:], text, files[1:]...) || Packed(archive, text, files[1:]...) {
		t.Error("other programs pass for those that were packed")
	}
}

func TestOneProgramCanBeHadAlone(t *testing.T) {
	archive, text, err := Pack(Compress, programs(t, two())...)
	check(t, err)
	p, err := newParcel(archive, text)
	check(t, err)
	for name, want := range two() {
		var b bytes.Buffer
		if err := p.Program(name, &b); err != nil || b.String() != want {
			t.Errorf("%s: %v, %q", name, err, b.String())
		}
	}
	if err := p.Program("other", io.Discard); err == nil {
		t.Error("a program that is not there")
	}
	p.list.files[1].sum = p.list.files[0].sum
	if err := p.Program(p.list.files[1].name, io.Discard); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a damaged one: %v", err)
	}
}

func TestDamagedArchiveIsRefusedAndLeavesNothing(t *testing.T) {
	files := programs(t, two())
	good, text, err := Pack(quickly, files...)
	check(t, err)
	repack := func(old, replacement string) []byte {
		archive, _, err := Pack(func(raw []byte) ([]byte, error) {
			changed := bytes.Replace(raw, []byte(old), []byte(replacement), 1)
			if bytes.Equal(changed, raw) {
				t.Fatalf("no %q in the archive", old)
			}
			return quickly(changed)
		}, files...)
		check(t, err)
		return archive
	}
	more, _, err := Pack(quickly, append(files, programs(t, map[string]string{"more": "x"})...)...)
	check(t, err)
	less, _, err := Pack(quickly, files[0])
	check(t, err)
	for what, archive := range map[string][]byte{
		"cut off":        good[:len(good)/2],
		"other content":  repack("#!runc", "#!evil"),
		"one more":       more,
		"one less":       less,
		"no archive":     []byte("hello"),
		"nothing at all": {},
	} {
		p, err := newParcel(archive, text)
		check(t, err)
		dir := t.TempDir()
		if _, err := p.Unpack(dir, p.Whole); err == nil {
			t.Errorf("%s: unpacked", what)
		}
		onlyVersions(t, dir)
	}
}

func TestDamagedListIsRefused(t *testing.T) {
	_, text, err := Pack(quickly, programs(t, two())...)
	check(t, err)
	for what, list := range map[string]string{
		"nothing":         "",
		"no version":      strings.Replace(string(text), "\n", "x\n", 1),
		"a path":          strings.Replace(string(text), " shim", " ../shim", 1),
		"a short sum":     "0123456789abcdef\n0123 12 x\n",
		"a size of words": strings.Replace(string(text), " 4000 ", " many ", 1),
	} {
		if list == string(text) {
			t.Fatalf("%s: nothing was changed", what)
		}
		if p, err := newParcel(nil, []byte(list)); err == nil {
			t.Errorf("%s: %+v", what, p.list)
		}
	}
}

func TestAPlainBuildCarriesNothing(t *testing.T) {
	if p, err := Carried(); err == nil {
		t.Errorf("it carries %+v", p.list)
	}
}

func TestTheFileThatAProgramCameIn(t *testing.T) {
	env := WithLauncher([]string{"A=b", "MONOPOD_LAUNCHER=/old"}, "/usr/bin/monopod")
	if !slices.Equal(env, []string{"A=b", "MONOPOD_LAUNCHER=/usr/bin/monopod"}) {
		t.Error(env)
	}
	for _, c := range []struct{ exe, variable, want string }{
		{"/var/lib/monopod/bin/0123456789abcdef/monopod", "/usr/bin/monopod", "/usr/bin/monopod"},
		{"/memfd:monopod", "/usr/bin/monopod", "/usr/bin/monopod"},
		{"/var/lib/monopod/bin/0123456789abcdef/monopod", "", ""},
		{"/src/bin/monopod", "/usr/bin/monopod", ""},
	} {
		if got := launcherOf(c.exe, c.variable); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	t.Setenv(LauncherVariable, "/usr/bin/monopod")
	if got := Launcher(); got != "" {
		t.Errorf("this test came in %q", got)
	}
}
