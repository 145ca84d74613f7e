package trees

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// fake is a mount table in memory.
type fake struct {
	mounts []string
	reads  int
	calls  []string
	// refuse is the error of an unmount, by path.
	refuse map[string]error
	// detach is set if a busy mount can be unmounted lazily.
	detach bool
}

func (f *fake) table() table {
	return table{
		read: func(filter mountinfo.FilterFunc) (all []*mountinfo.Info, err error) {
			f.reads++
			for _, path := range f.mounts {
				m := &mountinfo.Info{Mountpoint: path}
				if skip, _ := filter(m); !skip {
					all = append(all, m)
				}
			}
			return all, nil
		},
		unmount: func(path string, flags int) error {
			f.calls = append(f.calls, path)
			if err := f.refuse[path]; err != nil && (!f.detach || flags&unix.MNT_DETACH == 0) {
				return err
			}
			if i := slices.Index(f.mounts, path); i >= 0 {
				f.mounts = slices.Delete(f.mounts, i, i+1)
			}
			return nil
		},
	}
}

// dirs makes directories with a file in each, and returns them.
func dirs(t *testing.T, names ...string) (top string, all []string) {
	t.Helper()
	top = t.TempDir()
	for _, name := range names {
		dir := filepath.Join(top, name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		all = append(all, dir)
	}
	return top, all
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestTheMountTableIsReadOnceForAllDirectories(t *testing.T) {
	top, all := dirs(t, "a", "b", "c")
	f := &fake{mounts: []string{"/", all[0], all[1] + "/x", all[1] + "/x/y", all[1] + "/x", top + "/bb", "/c"}}
	if err := f.table().remove(append(all, filepath.Join(top, "missing"))); err != nil {
		t.Fatal(err)
	}
	if want := []string{all[1] + "/x", all[1] + "/x/y", all[1] + "/x", all[0]}; !slices.Equal(f.calls, want) {
		t.Errorf("unmounted %q, want %q", f.calls, want)
	}
	for _, dir := range all {
		if there(dir) {
			t.Errorf("%s is still there", dir)
		}
	}
	if f.reads != 1 {
		t.Errorf("the table was read %d times", f.reads)
	}
}

func TestTheMountTableIsNotReadForWhatIsNotThere(t *testing.T) {
	f := &fake{}
	if err := f.table().remove([]string{filepath.Join(t.TempDir(), "missing")}); err != nil || f.reads > 0 {
		t.Errorf("%v, read %d times", err, f.reads)
	}
}

func TestNothingIsRemovedThroughAMountThatStays(t *testing.T) {
	for name, c := range map[string]struct {
		err    error // of unmounting
		detach bool
		want   string // part of the error; "" when all is removed
	}{
		"the kernel does not let go of it": {unix.EPERM, false, "unmount "},
		"it is not there, says the kernel": {unix.EINVAL, false, "still mounted"},
		"it is busy":                       {unix.EBUSY, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, all := dirs(t, "a/below", "b")
			a := filepath.Dir(all[0])
			f := &fake{mounts: []string{all[0]}, refuse: map[string]error{all[0]: c.err}, detach: c.detach}
			err := f.table().remove([]string{a, all[1]})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if there(filepath.Join(all[0], "file")) != (c.want != "") {
				t.Error("what is behind the mount is gone, or was left without one")
			}
			if there(all[1]) {
				t.Error("the other directory is still there")
			}
		})
	}
}

// TestAMountThatWentWithAnotherDoesNotKeepTheDirectory has a shared mount, which is unmounted at several paths.
func TestAMountThatWentWithAnotherDoesNotKeepTheDirectory(t *testing.T) {
	_, all := dirs(t, "a/one", "a/two")
	f := &fake{mounts: []string{all[0], all[1]}}
	shared := f.table()
	shared.unmount = func(path string, _ int) error {
		if !slices.Contains(f.mounts, path) {
			return unix.EINVAL
		}
		f.mounts = nil
		return nil
	}
	if err := shared.remove([]string{filepath.Dir(all[0])}); err != nil || there(filepath.Dir(all[0])) {
		t.Errorf("%v, there: %v", err, there(filepath.Dir(all[0])))
	}
	if f.reads != 2 {
		t.Errorf("the table was read %d times: after an unmount that failed, somebody must look again", f.reads)
	}
}

func TestNothingIsRemovedWhenTheTableCannotBeRead(t *testing.T) {
	_, all := dirs(t, "a")
	unreadable := table{read: func(mountinfo.FilterFunc) ([]*mountinfo.Info, error) { return nil, unix.EMFILE }}
	if err := unreadable.remove(all); !errors.Is(err, unix.EMFILE) || !there(all[0]) {
		t.Errorf("%v, there: %v", err, there(all[0]))
	}
}

func TestOnlyPathsBelowAreBelow(t *testing.T) {
	for path, want := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false, "/": false} {
		if within(path, "/a/b") != want {
			t.Errorf("%s: want %v", path, want)
		}
	}
}
