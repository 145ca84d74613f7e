package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/watcher/watchertest"
)

func TestTraceNamesEveryEntryThatDecides(t *testing.T) {
	root := t.TempDir()
	root, err := filepath.EvalSymlinks(root)
	watchertest.Must(t, err)
	watchertest.Must(t, os.MkdirAll(filepath.Join(root, "a", "b"), 0o755))
	watchertest.Write(t, filepath.Join(root, "a", "b", "file"), "")
	watchertest.Must(t, os.Symlink("a/b", filepath.Join(root, "dir")))
	watchertest.Must(t, os.Symlink("../dir/../b/file", filepath.Join(root, "a", "link")))
	watchertest.Must(t, os.Symlink("/", filepath.Join(root, "top")))
	watchertest.Must(t, os.Symlink("loop", filepath.Join(root, "loop")))
	tests := []struct {
		name, path, real string
		hops             []string
		err              error
	}{
		{"a plain file", "a/b/file", "a/b/file", []string{"a/b|file"}, nil},
		{"a link, a link in its target and a parent step", "a/link", "a/b/file", []string{"a|link", "|dir", "a/b|file"}, nil},
		{"a missing name in the middle", "a/c/d", "", []string{"a|c"}, unix.ENOENT},
		{"a loop", "loop", "", nil, unix.ELOOP},
		{"a file used as a directory", "a/b/file/x", "", []string{"a/b/file|x"}, unix.ENOTDIR},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := trace(root, tt.path)
			if !watchertest.IsErrno(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err == nil && r.real != filepath.Join(root, tt.real) {
				t.Errorf("real is %s", r.real)
			}
			var hops []string
			for _, h := range r.hops {
				hops = append(hops, strings.TrimPrefix(strings.TrimPrefix(h.dir, root), "/")+"|"+h.name)
			}
			if tt.hops != nil && !slices.Equal(hops, tt.hops) {
				t.Errorf("hops %v, want %v", hops, tt.hops)
			}
		})
	}
	if r, err := trace(root, "top"); err != nil || r.real != "/" || !r.info.IsDir() {
		t.Errorf("a link to / leads to %q, %v", r.real, err)
	}
}

func TestClassify(t *testing.T) {
	tests := map[string]nameKind{
		"x.yaml": manifest, "x.yml": manifest, "x.json": manifest, "x.y.yaml": manifest, "x~.yaml": manifest,
		"x.YAML": foreign, "x.yaml.bak": foreign, "README": foreign, "x.txt": foreign, "yaml": foreign, "49130": foreign,
		".x.yaml": dropping, ".yaml": dropping, "x.yaml~": dropping, "x.yaml.swp": dropping, "x.swx": dropping,
		"4913": dropping, "#x.yaml#": dropping, ".#x.yaml": dropping, "..data": dropping,
	}
	for name, want := range tests {
		if got := classify(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

func TestMetacharactersInThePathMeanNothing(t *testing.T) {
	for _, name := range []string{"[a-z]*", "a?b", "...", "$HOME", "~", "with space", "-rf"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			watchertest.Must(t, os.Mkdir(dir, 0o755))
			watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v1\n")
			s := standOn(t, dir+"/")
			s.Pods("x=v1@x.yaml")
			watchertest.Write(t, filepath.Join(dir, "x.yaml"), "pod x v2\n")
			set := s.Pods("x=v2@x.yaml")
			if got := set.Pods[0].Origin.File; got != filepath.Join(dir, "x.yaml") {
				t.Errorf("the origin is %s", got)
			}
		})
	}
}
