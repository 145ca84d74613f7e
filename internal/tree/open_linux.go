package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/internal/foreign"
)

// Open finds a path below root as a process with that root directory would: links in it are followed, and lead nowhere else.
// The file can be looked at and nothing more.
func Open(root *os.File, name string) (*os.File, error) {
	return foreign.Find(root, path.Clean("/"+name), foreign.Rooted)
}

// beneath finds a directory below another one. Links that lead out of that are errors.
func beneath(dir *os.File, name string) (*os.File, error) {
	f, err := foreign.FindDir(dir, name, foreign.Within)
	if errors.Is(err, foreign.ErrLeadsOut) {
		err = fmt.Errorf("%s: %w", name, foreign.ErrLeadsOut)
	}
	return f, err
}

// Target is where a tree goes that is to be at a path: Dir/Name.
type Target struct {
	Dir  *os.File
	Name string
}

// FindTarget finds the place for a tree called name: in the directory that to is, else in its parent under the last name of to.
// Without a name, to must be a directory. See Open for links.
func FindTarget(root *os.File, to, name string) (Target, error) {
	f, err := foreign.FindDir(root, path.Clean("/"+to), foreign.Rooted)
	if err == nil {
		return Target{Dir: f, Name: name}, nil
	}
	clean := path.Clean("/" + to)
	if name == "" || strings.HasSuffix(to, "/") || clean == "/" || !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, fs.ErrNotExist) {
		return Target{}, err
	}
	f, err = foreign.FindDir(root, path.Dir(clean), foreign.Rooted)
	return Target{Dir: f, Name: path.Base(clean)}, err
}

// pathError adds the path that the user named.
func pathError(err error, name string) error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}
