// Package podlogs owns the directories of pod logs: which of them are ours, which files are still needed, and the links for log
// collectors. It must not write logs, which package logs does.
package podlogs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// Logs owns the directories of log files: which are ours, which are still needed, and the links to them.
type Logs struct {
	Dirs  layout.Dirs
	Index *record.Index
}

// OwnLogDirs returns the log directories of our pods. A kubelet may use the same parent directory: only the uid identifies ours.
func (r *Logs) OwnLogDirs() []string {
	known := map[string]bool{}
	for _, rec := range r.Index.List() {
		known[rec.Meta.UID] = true
	}
	for _, rec := range r.Index.All() {
		known[rec.Meta.UID] = true
	}
	for _, uid := range trees.Names(r.Dirs.PodsDir()) {
		known[uid] = true
	}
	var dirs []string
	for _, name := range trees.Names(r.Dirs.PodLogs) {
		if i := strings.LastIndexByte(name, '_'); i >= 0 && known[name[i+1:]] {
			dirs = append(dirs, filepath.Join(r.Dirs.PodLogs, name))
		}
	}
	return dirs
}

// OwnerName is a link in the log directory of a pod to the root directory of the instance that created it. A kubelet may use the
// same parent directory, and after a power cut there may be no record of the pod.
const OwnerName = ".monopod"

// logGroup is a directory with the logs of all containers with one name.
type logGroup struct {
	Dir   string
	Files []logItem
}

type logItem struct {
	Name string
	Size int64
}

// needed returns which logs of a container are kept: those of existing containers, whose numbers are used, and the one before
// them, for `logs --previous`.
func needed(files []logItem, used map[int]bool) func(n int) bool {
	first := -1
	for n := range used {
		if first < 0 || n < first {
			first = n
		}
	}
	previous := -1
	for _, f := range files {
		if n := logs.NumberOf(f.Name); n > previous && (first < 0 || n < first) {
			previous = n
		}
	}
	return func(n int) bool { return n >= previous }
}

// outdated returns the log files of containers before the previous one.
func outdated(files []logItem, used map[int]bool) []logItem {
	keep := needed(files, used)
	var old []logItem
	for _, f := range files {
		if n := logs.NumberOf(f.Name); n >= 0 && !keep(n) {
			old = append(old, f)
		}
	}
	return old
}

// Expendable returns the log files that may be removed when the disk is nearly full: those of removed containers, and rotated ones
// of containers that have ended. running are the numbers of the other containers, whose logs stay, as does the newest log: its
// container may just be being created.
func Expendable(files []logItem, used, running map[int]bool) []logItem {
	var out []logItem
	newest := -1
	for _, f := range files {
		newest = max(newest, logs.NumberOf(f.Name))
	}
	for _, f := range files {
		n := logs.NumberOf(f.Name)
		rotatedAway := filepath.Ext(f.Name) != ".log"
		if n >= 0 && !running[n] && (!used[n] && n != newest || used[n] && rotatedAway) {
			out = append(out, f)
		}
	}
	return out
}

// CleanLogs removes the log directories of removed pods, and logs that are no longer needed.
func (r *Logs) CleanLogs() error {
	known := r.Index.KnownUIDs()
	var errs []error
	for _, name := range trees.Names(r.Dirs.PodLogs) {
		uid := afterLast(name, '_')
		dir := filepath.Join(r.Dirs.PodLogs, name)
		if !known[uid] && r.ownsLogs(dir) {
			errs = append(errs, trees.Remove(dir))
		}
	}
	for _, g := range r.LogGroups() {
		used, _ := r.LogNumbers(g.Dir)
		errs = append(errs, g.remove(outdated(g.Files, used)))
	}
	return errors.Join(errs...)
}

// afterLast returns what follows the last separator; empty without one.
func afterLast(s string, sep byte) string {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return ""
	}
	return s[i+1:]
}

// ownsLogs reports whether the log directory of a pod is ours.
func (r *Logs) ownsLogs(dir string) bool {
	root, err := os.Readlink(filepath.Join(dir, OwnerName))
	return err == nil && root == r.Dirs.Root
}

