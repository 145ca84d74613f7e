package bundle

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// shimProgram is the name of the shim.
const shimProgram = "containerd-shim-monopod-v2"

// fileID identifies a file, however it is reached.
type fileID struct{ dev, ino uint64 }

func idOf(path string) (fileID, bool) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	return fileID{st.Dev, st.Ino}, err == nil
}

// prune removes unused versions in dir except final. A version is used if a process runs from it; the latest other version is kept for a
// rollback, and because its shims may have died without a cleanup. While a shim from elsewhere runs, all versions are kept, because it may use
// the runc of any. Errors are ignored.
func prune(dir, final, proc string) {
	others, latest := versions(dir, final)
	if len(others) < 2 {
		return
	}
	owner := map[fileID]string{}
	for _, version := range append(others, final) {
		files, err := os.ReadDir(version)
		if err != nil {
			return
		}
		for _, f := range files {
			if id, ok := idOf(filepath.Join(version, f.Name())); ok {
				owner[id] = version
			}
		}
	}
	used := map[string]bool{latest: true}
	running, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "exe"))
	if err != nil {
		return
	}
	for _, exe := range running {
		id, ok := idOf(exe) // of processes that have ended, and of the kernel, there is none
		if version := owner[id]; ok && version != "" {
			used[version] = true
			continue
		}
		if name, err := os.Readlink(exe); err == nil && strings.HasPrefix(filepath.Base(name), shimProgram) {
			return
		}
	}
	for _, version := range others {
		if !used[version] {
			_ = os.RemoveAll(version)
		}
	}
}

// versions returns the directories that Unpack created in dir, except final, and the latest of them.
func versions(dir, final string) (others []string, latest string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, ""
	}
	var newest int64
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var st syscall.Stat_t
		if !e.IsDir() || !isVersion(e.Name()) || path == final || syscall.Lstat(path, &st) != nil {
			continue
		}
		others = append(others, path)
		if changed := st.Ctim.Nano(); changed >= newest {
			newest, latest = changed, path
		}
	}
	return others, latest
}
