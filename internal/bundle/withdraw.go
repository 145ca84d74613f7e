package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Withdraw removes the directory that program was unpacked to, with all versions, unless other processes run from there, or a shim runs that may
// use the runc of any version.
func Withdraw(program, proc string) error {
	if !filepath.IsAbs(program) || !isVersion(filepath.Base(filepath.Dir(program))) {
		return nil // it was not unpacked
	}
	dir := filepath.Dir(filepath.Dir(program))
	unlock, err := lock(filepath.Join(dir, lockFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if inUse(dir, proc) {
		return nil
	}
	others, _ := versions(dir, "")
	err = removeAbandoned(dir)
	for _, version := range others {
		err = errors.Join(err, os.RemoveAll(version))
	}
	err = errors.Join(err, os.Remove(filepath.Join(dir, lockFile)))
	_ = os.Remove(dir) // unless somebody else has put something there
	if filepath.Base(dir) == "bin" {
		_ = os.Remove(filepath.Dir(dir))
	}
	return err
}

// inUse reports whether other processes run from dir, or any shim runs.
func inUse(dir, proc string) bool {
	running, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "exe"))
	if err != nil {
		return true
	}
	for _, exe := range running {
		if filepath.Base(filepath.Dir(exe)) == strconv.Itoa(os.Getpid()) {
			continue
		}
		name, err := os.Readlink(exe) // of processes that have ended, and of the kernel, there is none
		if err == nil && (strings.HasPrefix(name, dir+"/") || strings.HasPrefix(filepath.Base(name), shimProgram)) {
			return true
		}
	}
	return false
}
