package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	cfs "github.com/containerd/continuity/fs"
	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"monopod/runner/ctrd/image"
	"monopod/runner/spec"
)

// maxID is the highest uid and gid runc accepts.
const maxID = 1<<31 - 1

// maxUserFile limits how many bytes of passwd and group files are read.
const maxUserFile = 4 << 20

// userFiles are the /etc/passwd and /etc/group of an image, read on first use.
type userFiles struct {
	mu     sync.Mutex
	read   bool
	users  []user.User
	groups []user.Group
}

// ResolveUser returns the numeric ids of the image's USER, from its /etc/passwd and /etc/group. uid and gid override it where not nil. The
// files are cached by image.
func (s *Store) ResolveUser(ctx context.Context, img *image.Image, uid, gid *int64) (spec.User, error) {
	ctx = s.Namespaced(ctx)
	d, err := s.describedAs(ctx, img)
	if err != nil {
		return spec.User{}, err
	}
	if err := d.users.load(func() ([]user.User, []user.Group, error) { return s.readUsers(ctx, d.chainID) }); err != nil {
		return spec.User{}, fmt.Errorf("users of image %s: %w", img.Name, err)
	}
	return resolve(&d.users, d.config.User, uid, gid)
}

// describedAs returns the description that img was made from.
func (s *Store) describedAs(ctx context.Context, img *image.Image) (*description, error) {
	s.mu.Lock()
	for _, d := range s.descriptions {
		if d.id == img.ID {
			s.mu.Unlock()
			return d, nil
		}
	}
	s.mu.Unlock()
	rec, err := s.Record(ctx, img.Name)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", img.Name, err)
	}
	return s.describe(ctx, rec)
}

func (f *userFiles) load(read func() ([]user.User, []user.Group, error)) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read {
		return nil
	}
	f.users, f.groups, err = read()
	f.read = err == nil
	return err
}

func (s *Store) readUsers(ctx context.Context, chainID string) (users []user.User, groups []user.Group, err error) {
	err = s.View(ctx, chainID, func(root string) error {
		var rerr error
		users, groups, rerr = readUserFiles(root)
		return rerr
	})
	return users, groups, err
}

func readUserFiles(root string) ([]user.User, []user.Group, error) {
	p, err := openIn(root, "/etc/passwd")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = p.Close() }()
	users, err := user.ParsePasswd(p)
	if err != nil {
		return nil, nil, fmt.Errorf("/etc/passwd: %w", err)
	}
	g, err := openIn(root, "/etc/group")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = g.Close() }()
	groups, err := user.ParseGroup(g)
	if err != nil {
		return nil, nil, fmt.Errorf("/etc/group: %w", err)
	}
	return users, groups, nil
}

// openIn opens a regular file of an image, with symbolic links resolved inside the image. A missing file is returned as an empty one.
func openIn(root, name string) (io.ReadCloser, error) {
	path, err := cfs.RootPath(root, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// O_NONBLOCK: a FIFO must not block.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, pathless(err))
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s of the image is not a regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, maxUserFile), f}, nil
}

// pathless removes the path of the temporary mount from an error.
func pathless(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// resolve follows containerd's CRI plugin (oci.WithUser, WithUserID, WithAdditionalGIDs): a uid without a group gets the group of its
// passwd entry, or 0; names must exist; supplementary groups are those that list the user's name.
func resolve(f *userFiles, imageUser string, uid, gid *int64) (spec.User, error) {
	name, groupName, hasGroup := strings.Cut(imageUser, ":")
	if name == "" {
		name = "0"
	}
	if uid != nil {
		name, hasGroup = strconv.FormatInt(*uid, 10), false
	}
	var u spec.User
	entry, err := f.user(name)
	if err != nil {
		return u, err
	}
	if u.UID, err = id("uid", int64(entry.Uid)); err == nil {
		u.GID, err = id("gid", int64(entry.Gid))
	}
	switch {
	case err != nil:
	case gid != nil:
		u.GID, err = id("gid", *gid)
	case hasGroup:
		u.GID, err = f.group(groupName)
	}
	if err != nil {
		return spec.User{}, err
	}
	for _, g := range f.groups {
		// The primary group is not supplementary. A uid without a passwd entry has no name that groups could list.
		if g.Name != entry.Name && slices.Contains(g.List, entry.Name) && entry.Name != "" {
			u.Groups = append(u.Groups, uint32(g.Gid))
		}
	}
	return u, nil
}

// user finds a user by name or uid. A uid without a passwd entry has group 0 and no name.
func (f *userFiles) user(name string) (user.User, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return user.User{}, fmt.Errorf("uid %s is out of range", name)
	}
	byName := err != nil
	for _, u := range f.users {
		if (byName && u.Name == name) || (!byName && int64(u.Uid) == n) {
			return u, nil
		}
	}
	if byName {
		return user.User{}, fmt.Errorf("the image's /etc/passwd has no user %q", name)
	}
	return user.User{Uid: int(n)}, nil
}

func (f *userFiles) group(name string) (uint32, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return id("gid", n)
	}
	for _, g := range f.groups {
		if g.Name == name {
			return uint32(g.Gid), nil
		}
	}
	return 0, fmt.Errorf("the image's /etc/group has no group %q", name)
}

func id(what string, n int64) (uint32, error) {
	if n < 0 || n > maxID {
		return 0, fmt.Errorf("%s %d is out of range", what, n)
	}
	return uint32(n), nil
}
