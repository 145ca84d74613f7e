package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// member is one of an archive.
type member struct {
	kind       byte
	name, text string
	mode       int64
}

func archive(t testing.TB, members ...member) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Typeflag: m.kind, Name: m.name, Mode: m.mode}
		if m.mode == 0 {
			h.Mode = 0o755
		}
		switch m.kind {
		case tar.TypeReg:
			h.Size = int64(len(m.text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = m.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, m.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// sparse is an archive of a file of 4 GiB with nothing in it, as GNU's tar makes it.
func sparse(t *testing.T) io.Reader {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err == nil {
		err = errors.Join(f.Truncate(4<<30), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := exec.Command("tar", "-C", filepath.Dir(f.Name()), "-Scf", "-", "sparse").Output()
	if err != nil || len(b) > 1<<20 {
		t.Fatal(len(b), err)
	}
	return bytes.NewReader(b)
}

// look describes all that is in a directory.
func look(t testing.TB, dir string) string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		if err != nil || rel == "." {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			found[rel] = fmt.Sprintf("%s/ %o", rel, st.Mode().Perm())
		case st.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			found[rel] = fmt.Sprintf("%s %o %q", rel, st.Mode().Perm(), b)
		default:
			to, _ := os.Readlink(p)
			found[rel] = rel + " -> " + to
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[k])
	}
	return strings.Join(all, "\n")
}

func write(t testing.TB, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func openDir(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestATreeComesBackAsItWas(t *testing.T) {
	t.Parallel()
	src, dst := t.TempDir(), t.TempDir()
	write(t, filepath.Join(src, "app", "conf", "a b"), "text", 0o640)
	write(t, filepath.Join(src, "app", "bin"), strings.Repeat("x", 3*chunk+1), 0o4755)
	write(t, filepath.Join(src, "app", strings.Repeat("long", 50), "\xff\xfe"), "", 0o600)
	write(t, filepath.Join(src, "app", "closed", "f"), "f", 0o444)
	for link, to := range map[string]string{"rel": "conf/a b", "abs": "/etc/passwd", "up": "../other", "none": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(src, "app", link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(src, "app", "closed"), 0o555), unix.Mkfifo(filepath.Join(src, "app", "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	var warned []string
	warn := func(s string) { warned = append(warned, s) }
	if err := Pack(t.Context(), &b, openDir(t, filepath.Join(src, "app")), "app", warn); err != nil {
		t.Fatal(err)
	}
	stream := b.Bytes()
	if err := Unpack(t.Context(), &b, openDir(t, dst), Options{From: "app", To: "renamed", Warn: warn}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"app/fifo was skipped: it is neither a file nor a directory"}; !slices.Equal(warned, want) {
		t.Errorf("warnings: %q", warned)
	}
	_ = os.Remove(filepath.Join(src, "app", "fifo"))
	if err := os.Chmod(filepath.Join(src, "app", "bin"), 0o755); err != nil { // what it is without setuid
		t.Fatal(err)
	}
	want := strings.ReplaceAll("\n"+look(t, src), "\napp", "\nrenamed")[1:]
	if got := look(t, dst); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Once more over existing files, with a user whose umask is strict.
	warned = nil
	if err := Unpack(t.Context(), bytes.NewReader(stream), openDir(t, dst), Options{From: "app", To: "renamed", Careful: true, Warn: warn}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(warned)
	if want := []string{"app/abs was skipped: it is a link to /etc/passwd", "app/up was skipped: it is a link to ../other"}; !slices.Equal(warned, want) {
		t.Errorf("warnings: %q", warned)
	}
	if got := look(t, dst); got != want {
		t.Errorf("the second time\n%s\nwant\n%s", got, want)
	}
}

func TestOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "new", 0o600)
	write(t, filepath.Join(dir, "to", "there"), "older and longer", 0o644)
	before, _ := os.Stat(filepath.Join(dir, "to", "there"))
	var b bytes.Buffer
	if err := Pack(t.Context(), &b, openDir(t, filepath.Join(dir, "f")), "f", nil); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(t.Context(), &b, openDir(t, filepath.Join(dir, "to")), Options{From: "f", To: "there"}); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(dir, "to", "there"))
	if got := look(t, filepath.Join(dir, "to")); got != `there 644 "new"` || err != nil || !os.SameFile(before, after) {
		t.Errorf("%s, %v: it should be the same file with other content", got, err)
	}
}

// TestHostileArchives: whatever a stream says, nothing outside changes.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	const file, link, hard, dir = tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeDir
	for name, c := range map[string]struct {
		members []member
		err     string
		want    string
	}{
		"up":                            {[]member{{file, "../victim", "x", 0}}, "leads out", ""},
		"up in the middle":              {[]member{{file, "a/../../victim", "x", 0}}, "leads out", ""},
		"absolute":                      {[]member{{file, "/a/b", "x", 0o644}}, "", "a/ 755\na/b 644 \"x\""},
		"through a link":                {[]member{{link, "l", "..", 0}, {file, "l/victim", "x", 0}}, "leads out", "l -> .."},
		"through an absolute link":      {[]member{{link, "l", "/", 0}, {file, "l/tmp/monopod-victim", "x", 0}}, "leads out", "l -> /"},
		"through a chain of links":      {[]member{{dir, "a", "", 0}, {link, "a/b", "..", 0}, {link, "c", "a/b/..", 0}, {file, "c/victim", "x", 0}}, "leads out", "a/ 755\na/b -> ..\nc -> a/b/.."},
		"a file in place of a link":     {[]member{{link, "l", "../victim", 0}, {file, "l", "x", 0o644}}, "", "l 644 \"x\""},
		"a directory in place of one":   {[]member{{link, "l", "..", 0}, {dir, "l", "", 0o777}}, "leads out", "l -> .."},
		"a hard link":                   {[]member{{hard, "h", "../victim", 0}, {file, "h", "x", 0}}, "leads out", ""},
		"a hard link through a link":    {[]member{{link, "l", "..", 0}, {hard, "h", "l/victim", 0}}, "leads out", "l -> .."},
		"a hard link to a link":         {[]member{{link, "l", "../victim", 0}, {hard, "h", "l", 0}, {file, "h", "x", 0o644}}, "", "h 644 \"x\"\nl -> ../victim"},
		"a link to itself":              {[]member{{hard, "h", "h", 0}}, "", ""},
		"a file in place of all":        {[]member{{file, ".", "x", 0}}, "cannot be the directory itself", ""},
		"a link in place of all":        {[]member{{link, "a/..", "..", 0}}, "cannot be the directory itself", ""},
		"a file in place of a full one": {[]member{{file, "d/f", "x", 0o644}, {file, "d", "x", 0}}, "is a directory", "d/ 755\nd/f 644 \"x\""},
		"a device":                      {[]member{{tar.TypeChar, "null", "", 0}, {tar.TypeFifo, "fifo", "", 0}}, "", ""},
		"setuid":                        {[]member{{file, "su", "x", 0o6755}}, "", "su 755 \"x\""},
		"deep":                          {[]member{{file, strings.Repeat("d/", maxDepth+1) + "f", "x", 0}}, "nested more than", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			write(t, filepath.Join(top, "victim"), "untouched", 0o600)
			into := filepath.Join(top, "into")
			if err := os.Mkdir(into, 0o755); err != nil {
				t.Fatal(err)
			}
			err := Unpack(t.Context(), archive(t, c.members...), openDir(t, into), Options{})
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if got := look(t, into); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			unharmed(t, top)
		})
	}
}

// unharmed checks that only `into` and an untouched victim are in a directory.
func unharmed(t testing.TB, top string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, "victim"))
	st, _ := os.Lstat(filepath.Join(top, "victim"))
	all, _ := os.ReadDir(top)
	if err != nil || string(b) != "untouched" || st.Mode() != 0o600 || len(all) != 2 {
		t.Fatalf("%q, %v, %v, %v", b, err, st, all)
	}
	if st, err := os.Lstat(filepath.Join(top, "into")); err != nil || !st.IsDir() {
		t.Fatal(st, err)
	}
	if _, err := os.Lstat("/tmp/monopod-victim"); err == nil {
		t.Fatal("outside there is a file")
	}
}

func TestAStreamThatIsNotOfTheTreeIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"b", "ab", "b/a", "."} {
		err := Unpack(t.Context(), archive(t, member{tar.TypeReg, name, "x", 0}), openDir(t, t.TempDir()), Options{From: "a", To: "c"})
		if !errors.Is(err, ErrArchive) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := Unpack(t.Context(), sparse(t), openDir(t, t.TempDir()), Options{}); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "sparse") {
		t.Error(err)
	}
	b := archive(t, member{tar.TypeReg, "a", strings.Repeat("x", 1000), 0}).Bytes()
	for _, cut := range []int{100, 600} {
		if err := Unpack(t.Context(), bytes.NewReader(b[:cut]), openDir(t, t.TempDir()), Options{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a stream that ends after %d bytes: %v", cut, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Unpack(ctx, bytes.NewReader(b), openDir(t, t.TempDir()), Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOpenStaysBelowItsRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	write(t, filepath.Join(dir, "secret"), "", 0o600)
	write(t, filepath.Join(root, "etc", "secret"), "", 0o644)
	for link, to := range map[string]string{"abs": "/etc", "up": "../../../etc", "magic": "/proc/self/root/etc", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.Stat(filepath.Join(root, "etc", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"etc/secret", "/etc/secret", "../../etc/secret", "abs/secret", "/up/secret", "abs/../abs/./secret"} {
		f, err := Open(openDir(t, root), p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if got, err := f.Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s: %v, %v", p, got, err)
		}
		_ = f.Close()
	}
	for _, p := range []string{"secret", "../secret", "magic/secret", "loop", "abs/none"} {
		if f, err := Open(openDir(t, root), p); err == nil {
			t.Errorf("%s is %s", p, f.Name())
		}
	}
	here, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for _, p := range []string{"/proc/self/root/etc", "/proc/self/cwd", "/proc/self/fd/0"} {
		if f, err := Open(here, p); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %v, %v", p, f, err)
		}
	}
}

func TestWhereATreeGoes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "dir", "file"), "", 0o644)
	if err := errors.Join(os.Symlink("/dir", filepath.Join(root, "link")), os.Symlink("/dir/file", filepath.Join(root, "tofile"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ to, name, dir, want string }{
		{"/dir", "a", "dir", "a"},
		{"link/", "a", "dir", "a"},
		{"/dir/new", "a", "dir", "new"},
		{"/link/file", "a", "dir", "file"},
		{"/", "a", ".", "a"},
		{"tofile", "a", ".", "tofile"},
		{"/new", ".", ".", "new"},
		{"/dir", ".", "dir", "."},
		{"/dir", "", "dir", ""},
		{"/dir/new/", "a", "", ""},
		{"/none/new", "a", "", ""},
		{"/dir/file/new", "a", "", ""},
		{"/dir/file", "", "", ""},
		{"/dir/file/", "a", "", ""},
		{"/none", "", "", ""},
	} {
		got, err := FindTarget(openDir(t, root), c.to, c.name)
		if c.dir == "" {
			if p, ok := errors.AsType[*fs.PathError](err); !ok || strings.Contains(p.Path, "proc") {
				t.Errorf("%s: %v, %v", c.to, got, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.to, err)
			continue
		}
		is, _ := got.Dir.Stat()
		if want, err := os.Stat(filepath.Join(root, c.dir)); err != nil || !os.SameFile(is, want) || got.Name != c.want {
			t.Errorf("%s: %q in %v, want %q in %s", c.to, got.Name, is, c.want, c.dir)
		}
		_ = got.Dir.Close()
	}
	for p, want := range map[string]string{"/a/b": "b", "/a/b/": "b", "/": ".", "a/.": ".", "..": ".", "a/..": ".", "": ".", ".": ".", "a": "a"} {
		if got := Name(p); got != want {
			t.Errorf("%q is called %q, want %q", p, got, want)
		}
	}
}

// TestFilesThatTheKernelMakesAreLeftAlone: to read them may wait, to write them is to ask the kernel for something.
func TestFilesThatTheKernelMakesAreLeftAlone(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, p := range []string{"/proc/version", "/proc/self", "/sys/kernel"} {
		if err := Pack(t.Context(), &b, openDir(t, p), "x", nil); err == nil || !strings.Contains(err.Error(), "neither a regular file nor a directory") {
			t.Errorf("%s: %v", p, err)
		}
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []member{{tar.TypeReg, "comm", "changed", 0}, {tar.TypeReg, "task/new", "x", 0}, {tar.TypeDir, "new", "", 0}, {tar.TypeSymlink, "new", "x", 0}} {
		err := Unpack(t.Context(), archive(t, m), openDir(t, "/proc/self"), Options{})
		if err == nil || !strings.Contains(err.Error(), "virtual files of the kernel") {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if now, _ := os.ReadFile("/proc/self/comm"); !bytes.Equal(now, comm) {
		t.Errorf("the name of the process is now %q", now)
	}
}

// TestATreeThatChangesWhileItIsReadAndWritten swaps files, links, directories and FIFOs all the time. The copy must end, and must neither
// read nor write anything outside.
func TestATreeThatChangesWhileItIsReadAndWritten(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	into := filepath.Join(top, "into")
	write(t, filepath.Join(top, "victim"), "untouched", 0o600)
	write(t, filepath.Join(into, "d", "victim"), "inside", 0o644)
	var stop atomic.Bool
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for i := 0; !stop.Load(); i++ {
			p := filepath.Join(into, "d")
			_ = os.RemoveAll(p)
			switch i % 4 {
			case 0:
				_ = os.Symlink("..", p)
			case 1:
				_ = os.Mkdir(p, 0o755)
				_ = os.Symlink("../../victim", filepath.Join(p, "victim"))
			case 2:
				_ = os.Mkdir(p, 0o755)
				_ = unix.Mkfifo(filepath.Join(p, "victim"), 0o644)
			case 3:
				_ = os.Mkdir(p, 0o755)
				_ = os.WriteFile(filepath.Join(p, "victim"), []byte("inside"), 0o644)
			}
		}
	}()
	root, dir := openDir(t, into), openDir(t, into)
	for i := range 300 {
		var b bytes.Buffer
		if err := Pack(t.Context(), &b, dir, "x", nil); err == nil && strings.Contains(b.String(), "untouched") {
			t.Error("the victim was read")
		}
		_, _ = dir.Seek(0, io.SeekStart)
		_ = Unpack(t.Context(), archive(t, member{tar.TypeReg, "d/victim", "number " + strconv.Itoa(i), 0}, member{tar.TypeDir, "d/victim/x", "", 0}), root, Options{})
	}
	stop.Store(true)
	<-swapped
	unharmed(t, top)
}

// TestRightsOfAUser: the function has the rights of the user, and no later one has them.
func TestRightsOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o775), os.Chown(dir, 0, 3000)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "roots"), "x", 0o600)
	try := func(u User) (made, read error) {
		err := u.Do(func() error {
			made = os.WriteFile(filepath.Join(dir, "new"), nil, 0o640)
			_, read = os.ReadFile(filepath.Join(dir, "roots"))
			return errors.New("mine")
		})
		if err == nil || err.Error() != "mine" {
			t.Errorf("%+v: %v", u, err)
		}
		return made, read
	}
	for _, c := range []struct {
		user       User
		made, read bool
	}{
		{User{UID: 1000, GID: 2000}, false, false},
		{User{UID: 1000, GID: 2000, Groups: []int{3000}}, true, false},
		{User{UID: 1000, GID: 3000}, true, false},
		{User{UID: 1000, GID: 2000, Capabilities: 1 << unix.CAP_DAC_OVERRIDE}, true, true},
		{User{UID: 0, GID: 0}, true, true},
	} {
		made, read := try(c.user)
		if (made == nil) != c.made || (read == nil) != c.read {
			t.Errorf("%+v: %v, %v", c.user, made, read)
		}
		if !c.made {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "new"), &st); err != nil || int(st.Uid) != c.user.UID || int(st.Gid) != c.user.GID {
			t.Errorf("%+v: the file is of %d:%d, %v", c.user, st.Uid, st.Gid, err)
		}
		if err := os.Remove(filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/status")
	for range 100 { // the threads have ended, or will
		if _, err := os.ReadFile(filepath.Join(dir, "roots")); err != nil {
			t.Fatal(err, len(tasks))
		}
	}
}

func FuzzUnpack(f *testing.F) {
	for _, m := range [][]member{
		{{tar.TypeDir, "a", "", 0}, {tar.TypeReg, "a/b", "text", 0}},
		{{tar.TypeSymlink, "l", "../victim", 0}, {tar.TypeReg, "l", "x", 0}},
		{{tar.TypeReg, "../victim", "x", 0}},
		{{tar.TypeSymlink, "a", "..", 0}, {tar.TypeLink, "b", "a/victim", 0}, {tar.TypeReg, "b", "x", 0}},
	} {
		f.Add(archive(f, m...).Bytes(), true)
		f.Add(archive(f, m...).Bytes(), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, careful bool) {
		top := t.TempDir()
		write(t, filepath.Join(top, "victim"), "untouched", 0o600)
		into := filepath.Join(top, "into")
		if err := os.Mkdir(into, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(t.Context(), bytes.NewReader(b), openDir(t, into), Options{Careful: careful})
		unharmed(t, top)
		if !careful {
			return
		}
		_ = filepath.WalkDir(into, func(p string, d fs.DirEntry, _ error) error {
			if to, err := os.Readlink(p); err == nil && !filepath.IsLocal(to) {
				t.Errorf("%s leads to %s", p, to)
			}
			return nil
		})
	})
}
