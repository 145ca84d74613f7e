package local

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/user"
)

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
		"no USER: root with root's groups":           {"", nil, nil, "0:0 29"},
		"a name has the group of its entry":          {"app", nil, nil, "1000:1001 29 50"},
		"a uid has the group of its entry":           {"1000", nil, nil, "1000:1001 29 50"},
		"a uid without an entry has group 0":         {"77", nil, nil, "77:0"},
		"a group by name":                            {"app:staff", nil, nil, "1000:50 29 50"},
		"ids without entries":                        {"77:88", nil, nil, "77:88"},
		"the pod's uid replaces the image's group":   {"app:staff", n(77), nil, "77:0"},
		"the pod's uid has the group of its entry":   {"", n(1000), nil, "1000:1001 29 50"},
		"the pod's gid alone keeps the image's user": {"app:staff", nil, n(5), "1000:5 29 50"},
		"both from the pod":                          {"app", n(1), n(2), "1:2"},
		"a name that does not exist":                 {"ghost", nil, nil, "error"},
		"a group that does not exist":                {"app:ghost", nil, nil, "error"},
		"too large for runc":                         {"2147483648", nil, nil, "error"},
		"an entry too large for runc":                {"huge", nil, nil, "error"},
		"negative":                                   {"", n(-1), nil, "error"},
		"far out of range":                           {"99999999999999999999", nil, nil, "error"},
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

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
