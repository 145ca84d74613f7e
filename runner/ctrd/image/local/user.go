package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
	"monopod/runner/ctrd/image"
	"monopod/runner/spec"
)

// maxID is the highest uid and gid runc accepts.
const maxID = 1<<31 - 1

// users are the results of looking up users in an image. Its /etc/passwd and /etc/group are not kept, because an image may have large ones.
type users struct {
	mu    sync.Mutex
	known map[string]spec.User
}

// Limits of the results that are kept for an image.
const (
	maxKnown       = 32
	maxKnownGroups = 256
)

// ResolveUser returns the numeric ids of the image's USER, from its /etc/passwd and /etc/group. uid and gid override it where not nil. The
// result is cached by image.
func (s *Store) ResolveUser(ctx context.Context, img *image.Image, uid, gid *int64) (spec.User, error) {
	ctx = s.Namespaced(ctx)
	d, err := s.describedAs(ctx, img)
	if err != nil {
		return spec.User{}, err
	}
	u, err := d.users.get(uid, gid, func() (u spec.User, err error) {
		err = s.View(ctx, d.chainID, func(root string) error {
			var rerr error
			u, rerr = resolve(func(name string) (io.ReadCloser, error) { return openIn(root, name) }, d.config.User, uid, gid)
			return rerr
		})
		return u, err
	})
	if err != nil {
		return spec.User{}, fmt.Errorf("user of image %s: %w", img.Name, err)
	}
	return u, nil
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

// get returns a known result, or looks it up. One is looked up at a time.
func (k *users) get(uid, gid *int64, look func() (spec.User, error)) (spec.User, error) {
	key := optional(uid) + ":" + optional(gid)
	k.mu.Lock()
	defer k.mu.Unlock()
	if u, ok := k.known[key]; ok {
		u.Groups = slices.Clone(u.Groups)
		return u, nil
	}
	u, err := look()
	if err != nil || len(u.Groups) > maxKnownGroups {
		return u, err
	}
	if k.known == nil || len(k.known) == maxKnown {
		k.known = map[string]spec.User{}
	}
	k.known[key] = u
	u.Groups = slices.Clone(u.Groups)
	return u, nil
}

func optional(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// openIn opens a regular file of an image, with symbolic links resolved inside the image. A missing file is returned as an empty one.
func openIn(root, name string) (io.ReadCloser, error) {
	dir, err := foreign.Dir(root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, pathless(err))
	}
	defer func() { _ = dir.Close() }()
	place, err := foreign.Find(dir, name, foreign.Rooted)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, pathless(err))
	}
	defer func() { _ = place.Close() }()
	f, _, err := foreign.Open(place, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("%s of the image: %w", name, pathless(err))
	}
	return f, nil
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
func resolve(open opener, imageUser string, uid, gid *int64) (spec.User, error) {
	name, groupName, hasGroup := strings.Cut(imageUser, ":")
	if name == "" {
		name = "0"
	}
	if uid != nil {
		name, hasGroup = strconv.FormatInt(*uid, 10), false
	}
	entry, err := findUser(open, name)
	if err != nil {
		return spec.User{}, err
	}
	want := wantedGroups{user: entry.name}
	var u spec.User
	if u.UID, err = id("uid", entry.uid); err == nil {
		u.GID, err = id("gid", entry.gid)
	}
	switch n, nerr := strconv.ParseInt(groupName, 10, 64); {
	case err != nil:
	case gid != nil:
		u.GID, err = id("gid", *gid)
	case hasGroup && (nerr == nil || errors.Is(nerr, strconv.ErrRange)):
		u.GID, err = id("gid", n)
	case hasGroup:
		want.primary = &groupName
	}
	if err != nil {
		return spec.User{}, err
	}
	found, err := findGroups(open, want)
	if err == nil && want.primary != nil {
		u.GID, err = id("gid", found.primary)
	}
	if err != nil {
		return spec.User{}, err
	}
	u.Groups = found.supplementary
	return u, nil
}

func id(what string, n int64) (uint32, error) {
	if n < 0 || n > maxID {
		return 0, fmt.Errorf("%s %d is out of range", what, n)
	}
	return uint32(n), nil
}
