package ctrd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/spec"
)

func TestTerminationMessagesAreReadFromRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "msg")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		n    int
		want string
	}{
		{path, 100, "0123456789"},
		{path, 4, "6789"},
		{path, 0, ""},
		{link, 100, ""},
		{dir, 100, ""},
		{"", 100, ""},
		{filepath.Join(dir, "none"), 100, ""},
	} {
		if got := readTail(c.path, c.n); got != c.want {
			t.Errorf("readTail(%q, %d) = %q, want %q", c.path, c.n, got, c.want)
		}
	}
}

func TestALogFileIsNeverReused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"2.log", "3.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]string{0: "0.log", 2: "4.log", 7: "7.log"} {
		if got := filepath.Base(nextLogPath(dir, n)); got != want {
			t.Errorf("log of instance %d is %s, want %s", n, got, want)
		}
	}
}

func TestHostPathsAreCheckedAndCreatedByType(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		typ  corev1.HostPathType
		want string // resolved path, or part of the error
	}{
		"an unset type makes a directory":     {dir + "/a/b", "", dir + "/a/b"},
		"DirectoryOrCreate makes one":         {dir + "/c/d", corev1.HostPathDirectoryOrCreate, dir + "/c/d"},
		"FileOrCreate makes a file":           {dir + "/f", corev1.HostPathFileOrCreate, dir + "/f"},
		"FileOrCreate makes no parent":        {dir + "/x/f", corev1.HostPathFileOrCreate, "no such file"},
		"a file is no directory":              {file, corev1.HostPathDirectory, "hostPath type check failed: " + file + " is not a directory"},
		"a missing directory fails":           {dir + "/none", corev1.HostPathDirectory, "is not a directory"},
		"a socket is wanted":                  {file, corev1.HostPathSocket, "is not a socket file"},
		"symlinks are followed":               {link, corev1.HostPathDirectory, dir},
		"a character device is what it is":    {"/dev/null", corev1.HostPathCharDev, "/dev/null"},
		"a character device is no block file": {"/dev/null", corev1.HostPathBlockDev, "is not a block device"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := prepareHostPath(spec.HostPath{Path: c.path, Type: c.typ})
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAnEmptyDirIsMadeOnceForEverybody(t *testing.T) {
	r := bareRuntime()
	r.cfg.RootDirectory = t.TempDir()
	plan := spec.VolumePlan{Name: "data", EmptyDir: &spec.EmptyDir{Mode: 0o777}}
	recorded, path := &manifests.Pod{Object: &corev1.Pod{}}, r.emptyDir("uid", "data")
	if err := r.prepareEmptyDir("uid", plan, recorded); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o777 {
		t.Fatalf("got %v, %v", fi.Mode(), err)
	}
	if want := r.cfg.RootDirectory + "/pods/uid/volumes/kubernetes.io~empty-dir/data"; path != want {
		t.Errorf("path is %s, want %s", path, want)
	}
	// The workload may change it: it stays that way.
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.prepareEmptyDir("uid", plan, recorded); err != nil {
		t.Fatal(err)
	}
	if fi, _ = os.Stat(path); fi.Mode().Perm() != 0o700 {
		t.Errorf("mode was set again to %v", fi.Mode())
	}
}

func TestOnlyACgroupWithTheIDIsTheContainers(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want bool
	}{
		"v2":               {"0::/monopod/poduid/abc\n", true},
		"v1":               {"3:memory:/monopod/poduid/abc\n2:cpu:/\n", true},
		"below":            {"0::/monopod/poduid/abc/init\n", true},
		"another":          {"0::/monopod/poduid/abcd\n", false},
		"the root":         {"0::/\n", false},
		"nothing":          {"", false},
		"name in v1 field": {"1:name=abc:/x\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inCgroup(c.in, "abc"); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestMessagesOfAPodShareItsLimit(t *testing.T) {
	for n, want := range map[int]int{1: 4096, 3: 4096, 4: 3072, 12: 1024} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, n)}}
		if got := messageLimit(pod); got != want {
			t.Errorf("%d containers: limit %d, want %d", n, got, want)
		}
	}
}

func TestARemovedTreeIsGoneAndAMissingOneIsFine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := removeTree(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("still there")
	}
}