// OwnLogs creates the directory for the logs of a container, and marks it as ours.
func (r *Logs) OwnLogs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := os.Symlink(r.Dirs.Root, filepath.Join(filepath.Dir(dir), OwnerName))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// LogGroups lists the logs in our directories.
func (r *Logs) LogGroups() []logGroup {
	var groups []logGroup
	for _, dir := range r.OwnLogDirs() {
		for _, container := range trees.Names(dir) {
			g := logGroup{Dir: filepath.Join(dir, container)}
			entries, _ := os.ReadDir(g.Dir) // a missing directory is empty
			for _, e := range entries {
				if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
					g.Files = append(g.Files, logItem{Name: e.Name(), Size: st.Size()})
				}
			}
			groups = append(groups, g)
		}
	}
	return groups
}

func (g logGroup) remove(files []logItem) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, trees.RemoveFile(filepath.Join(g.Dir, f.Name)))
	}
	return errors.Join(errs...)
}

// LogNumbers returns the numbers of the containers that log to a directory, and of those that have not ended.
func (r *Logs) LogNumbers(dir string) (used, running map[int]bool) {
	used, running = map[int]bool{}, map[int]bool{}
	for _, rec := range r.Index.All() {
		if filepath.Dir(rec.Meta.LogPath) != dir {
			continue
		}
		n := logs.NumberOf(filepath.Base(rec.Meta.LogPath))
		used[n] = true
		running[n] = running[n] || rec.Meta.Exit == nil
	}
	return used, running
}

// DropOldLogs removes the logs of containers before the previous one, after a container was removed.
func (r *Logs) DropOldLogs(gone *record.Container) error {
	g := logGroup{Dir: filepath.Dir(gone.Meta.LogPath)}
	for _, name := range trees.Names(g.Dir) {
		g.Files = append(g.Files, logItem{Name: name})
	}
	used, _ := r.LogNumbers(g.Dir)
	if len(used) == 0 {
		return nil // the pod is being removed, or its next container will be created
	}
	return g.remove(outdated(g.Files, used))
}

// CleanLinks removes links to missing logs. With quiet, while no container is being created, it removes all links without a
// container.
func (r *Logs) CleanLinks(quiet bool) error {
	if r.Dirs.ContainerLogs == "" {
		return nil
	}
	var errs []error
	for _, name := range trees.Names(r.Dirs.ContainerLogs) {
		link := filepath.Join(r.Dirs.ContainerLogs, name)
		target, err := os.Readlink(link)
		if err != nil || filepath.Dir(filepath.Dir(filepath.Dir(target))) != r.Dirs.PodLogs {
			continue
		}
		id := afterLast(strings.TrimSuffix(name, ".log"), '-')
		if r.Index.Container(id) != nil {
			continue
		}
		pod := filepath.Dir(filepath.Dir(target))
		_, gone := os.Lstat(pod)
		if errors.Is(gone, fs.ErrNotExist) || quiet && r.ownsLogs(pod) {
			errs = append(errs, trees.RemoveFile(link))
		}
	}
	return errors.Join(errs...)
}

// NextLogPath returns the path of a log file with the restart count, or the next free number: a new container after an edit has
// the same count as the one before.
func NextLogPath(dir string, n int) string {
	taken := map[int]bool{}
	for _, name := range trees.Names(dir) {
		taken[logs.NumberOf(name)] = true
	}
	for taken[n] {
		n++
	}
	return filepath.Join(dir, fmt.Sprintf("%d.log", n))
}

// linkName is the file name that log collectors expect for a container's log.
func linkName(rec *record.Container) logs.LinkName {
	l := &rec.Meta
	return logs.LinkName{Pod: l.Key.Name, Namespace: l.Key.Namespace, Container: l.Name, ID: rec.ID}
}

// LinkLog creates the link to the log of a container, if a directory for links is configured.
func (r *Logs) LinkLog(rec *record.Container) error {
	if r.Dirs.ContainerLogs == "" {
		return nil
	}
	return logs.Link(r.Dirs.ContainerLogs, linkName(rec), rec.Meta.LogPath)
}

// UnlinkLog removes the link; the log itself stays until the pod goes.
func (r *Logs) UnlinkLog(rec *record.Container) error {
	if r.Dirs.ContainerLogs == "" {
		return nil
	}
	return logs.Unlink(r.Dirs.ContainerLogs, linkName(rec))
}
