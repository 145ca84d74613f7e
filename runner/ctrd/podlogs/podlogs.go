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

// OwnLogDirs returns the log directories of our pods. The directory that they are in may be shared with a kubelet: only
// the uid says that one is ours.
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

// OwnerName is a link in the log directory of a pod to the root directory of the instance that made it: the directory
// that it is in may be shared with a kubelet, and after a power cut no record may know of the pod any more.
const OwnerName = ".monopod"

// logGroup is a directory with the logs of one container: of all its instances.
type logGroup struct {
	Dir   string
	Files []logItem
}

type logItem struct {
	Name string
	Size int64
}

// needed says which logs of a container somebody may ask for: those of the instances that there are, and that of the
// one before them, for `logs --previous`. used are the numbers of the former.
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

// outdated are the log files of instances before the previous one.
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

// Expendable are the log files that may go when the disk is nearly full: those of instances that are gone, and what
// was rotated away of those that have ended. running are the numbers of the others; what they write stays, and so does
// the newest: its instance may just be being made.
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

// CleanLogs removes the log directories of pods that are gone, and logs that nobody can ask for.
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

// afterLast is what comes after the last separator; empty: there is none.
func afterLast(s string, sep byte) string {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return ""
	}
	return s[i+1:]
}

// ownsLogs says that the log directory of a pod is ours.
func (r *Logs) ownsLogs(dir string) bool {
	root, err := os.Readlink(filepath.Join(dir, OwnerName))
	return err == nil && root == r.Dirs.Root
}

// OwnLogs makes the directory for the logs of a container, and says that it is ours.
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
			entries, _ := os.ReadDir(g.Dir) // gone meanwhile: nothing is in it
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

// LogNumbers are those of the instances that write, or wrote, into a directory, and those of them that have not ended.
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

// DropOldLogs removes the logs of a container's instances before the previous one, when an instance has gone.
func (r *Logs) DropOldLogs(gone *record.Container) error {
	g := logGroup{Dir: filepath.Dir(gone.Meta.LogPath)}
	for _, name := range trees.Names(g.Dir) {
		g.Files = append(g.Files, logItem{Name: name})
	}
	used, _ := r.LogNumbers(g.Dir)
	if len(used) == 0 {
		return nil // the pod goes, or the next one is about to be made: its previous one is the last
	}
	return g.remove(outdated(g.Files, used))
}

// CleanLinks removes links to logs that are gone. While nothing is being made it removes all that belong to no container.
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

// NextLogPath names the log file after the restart count, or the next number that is free: a new instance after
// an edit has the same count as the one before.
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

// linkName is the name under which log collectors find a container's log.
func linkName(rec *record.Container) logs.LinkName {
	l := &rec.Meta
	return logs.LinkName{Pod: l.Key.Name, Namespace: l.Key.Namespace, Container: l.Name, ID: rec.ID}
}

// LinkLog makes the link to the log of a container, if there is a directory for links.
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
