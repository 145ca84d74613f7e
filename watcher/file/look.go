package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// candidate is an entry that is to be read: a regular file, or a name that cannot be followed now.
type candidate struct {
	// path is the name under the configured path, real the file behind it.
	path, real string
	id         identity
	// err is why it cannot be followed.
	err error
}

// location is the directory that holds the manifests: the configured one, or that of a single file.
type location struct {
	real string
	id   fileID
	// born is there because a new directory often gets the inode number of the one just removed.
	born  unix.StatxTimestamp
	mount uint64
}

// listing is the state of the configured path at one moment, by stat only.
type listing struct {
	location location
	// single: the path is, or was, one file.
	single bool
	files  []candidate
	// ignored maps paths that are not read to the reason.
	ignored map[string]string
	// err is set while the content is unknown.
	err error

	calls *calls
}

var (
	errPathSpecial = errors.New("neither a directory nor a regular file")
	errUnmounted   = errors.New("its file system is no longer mounted; mount it again, or restart monopod if the empty directory is intended")
	errDirectory   = errors.New("a directory has the name of a manifest; remove or rename it")
	errDangling    = errors.New("a symbolic link in its path is broken")
)

// survey lists path. Adds the paths to watch to want, even if reading fails. single is set if path was a single file when last seen.
func survey(path string, single bool, want interests, calls *calls) listing {
	r, err := trace("/", path)
	want.follow(r.hops)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (single || endsLikeManifest(path)):
		return lookForMissing(path, err)
	case err != nil:
		return listing{err: err, single: single}
	case r.info.IsDir():
		return lookInto(path, r, want, calls)
	case r.info.Mode().IsRegular():
		l := listing{single: true, files: []candidate{{path: path, real: r.real, id: identify(r.info)}}}
		l.location, l.err = findSite(filepath.Dir(path))
		return l
	}
	return listing{err: &fs.PathError{Op: "read", Path: path, Err: errPathSpecial}, single: single}
}

// lookForMissing distinguishes a single file that is gone from one that cannot be seen: it is gone if its directory exists and has no entry
// of that name.
func lookForMissing(path string, cause error) listing {
	l := listing{single: true}
	if l.location, l.err = findSite(filepath.Dir(path)); l.err != nil {
		return l
	}
	_, err := os.Lstat(filepath.Join(l.location.real, filepath.Base(path)))
	switch {
	case err == nil:
		l.err = errors.Join(cause, errDangling)
	case errors.Is(err, fs.ErrNotExist):
		l.ignored = map[string]string{path: "there is no such file"}
	default:
		l.err = err
	}
	return l
}

func findSite(dir string) (location, error) {
	r, err := trace("/", dir)
	if err != nil {
		return location{}, err
	}
	return identifySite(r.real), nil
}

// lookInto lists a directory.
func lookInto(path string, r route, want interests, calls *calls) listing {
	want.listen(r.real)
	l := listing{location: identifySite(r.real), ignored: map[string]string{}, calls: calls}
	entries, err := readDir(r.real)
	if err != nil {
		l.err = err
		return l
	}
	for _, e := range entries {
		l.add(path, e, want)
	}
	return l
}

// add judges one directory entry.
func (l *listing) add(dir string, e fs.DirEntry, want interests) {
	path := filepath.Join(dir, e.Name())
	kind := classify(e.Name())
	switch {
	case kind == dropping:
	case e.IsDir() && kind == manifest: // what was a file must not count as removed because of it
		l.addFile(candidate{path: path, real: filepath.Join(l.location.real, e.Name()), err: &fs.PathError{Op: "read", Path: path, Err: errDirectory}}, nil)
	case e.IsDir():
		l.ignored[path] = "a directory: manifests in sub-directories are not read"
	case kind == foreign:
		l.ignored[path] = "only files that end in .yaml, .yml or .json are read"
	case e.Type() == fs.ModeSymlink:
		l.addLink(path, e.Name(), want)
	default:
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return // removed just now
		case err == nil && info.Mode().Type() == fs.ModeSymlink: // replaced just now
			l.addLink(path, e.Name(), want)
			return
		}
		l.addFile(candidate{path: path, real: filepath.Join(l.location.real, e.Name()), err: err}, info)
	}
}

func (l *listing) addLink(path, name string, want interests) {
	// The link may lead to a file system whose server is gone.
	r, err := within(l.calls, path, func() (route, error) { return trace(l.location.real, name) })
	want.follow(r.hops)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Lstat(filepath.Join(l.location.real, name)); errors.Is(gone, fs.ErrNotExist) {
			return // the link itself was removed just now
		}
		err = errors.Join(err, errDangling)
	}
	l.addFile(candidate{path: path, real: r.real, err: err}, r.info)
}

// addFile enters a file by its type; info may be nil when c.err is set.
func (l *listing) addFile(c candidate, info fs.FileInfo) {
	switch {
	case c.err != nil:
		l.files = append(l.files, c)
	case info.Mode().IsRegular():
		c.id = identify(info)
		l.files = append(l.files, c)
	default:
		l.ignored[c.path] = "not a regular file (" + kindOf(info.Mode()) + ")"
	}
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a fifo"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return m.Type().String()
}

// backups returns the ids of all files in dir whose names are not those of manifests: where editors and people
// put a manifest that is being replaced.
func backups(dir string) map[fileID]bool {
	ids := map[fileID]bool{}
	entries, _ := readDir(dir) // an unreadable directory holds no backups
	for _, e := range entries {
		if classify(e.Name()) == manifest {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			ids[identify(info).fileID] = true
		}
	}
	return ids
}
