package local

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"monopod/runner/spec"
)

// files are the user files of an image.
func files(passwd, group string) opener {
	return func(name string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(map[string]string{"/etc/passwd": passwd, "/etc/group": group}[name])), nil
	}
}

func TestResolveUser(t *testing.T) {
	open := files("root:x:0:0:::\napp:x:1000:1001:::\nhuge:x:3000000000:1:::\n", "root:x:0:\napp:x:1001:app\naudio:x:29:root,app\nstaff:x:50:app\n")
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
			u, err := resolve(open, tt.image, tt.uid, tt.gid)
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
	open := func(name string) (io.ReadCloser, error) { return openIn(root, name) }
	if u, err := resolve(open, "evil", nil, nil); err == nil || !strings.Contains(err.Error(), "no user") {
		t.Errorf("%+v, %v", u, err)
	}
	group := filepath.Join(root, "etc/group")
	for name, make := range map[string]func() error{
		"a directory": func() error { return os.Mkdir(group, 0o700) },
		"a FIFO":      func() error { return unix.Mkfifo(group, 0o600) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if _, err := resolve(open, "0:g", nil, nil); err == nil || !strings.Contains(err.Error(), "/etc/group of the image: not a regular file") {
			t.Errorf("%s as /etc/group: %v", name, err)
		}
		if err := os.Remove(group); err != nil {
			t.Fatal(err)
		}
	}
}

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// TestLargeUserFilesAreNotKept counts allocations: there are some for the file, and none for its lines.
func TestLargeUserFilesAreNotKept(t *testing.T) {
	const most = 60
	for name, open := range map[string]opener{
		"many users":   files(strings.Repeat("a:\n", maxUserFile/30)+"z:x:5:\n", ""),
		"many groups":  files("z:x:5:6", strings.Repeat("a:\n", maxUserFile/30)),
		"many members": files("z:x:5:6", strings.Repeat("g:x:6:"+strings.Repeat("a,", maxGroupLine/2-10)+"\n", 3)),
		"many fields":  files("z:x:5:6", strings.Repeat(strings.Repeat(":", maxGroupLine-2)+"\n", 3)),
	} {
		n := testing.AllocsPerRun(1, func() {
			if u, err := resolve(open, "z:6", nil, nil); err != nil || u.UID != 5 {
				t.Errorf("%s: %+v, %v", name, u, err)
			}
		})
		if n > most {
			t.Errorf("%s: %.0f allocations", name, n)
		}
	}
}

func TestUserFilesBeyondALimitAreRefused(t *testing.T) {
	one := "z:x:5:6\n"
	for name, c := range map[string]struct{ passwd, group, want string }{
		"a large passwd":                        {strings.Repeat("a:\n", maxUserFile/3+1) + one, "", "/etc/passwd: larger than 4 MiB"},
		"a large group":                         {one, strings.Repeat("a:\n", maxUserFile/3+1), "/etc/group: larger than 4 MiB"},
		"a long line of users":                  {strings.Repeat("a", maxPasswdLine) + "\n" + one, "", "/etc/passwd: a line is longer than 64 KiB"},
		"a long group":                          {one, strings.Repeat("a", maxGroupLine), "/etc/group: a line is longer than 1024 KiB"},
		"too many groups":                       {one, strings.Repeat("g:x:1:z\n", maxGroups+1), "in more than 65536 groups"},
		"what follows the user does not matter": {one + strings.Repeat("a", 2*maxPasswdLine), "", ""},
	} {
		_, err := resolve(files(c.passwd, c.group), "z", nil, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestUserFilesAreReadAsContainerdDoes compares with moby/sys/user on files that are damaged in every way.
func TestUserFilesAreReadAsContainerdDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "0", "1", "-1", "99999999999999999999", ":", ":", ":", ":", ",", "#", " ", "\t", "\n", "\n", "\r\n", "x:x:1:2", "a:x:0:3:b,a"}
	text := func() string {
		var b strings.Builder
		for range random.IntN(40) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		return b.String()
	}
	for range 1000 {
		passwd, group := text(), text()
		for _, name := range []string{"a", "b:a", "1", "0:b", "x", "a:1", ":"} {
			u, err := resolve(files(passwd, group), name, nil, nil)
			want, werr := resolveWithMoby(passwd, group, name)
			if (err == nil) != (werr == nil) || err == nil && fmt.Sprint(u) != fmt.Sprint(want) {
				t.Fatalf("%q, %q, %q: %v, %v; want %v, %v", name, passwd, group, u, err, want, werr)
			}
		}
	}
}

// resolveWithMoby is resolve with all users and groups in memory.
func resolveWithMoby(passwd, group, name string) (u spec.User, err error) {
	users, err := user.ParsePasswd(strings.NewReader(passwd))
	if err != nil {
		return u, err
	}
	groups, err := user.ParseGroup(strings.NewReader(group))
	if err != nil {
		return u, err
	}
	name, groupName, hasGroup := strings.Cut(name, ":")
	if name == "" {
		name = "0"
	}
	n, nerr := strconv.Atoi(name)
	entry := user.User{Uid: n}
	i := slices.IndexFunc(users, func(u user.User) bool { return nerr != nil && u.Name == name || nerr == nil && u.Uid == n })
	if i >= 0 {
		entry = users[i]
	} else if nerr != nil {
		return u, nerr
	}
	gid := entry.Gid
	if _, err := id("gid", int64(gid)); err != nil {
		return u, err
	}
	if n, err := strconv.Atoi(groupName); hasGroup && err == nil {
		gid = n
	} else if hasGroup {
		i := slices.IndexFunc(groups, func(g user.Group) bool { return g.Name == groupName })
		if i < 0 {
			return u, err
		}
		gid = groups[i].Gid
	}
	if u.UID, err = id("uid", int64(entry.Uid)); err == nil {
		u.GID, err = id("gid", int64(gid))
	}
	for _, g := range groups {
		if g.Name != entry.Name && slices.Contains(g.List, entry.Name) && entry.Name != "" {
			u.Groups = append(u.Groups, uint32(g.Gid))
		}
	}
	return u, err
}
