package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// hop is one step of a path walk: a name looked up in a directory. A change of that entry changes where the path leads.
type hop struct{ dir, name string }

// route is where a path leads. The hops are those whose change must be seen: every symbolic link on the way, the
// last name, and the name at which the walk ended with an error. Plain directories in the middle are left out:
// they hardly ever change, and directories like / or /var are busy.
type route struct {
	hops []hop
	// real is the path without symbolic links, info its stat; both are set only if err is nil.
	real string
	info fs.FileInfo
}

// trace follows path, relative to the directory base, one name at a time as the kernel does.
func trace(base, path string) (route, error) {
	w := walker{cur: base}
	w.enter(path)
	for len(w.rest) > 0 {
		if err := w.step(); err != nil {
			return route{hops: w.hops}, err
		}
	}
	info, err := os.Lstat(w.cur)
	return route{hops: w.hops, real: w.cur, info: info}, err
}

// walker is a path walk under way: rest is still to be looked up, from the directory cur on.
type walker struct {
	cur   string
	rest  []string
	links int
	hops  []hop
}

// enter puts path before what is still to be looked up.
func (w *walker) enter(path string) {
	if filepath.IsAbs(path) {
		w.cur = "/"
	}
	w.rest = append(names(path), w.rest...)
}

// step looks up one name.
func (w *walker) step() error {
	name := w.rest[0]
	w.rest = w.rest[1:]
	if name == ".." {
		w.cur = filepath.Dir(w.cur)
		return nil
	}
	next := filepath.Join(w.cur, name)
	info, err := os.Lstat(next)
	link := err == nil && info.Mode().Type() == fs.ModeSymlink
	if err != nil || link || len(w.rest) == 0 {
		w.hops = append(w.hops, hop{w.cur, name})
	}
	switch {
	case err != nil:
		return err
	case !link:
		w.cur = next
		return nil
	}
	if w.links++; w.links > maxLinks {
		return &fs.PathError{Op: "follow links of", Path: next, Err: unix.ELOOP}
	}
	target, err := os.Readlink(next)
	if err != nil {
		return err
	}
	w.enter(target)
	return nil
}

// names splits a path; "." and empty names mean nothing.
func names(path string) []string {
	var all []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			all = append(all, name)
		}
	}
	return all
}
