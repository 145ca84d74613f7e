package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/user"

	"monopod/runner/ctrd/image/registry"
)

func TestArchiveName(t *testing.T) {
	for name, tt := range map[string]struct{ stem, ref, want string }{
		"a full name":                        {"x", "example.com/a/b:1", "example.com/a/b:1"},
		"a short name with tag":              {"x", "web:1", "docker.io/library/web:1"},
		"a bare word is an image":            {"x", "web", "docker.io/library/web:latest"},
		"a version is a tag":                 {"web", "1.2", "docker.io/library/web:1.2"},
		"so is a version with v":             {"web", "v3", "docker.io/library/web:v3"},
		"and latest":                         {"web", "latest", "docker.io/library/web:latest"},
		"no name: the file's":                {"web", "", "docker.io/library/web:latest"},
		"no name: the file's with version":   {"web_1.2", "", "docker.io/library/web:1.2"},
		"a tag wins over the file's version": {"web_1.2", "1.3", "docker.io/library/web:1.3"},
		"capitals of a file name":            {"Web", "", "docker.io/library/web:latest"},
		"an underscore without version":      {"my_web", "", "docker.io/library/my_web:latest"},
		"impossible":                         {"x", "a b", ""},
		"impossible file name":               {"a b", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := archiveName(tt.stem, tt.ref)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestArchiveStem(t *testing.T) {
	for path, want := range map[string]string{
		"/d/a.tar": "a", "/d/a.b.tar.gz": "a.b", "/d/a.tgz": "a", "/d/a.tar.zst": "a",
		"/d/.a.tar": "", "/d/a.zip": "", "/d/a.tar.part": "", "/d/.tar": "", "/d/a.tar~": "",
	} {
		if got, ok := archiveStem(path); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
}

func TestResolveUser(t *testing.T) {
	users, err := user.ParsePasswd(strings.NewReader("root:x:0:0:::\napp:x:1000:1001:::\nhuge:x:3000000000:1:::\n"))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := user.ParseGroup(strings.NewReader("root:x:0:\napp:x:1001:app\naudio:x:29:root,app\nstaff:x:50:app\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &userFiles{users: users, groups: groups}
	n := func(v int64) *int64 { return &v }
	for name, tt := range map[string]struct {
		image    string
		uid, gid *int64
		want     string
	}{
		"nothing said: root with root's groups":       {"", nil, nil, "0:0 29"},
		"a name brings its group":                     {"app", nil, nil, "1000:1001 29 50"},
		"a number brings the group of its entry":      {"1000", nil, nil, "1000:1001 29 50"},
		"a number without an entry is in group 0":     {"77", nil, nil, "77:0"},
		"a group by name":                             {"app:staff", nil, nil, "1000:50 29 50"},
		"numbers that nobody knows":                   {"77:88", nil, nil, "77:88"},
		"the pod's uid replaces the image's group":    {"app:staff", n(77), nil, "77:0"},
		"the pod's uid brings the group of its entry": {"", n(1000), nil, "1000:1001 29 50"},
		"the pod's gid alone keeps the image's user":  {"app:staff", nil, n(5), "1000:5 29 50"},
		"both from the pod":                           {"app", n(1), n(2), "1:2"},
		"a name that does not exist":                  {"ghost", nil, nil, "error"},
		"a group that does not exist":                 {"app:ghost", nil, nil, "error"},
		"too large for runc":                          {"2147483648", nil, nil, "error"},
		"an entry too large for runc":                 {"huge", nil, nil, "error"},
		"negative":                                    {"", n(-1), nil, "error"},
		"far out of range":                            {"99999999999999999999", nil, nil, "error"},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := resolve(f, tt.image, tt.uid, tt.gid)
			got := printUser(u.UID, u.GID, u.Groups)
			if err != nil {
				got = "error"
			}
			if got != tt.want {
				t.Errorf("got %s, want %s (%v)", got, tt.want, err)
			}
		})
	}
}

func printUser(uid, gid uint32, groups []uint32) string {
	parts := []string{utoa(uid) + ":" + utoa(gid)}
	slices.Sort(groups)
	for _, g := range groups {
		parts = append(parts, utoa(g))
	}
	return strings.Join(parts, " ")
}

func TestUserFilesOutsideTheImageAreNotRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(outside, []byte("evil:x:1:1:::\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	users, groups, err := readUserFiles(root)
	if err != nil || len(users) != 0 || len(groups) != 0 {
		t.Errorf("%v, %v, %v", users, groups, err)
	}
	if err := os.Mkdir(filepath.Join(root, "etc/group"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readUserFiles(root); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory as /etc/group: %v", err)
	}
}

func TestRetriesGetRarer(t *testing.T) {
	var waits []time.Duration
	last := time.Duration(0)
	for range 9 {
		last = nextRetry(last, true)
		waits = append(waits, last)
	}
	if waits[0] != minRetry || waits[1] != 2*minRetry || waits[8] != maxRetry {
		t.Errorf("%v", waits)
	}
	if nextRetry(last, false) != 0 {
		t.Error("retries go on without a reason")
	}
}

func TestFlightOutlivesTheCallThatStartedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newFlights()
		release := make(chan struct{})
		runs := 0
		run := func(ctx context.Context) (*Image, error) {
			runs++
			select {
			case <-release:
				return &Image{Name: "x"}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() { _, err := fs.do(first, "k", run); errs <- err }()
		synctest.Wait()
		imgs := make(chan *Image, 1)
		go func() { img, _ := fs.do(t.Context(), "k", run); imgs <- img }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled call: %v", err)
		}
		close(release)
		if img := <-imgs; img == nil || img.Name != "x" {
			t.Errorf("the other call: %v", img)
		}
		if runs != 1 || len(fs.m) != 0 {
			t.Errorf("%d runs, %d left", runs, len(fs.m))
		}
	})
}

func TestFlightEndsWithItsLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newFlights()
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			_, _ = fs.do(ctx, "k", func(ctx context.Context) (*Image, error) {
				<-ctx.Done()
				ended = true
				return nil, ctx.Err()
			})
			if !ended {
				t.Error("the call returned before the run had ended")
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !ended || len(fs.m) != 0 {
			t.Errorf("ended %v, %d left", ended, len(fs.m))
		}
	})
}

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func TestAtDigest(t *testing.T) {
	const d = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	const other = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for ref, want := range map[string]string{
		"busybox":                  "docker.io/library/busybox@" + d,
		"example.com:5000/a/b:1":   "example.com:5000/a/b@" + d,
		"example.com/a@" + other:   "example.com/a@" + other,
		"example.com/a:1@" + other: "example.com/a:1@" + other,
		"No Name":                  "No Name",
	} {
		if got := AtDigest(ref, d); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
		if _, err := registry.Normalize(AtDigest(ref, d)); (err == nil) != (ref != "No Name") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
