// Package payload writes the files of configMap, secret, downwardAPI and projected volumes, so that a reader sees either all old
// files or all new ones:
//
//	<volume>/
//	  ..<time>.<random>/     one directory for each content
//	  ..data -> ..<time>...  replaced by a rename
//	  key -> ..data/key      one link for each first element of a path
//
// It must not know where the content comes from. It has no goroutines.
package payload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	dataLink = "..data"
	newLink  = "..data_tmp"
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode fs.FileMode
	// UID is the owner; nil: this process.
	UID *int64
}

func (f File) uid() int {
	if f.UID == nil {
		return os.Geteuid()
	}
	return int(*f.UID)
}

// Owner is fsGroup, which may read the files; nil: none.
type Owner struct{ GID int }

// Written reports whether a volume has had content.
func Written(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, dataLink))
	return err == nil
}

// Write sets the content of the volume in dir, which it creates. It writes nothing if the content is the same, and keeps the old
// content if it fails.
func Write(dir string, files map[string]File, owner *Owner) error {
	for path := range files {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := permit(dir, 0o777, owner, true); err != nil {
		return err
	}
	old, _ := os.Readlink(filepath.Join(dir, dataLink)) // missing at first
	if old != "" && same(filepath.Join(dir, old), files, owner) {
		return errors.Join(link(dir, files), sweep(dir, old, files))
	}
	current, err := fill(dir, files, owner)
	if err != nil {
		return err
	}
	if err := point(dir, current); err != nil {
		return err
	}
	return errors.Join(link(dir, files), sweep(dir, current, files))
}

// checkPath refuses paths that lead out of the volume or conflict with our own names.
func checkPath(path string) error {
	if path == "" || filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > 4096 {
		return fmt.Errorf("invalid path %q", path)
	}
	for i, part := range strings.Split(path, "/") {
		if part == ".." || len(part) > 255 || i == 0 && strings.HasPrefix(part, "..") {
			return fmt.Errorf("invalid path %q", path)
		}
	}
	return nil
}

// fill writes a new directory and returns its name.
func fill(dir string, files map[string]File, owner *Owner) (string, error) {
	full, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", err
	}
	for path, f := range files {
		if err := write(full, path, f, owner); err != nil {
			return "", errors.Join(err, os.RemoveAll(full))
		}
	}
	if err := permit(full, 0o755, owner, true); err != nil {
		return "", errors.Join(err, os.RemoveAll(full))
	}
	return filepath.Base(full), nil
}

func write(root, path string, f File, owner *Owner) error {
	at := root
	parts := strings.Split(path, "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := permit(at, 0o755, owner, true); err != nil {
			return err
		}
	}
	at = filepath.Join(root, path)
	if err := os.WriteFile(at, f.Data, 0o600); err != nil {
		return err
	}
	if f.UID != nil {
		if err := os.Lchown(at, f.uid(), -1); err != nil {
			return err
		}
	}
	return permit(at, f.Mode, owner, false)
}

// modeFor adds the permissions of the group to a mode.
func modeFor(mode fs.FileMode, owner *Owner, dir bool) fs.FileMode {
	switch {
	case owner == nil:
		return mode
	case dir:
		return mode | 0o550 | fs.ModeSetgid
	}
	return mode | 0o440
}

func permit(path string, mode fs.FileMode, owner *Owner, dir bool) error {
	if owner != nil {
		if err := os.Lchown(path, -1, owner.GID); err != nil {
			return err
		}
	}
	return os.Chmod(path, modeFor(mode, owner, dir)) // independent of the umask
}

// same reports whether a directory contains exactly these files.
func same(root string, files map[string]File, owner *Owner) bool {
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, wanted := files[rel]
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if !wanted || err != nil || !bytes.Equal(data, f.Data) || info.Mode() != modeFor(f.Mode, owner, false) || uidOf(info) != f.uid() {
			return errors.Join(errDiffers, err)
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}

func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

var errDiffers = errors.New("differs")

// point sets the link ..data to current.
func point(dir, current string) error {
	tmp := filepath.Join(dir, newLink)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(current, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, dataLink))
}

// Mountpoint makes a place for a mount inside a written volume, with its parents: containers see the volume read-only, so that nothing else
// can make it. What exists stays. Inside a directory of the content none is made, since the next content would be without it.
func Mountpoint(dir, path string, directory bool) error {
	if checkPath(path) != nil {
		return nil // the mount fails as it does without a place
	}
	if info, err := os.Lstat(filepath.Join(dir, first(path))); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	at := filepath.Join(dir, path)
	if directory {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) { // of another container
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func first(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}

// link creates missing links.
func link(dir string, files map[string]File) error {
	for path := range files {
		name := first(path)
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// sweep removes links to missing files, and all of our directories except the current one. Anything else is a mount point that Mountpoint
// made: removing it would unmount what running containers have there.
func sweep(dir, current string, files map[string]File) error {
	wanted := []string{current, dataLink}
	for path := range files {
		wanted = append(wanted, first(path))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		ours := e.Type()&fs.ModeSymlink != 0 || strings.HasPrefix(e.Name(), "..")
		if ours && !slices.Contains(wanted, e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
