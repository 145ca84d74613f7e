package payload

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// content reads a volume through its links, as a container does: path=data for each file.
func content(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(target, path)
			all = append(all, filepath.Join(e.Name(), rel)+"="+string(data))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func file(data string) File { return File{Data: []byte(data), Mode: 0o640} }

func TestContentIsReplacedAsAWholeAndOnlyWhenItChanged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	for _, step := range []struct {
		name    string
		files   map[string]File
		want    string
		changes bool
	}{
		{"first", map[string]File{"a": file("1"), "d/b": file("2")}, "a=1 d/b=2", true},
		{"the same", map[string]File{"a": file("1"), "d/b": file("2")}, "a=1 d/b=2", false},
		{"other data", map[string]File{"a": file("1"), "d/b": file("3")}, "a=1 d/b=3", true},
		{"other mode", map[string]File{"a": {Data: []byte("1"), Mode: 0o444}, "d/b": file("3")}, "a=1 d/b=3", true},
		{"one less", map[string]File{"d/b": file("3")}, "d/b=3", true},
		{"none", map[string]File{}, "", true},
		{"one", map[string]File{"c": file("4")}, "c=4", true},
	} {
		before, _ := os.Readlink(filepath.Join(dir, dataLink))
		if err := Write(dir, step.files, nil); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		after, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil || (before != after) != step.changes {
			t.Errorf("%s: %q became %q (%v)", step.name, before, after, err)
		}
		if got := content(t, dir); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		for path, f := range step.files {
			if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode() != f.Mode {
				t.Errorf("%s: %s has mode %v (%v)", step.name, path, info.Mode(), err)
			}
		}
		if old, _ := filepath.Glob(filepath.Join(dir, "..2*")); len(old) != 1 {
			t.Errorf("%s: %d directories", step.name, len(old))
		}
	}
}

// TestFilesHaveOwners gives files away as far as this process may.
func TestFilesHaveOwners(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	own := int64(os.Geteuid())
	other := own
	if own == 0 {
		other = 1000
	}
	for _, uid := range []*int64{&other, &own, &other, nil} {
		f := File{Data: []byte("1"), Mode: 0o400, UID: uid}
		if err := Write(dir, map[string]File{"a": f}, nil); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "a"))
		if err != nil || uidOf(info) != f.uid() || info.Mode() != 0o400 {
			t.Errorf("user %d: got %d and mode %v (%v)", f.uid(), uidOf(info), info.Mode(), err)
		}
	}
}

func TestWhatWasLeftHalfwayIsMended(t *testing.T) {
	dir := t.TempDir()
	files := map[string]File{"a": file("1")}
	if err := Write(dir, files, nil); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Remove(filepath.Join(dir, "a")),
		os.Mkdir(filepath.Join(dir, "..2020_half"), 0o700),
		os.Symlink("..2020_half", filepath.Join(dir, newLink)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(dir, files, nil); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if got := content(t, dir); got != "a=1" || len(entries) != 3 {
		t.Errorf("got %q and %d entries", got, len(entries))
	}
}

func TestPathsOutOfTheVolumeAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"", "/etc/passwd", "../x", "a/../../x", "..data", "a//b", "a/", ".", strings.Repeat("x", 256)} {
		if err := Write(dir, map[string]File{path: file("1")}, nil); err == nil {
			t.Errorf("%q is accepted", path)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("refused paths left %v", entries)
	}
}

func TestFSGroupMayReadWhateverTheMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	gid := os.Getgid()
	if err := Write(dir, map[string]File{"d/a": {Data: []byte("1"), Mode: 0o400}}, &Owner{GID: gid}); err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{"d/a": 0o440, "d": fs.ModeDir | fs.ModeSetgid | 0o755, ".": fs.ModeDir | fs.ModeSetgid | 0o777}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode() != want[path] {
			t.Errorf("%s: %v (%v), want %v", path, info.Mode(), err, want[path])
		}
	}
}
