package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// layerFile is an entry of a layer in a test.
type layerFile struct {
	name, text, link string
	kind             byte
	mode             int64
}

func layerTar(t *testing.T, files ...layerFile) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if f.kind == 0 {
			f.kind = tar.TypeReg
		}
		if f.mode == 0 {
			f.mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Size: int64(len(f.text)), Linkname: f.link}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDamageOfALayerIsFound(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 3*BlockSize/16)
	layer := layerTar(t,
		layerFile{name: "./", kind: tar.TypeDir},
		layerFile{name: "usr/", kind: tar.TypeDir},
		layerFile{name: "usr/bin/", kind: tar.TypeDir},
		layerFile{name: "bin", kind: tar.TypeSymlink, link: "usr/bin"},
		layerFile{name: "bin/sh", text: long}, // through the link
		layerFile{name: "usr/bin/su", text: "su", mode: 0o4755},
		layerFile{name: "empty"},
		layerFile{name: "twice", text: "one"},
		layerFile{name: "twice", text: "other"},
		layerFile{name: "hard", kind: tar.TypeLink, link: "usr/bin/su"},
		layerFile{name: ".wh..wh.plnk", text: "of another age"},
	)
	write := func(path, text string, mode os.FileMode) func(root string) error {
		return func(root string) error {
			path := filepath.Join(root, path)
			return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
		}
	}
	whole := []func(root string) error{
		func(root string) error { return os.MkdirAll(filepath.Join(root, "usr", "bin"), 0o755) },
		func(root string) error { return os.Symlink("usr/bin", filepath.Join(root, "bin")) },
		write("usr/bin/sh", long, 0o755), write("usr/bin/su", "su", os.ModeSetuid|0o755), write("empty", "", 0o755), write("twice", "other", 0o755), write("more", "not in the layer", 0o644),
		func(root string) error {
			return os.Link(filepath.Join(root, "usr/bin/su"), filepath.Join(root, "hard"))
		},
	}
	remove := func(path string) func(root string) error {
		return func(root string) error { return os.RemoveAll(filepath.Join(root, path)) }
	}
	for name, c := range map[string]struct {
		damage func(root string) error
		want   []string
	}{
		"nothing":          {func(string) error { return nil }, nil},
		"an empty file":    {write("usr/bin/sh", "", 0o755), []string{"/usr/bin/sh: has 0 bytes, not 393216"}},
		"a shorter file":   {write("usr/bin/sh", long[:1000], 0o755), []string{"/usr/bin/sh: has 1000 bytes, not 393216"}},
		"zeros at the end": {write("usr/bin/sh", long[:len(long)-9]+strings.Repeat("\x00", 9), 0o755), []string{"/usr/bin/sh: differs after 262144 bytes"}},
		"zeros":            {write("usr/bin/su", "\x00\x00", os.ModeSetuid|0o755), []string{"/usr/bin/su: differs after 0 bytes"}},
		"a mode":           {write("usr/bin/su", "su", 0o755), []string{"/usr/bin/su: has mode -rwxr-xr-x, not urwxr-xr-x"}},
		"a missing file":   {remove("empty"), []string{"/empty: is missing"}},
		"a missing link":   {remove("hard"), []string{"/hard: is missing"}},
		"another target": {func(root string) error {
			return errors.Join(os.Remove(root+"/bin"), os.Symlink("usr/bin/.", root+"/bin"))
		}, []string{`/bin: leads to "usr/bin/.", not "usr/bin"`}},
		"an earlier content": {write("twice", "one", 0o755), []string{"/twice: has 3 bytes, not 5"}},
		"a file for a directory": {
			func(root string) error {
				return errors.Join(os.RemoveAll(root+"/usr/bin"), os.WriteFile(root+"/usr/bin", nil, 0o600))
			},
			[]string{"/usr/bin: is ----------, not d---------", "/usr/bin/sh: lstat", "/usr/bin/su: lstat"},
		},
		"everything": {
			func(root string) error {
				return errors.Join(os.RemoveAll(root+"/usr"), os.RemoveAll(root+"/bin"), os.Remove(root+"/twice"))
			},
			[]string{"/bin: is missing", "/bin/sh: is missing", "/twice: is missing", "/usr: is missing", "/usr/bin: is missing", "/usr/bin/su: is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range append(slices.Clone(whole), c.damage) {
				if err := f(root); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Compare(bytes.NewReader(layer), root, false, func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			same := slices.EqualFunc(got, c.want, func(got, want string) bool { return strings.HasPrefix(strings.ReplaceAll(got, root, ""), want) })
			if !same {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatALayerRemovesIsMarked(t *testing.T) {
	layer := layerTar(t, layerFile{name: "d/", kind: tar.TypeDir}, layerFile{name: "d/.wh.gone"}, layerFile{name: "d/.wh..wh..opq"}, layerFile{name: "d/f", text: "x"})
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(root+"/d", 0o755), os.WriteFile(root+"/d/f", []byte("x"), 0o600), os.Chmod(root+"/d/f", 0o755)); err != nil {
		t.Fatal(err)
	}
	compare := func(overlay bool) []string {
		t.Helper()
		got, err := Compare(bytes.NewReader(layer), root, overlay, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := compare(false); len(got) > 0 {
		t.Errorf("in the first layer: %q", got)
	}
	if got := compare(true); !slices.Equal(got, []string{"/d/gone: is not marked as removed"}) {
		t.Errorf("without the mark: %q", got)
	}
	if err := unix.Mknod(root+"/d/gone", unix.S_IFCHR, 0); err != nil {
		t.Skip("a mark cannot be made here:", err)
	}
	if got := compare(true); len(got) > 0 {
		t.Errorf("with the mark: %q", got)
	}
	if err := RemoveWhiteouts(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root + "/d/gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark is still there: %v", err)
	}
	if _, err := os.Lstat(root + "/d/f"); err != nil {
		t.Error(err)
	}
}

func TestADamagedLayerIsAnError(t *testing.T) {
	layer := layerTar(t, layerFile{name: "f", text: strings.Repeat("x", 5000)})
	for _, n := range []int{100, 1000, 3000} {
		if _, err := Compare(bytes.NewReader(layer[:n]), t.TempDir(), false, func() error { return nil }); err == nil {
			t.Errorf("%d bytes of it are a layer", n)
		}
	}
	stop := errors.New("stop")
	if _, err := Compare(bytes.NewReader(layer), t.TempDir(), false, func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it does not stop: %v", err)
	}
}
