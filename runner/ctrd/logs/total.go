package logs

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// logSize is the size of one log file.
type logSize struct {
	path    string
	size    int64
	changed time.Time
	// current means that it is the newest file of its container, which may still be written.
	current bool
}

// surplus selects the files to remove so that the logs use at most total bytes: first the oldest rotated files of all containers, then
// current ones, largest first, because that frees most for what is lost. It selects down to nine tenths of total, so that the next line
// does not trigger it again.
func surplus(files []logSize, total int64) []logSize {
	var sum int64
	for _, f := range files {
		sum += f.size
	}
	if sum <= total {
		return nil
	}
	all := slices.Clone(files)
	slices.SortStableFunc(all, func(a, b logSize) int {
		switch {
		case a.current != b.current:
			return cmp.Compare(rank(a), rank(b))
		case a.current:
			return cmp.Compare(b.size, a.size)
		default:
			return a.changed.Compare(b.changed)
		}
	})
	want := total - total/10
	n := 0
	for ; n < len(all) && sum > want; n++ {
		sum -= all[n].size
	}
	return all[:n]
}

func rank(f logSize) int {
	if f.current {
		return 1
	}
	return 0
}

// measure lists the log files in the directories of pods.
func measure(dirs []string) []logSize {
	var files []logSize
	for _, dir := range dirs {
		containers, err := os.ReadDir(dir)
		if err != nil {
			continue // gone meanwhile
		}
		for _, c := range containers {
			if c.IsDir() {
				files = append(files, measureContainer(filepath.Join(dir, c.Name()))...)
			}
		}
	}
	return files
}

func measureContainer(dir string) []logSize {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var files []logSize
	newest := -1
	for _, e := range entries {
		newest = max(newest, NumberOf(e.Name()))
	}
	for _, e := range entries {
		n := NumberOf(e.Name())
		st, err := e.Info()
		if n < 0 || err != nil || !st.Mode().IsRegular() {
			continue
		}
		current := n == newest && filepath.Ext(e.Name()) == ".log"
		files = append(files, logSize{path: filepath.Join(dir, e.Name()), size: st.Size(), changed: st.ModTime(), current: current})
	}
	return files
}

// grew counts bytes that were added to a log file.
func (k *keeper) grew(n int) {
	if k.limits.Total > 0 && k.used.Add(int64(n)) > max(k.limits.Total, k.stuck.Load()) {
		k.reclaimNow()
	}
}

// reclaimNow reduces the total below its limit in the background.
func (k *keeper) reclaimNow() {
	if k.reclaiming.Load() || !k.reclaiming.CompareAndSwap(false, true) {
		return
	}
	if !k.start(k.reclaimAll) {
		k.reclaiming.Store(false)
	}
}

// reclaimAll repeats until the total is below the limit: a writer that exceeded it while a run was in progress started none, and may not
// write again.
func (k *keeper) reclaimAll() {
	for again := true; again; {
		left := k.reclaim()
		k.reclaiming.Store(false)
		again = k.used.Load() > max(left, k.limits.Total, k.stuck.Load()) && k.reclaiming.CompareAndSwap(false, true)
	}
}

// reclaim measures all logs, removes the surplus, and returns the remaining size. If files cannot be removed, the next attempt waits until
// the logs have grown by a tenth.
func (k *keeper) reclaim() (left int64) {
	before := k.used.Load()
	files := measure(k.dirs())
	var sum int64
	for _, f := range files {
		sum += f.size
	}
	k.used.Add(sum - before)
	k.stuck.Store(0)
	gone := surplus(files, k.limits.Total)
	if len(gone) == 0 {
		return sum
	}
	n := Notice{Kind: Trimmed}
	for _, f := range gone {
		if size := k.drop(f); size > 0 {
			n.Bytes += size
			n.Files++
		}
	}
	if left = sum - n.Bytes; n.Files < len(gone) && left > k.limits.Total {
		k.stuck.Store(left + k.limits.Total/10)
		k.log.Warn("the total size of logs exceeds its limit, and not enough can be removed", "bytes", left, "limit", k.limits.Total)
	}
	if n.Files > 0 {
		k.log.Info("removing old logs: their total size exceeds its limit", "files", n.Files, "bytes", n.Bytes, "had", sum, "limit", k.limits.Total)
		k.notice(n)
	}
	return left
}

// drop removes a log file even if it is being written; its writer creates a new one.
func (k *keeper) drop(f logSize) int64 {
	if f.current && k.shed != nil && k.shed(f.path) {
		return f.size
	}
	k.names.Lock()
	defer k.names.Unlock()
	return k.removeLocked(f.path)
}

// shed removes the file that the container at path writes to; false if there is none.
func (c *Collector) shed(path string) bool {
	c.mu.Lock()
	var out *logFile
	for _, ct := range c.containers {
		if ct.out.path == path {
			out = ct.out
		}
	}
	c.mu.Unlock()
	return out != nil && out.shed() == nil
}

// shed removes the file; the next line starts a new one.
func (l *logFile) shed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	l.keeper.names.Lock()
	defer l.keeper.names.Unlock()
	size := l.keeper.removeLocked(l.path)
	l.closeLocked()
	if size == 0 {
		return errors.New("nothing was removed")
	}
	return nil
}
