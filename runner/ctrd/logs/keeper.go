package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"monopod/internal/regular"
)

// Limits bound the log files. Zero values mean no limit.
type Limits struct {
	// MaxSize is the maximum size of a log file in bytes: a line that would exceed it starts the next file. Only a single longer entry gets
	// a larger file, of its own.
	MaxSize int64
	// MaxFiles is the maximum number of files per instance, including the current one; at least 2.
	MaxFiles int
	// Total is the maximum size of all logs together in bytes. It may be exceeded briefly, because writers do not wait for its enforcement.
	Total int64
}

// over reports whether a file of the given size would exceed the limit with n more bytes.
func (l Limits) over(size int64, n int) bool {
	return l.MaxSize > 0 && size > 0 && size+int64(n) > l.MaxSize
}

// errClosing stops work that the next process resumes.
var errClosing = errors.New("closing")

// Compression works in blocks with pauses, using at most a third of one processor.
const (
	compressBlock = 128 << 10
	compressRest  = 2
)

// keeper manages the rotated files: their number, their compression, and the size of all logs.
//
// Goroutines: one while files are compressed, one while the total is above its limit.
type keeper struct {
	limits Limits
	log    *slog.Logger
	now    func() time.Time
	notice func(Notice)
	// dirs returns the log directories of our pods.
	dirs func() []string
	// remove removes a file; a missing one is not an error.
	remove func(path string) error
	// shed removes the current file at path; false if no container writes to it.
	shed func(path string) bool

	// ending is closed to stop work in the background.
	ending chan struct{}
	work   sync.WaitGroup

	// names is held while rotated files are renamed or removed.
	names sync.Mutex

	// used is an upper estimate of the size of all logs.
	used atomic.Int64
	// stuck is the size from which the keeper tries again after a file could not be removed.
	stuck atomic.Int64
	// reclaiming means that a goroutine is reducing the total.
	reclaiming atomic.Bool

	mu      sync.Mutex // guards all below
	queue   []string
	busy    bool
	stopped bool
}

func newKeeper(cfg Config) *keeper {
	k := &keeper{remove: removeFile, limits: cfg.Limits, log: cfg.Log, now: time.Now, notice: cfg.Notice, dirs: cfg.PodDirs, ending: make(chan struct{})}
	if k.limits.MaxFiles < 2 {
		k.limits.MaxFiles = 2
	}
	if k.notice == nil {
		k.notice = func(Notice) {}
	}
	if k.dirs == nil {
		k.dirs = func() []string { return nil }
	}
	return k
}

// close stops all work and waits for it. The next process finishes interrupted compression.
func (k *keeper) close() {
	k.mu.Lock()
	if !k.stopped {
		close(k.ending)
	}
	k.stopped = true
	k.mu.Unlock()
	k.work.Wait()
}

// start runs f in the background, unless the keeper is closed.
func (k *keeper) start(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.startLocked(f)
}

func (k *keeper) startLocked(f func()) bool {
	if !k.stopped {
		k.work.Go(f)
	}
	return !k.stopped
}

// rotate renames the file at path, and first removes the oldest rotated ones, so that the number of files never exceeds the limit.
func (k *keeper) rotate(path string) error {
	k.names.Lock()
	defer k.names.Unlock()
	f, err := listFamily(path)
	if err != nil {
		return err
	}
	k.pruneLocked(f.old, k.limits.MaxFiles-2)
	if err := os.Rename(path, path+"."+nextStamp(k.now(), f.newest())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k.tidy(path)
	return nil
}

// pruneLocked removes the oldest files until at most keep are left.
func (k *keeper) pruneLocked(old []rotated, keep int) {
	for _, r := range old[:max(0, len(old)-keep)] {
		for _, path := range []string{r.plain, r.gz} {
			k.removeLocked(path)
		}
	}
}

// removeLocked removes a rotated file and returns the number of bytes freed.
func (k *keeper) removeLocked(path string) int64 {
	if path == "" {
		return 0
	}
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	if err := k.remove(path); err != nil {
		k.log.Warn("cannot remove old log file", "path", path, "err", err)
		return 0
	}
	k.used.Add(-st.Size)
	return st.Size
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// tidy compresses and prunes the rotated files of the log at path in the background.
func (k *keeper) tidy(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.queue, path) {
		return
	}
	k.queue = append(k.queue, path)
	if !k.busy {
		k.busy = k.startLocked(k.tidyAll)
	}
}

// tidyAll works until the queue is empty.
func (k *keeper) tidyAll() {
	for {
		k.mu.Lock()
		if len(k.queue) == 0 || isClosed(k.ending) {
			k.busy = false
			k.mu.Unlock()
			return
		}
		path := k.queue[0]
		k.queue = k.queue[1:]
		k.mu.Unlock()
		if err := k.tidyOne(path); err != nil && !isClosed(k.ending) {
			k.log.Warn("old log files are not compressed", "path", path, "err", err)
		}
	}
}

// tidyOne removes leftovers of a killed process, and compresses all rotated files except the newest.
func (k *keeper) tidyOne(path string) error {
	f, err := k.sweep(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || len(f.old) == 0 {
		return err
	}
	for _, r := range f.old[:len(f.old)-1] {
		if r.gz != "" {
			continue
		}
		if err := k.compress(r.plain); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes leftovers and surplus files, and returns the remaining ones.
func (k *keeper) sweep(path string) (family, error) {
	k.names.Lock()
	defer k.names.Unlock()
	f, err := listFamily(path)
	if err != nil {
		return f, err
	}
	for _, tmp := range f.tmp {
		k.removeLocked(tmp)
	}
	for _, r := range f.old {
		if r.gz != "" { // it got its name when it was whole and on the disk
			k.removeLocked(r.plain)
		}
	}
	k.pruneLocked(f.old, k.limits.MaxFiles-1)
	return listFamily(path)
}

// compress replaces a rotated file by a .gz, after that has been synced to disk.
func (k *keeper) compress(path string) (err error) {
	src, st, err := regular.Open(path, unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // one too many meanwhile
	}
	if err != nil {
		return err
	}
	defer src.Close()
	tmp := path + tmpSuffix
	dst, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, st.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		dst.Close()
		if err != nil {
			err = errors.Join(err, removeFile(tmp))
		}
	}()
	if err := k.squeeze(dst, src); err != nil {
		return err
	}
	if err := errors.Join(dst.Chmod(st.Mode().Perm()), os.Chtimes(tmp, st.ModTime(), st.ModTime()), dst.Sync()); err != nil {
		return err
	}
	return k.exchange(path, tmp)
}

// squeeze copies in blocks, with pauses.
func (k *keeper) squeeze(dst io.Writer, src io.Reader) error {
	w, err := gzip.NewWriterLevel(dst, gzip.BestSpeed)
	if err != nil {
		return err
	}
	buf := make([]byte, compressBlock)
	for !isClosed(k.ending) {
		began := time.Now()
		n, err := src.Read(buf)
		if errors.Is(err, io.EOF) {
			return w.Close()
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		select {
		case <-time.After(min(compressRest*time.Since(began), time.Second)):
		case <-k.ending:
		}
	}
	return errClosing
}

// exchange renames the compressed file and removes the plain one. If the plain one is gone already, it does nothing.
func (k *keeper) exchange(path, tmp string) error {
	k.names.Lock()
	defer k.names.Unlock()
	if _, err := os.Lstat(path); err != nil {
		return removeFile(tmp)
	}
	st, err := os.Lstat(tmp)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path+gzSuffix); err != nil {
		return err
	}
	k.used.Add(st.Size())
	k.removeLocked(path)
	return nil
}

// Sweep cleans up the log files of all pods once: it removes leftovers of interrupted compression, and reduces the total below its limit.
// It returns once this work has been started.
func (c *Collector) Sweep() {
	for _, dir := range c.keeper.dirs() {
		for _, path := range logsIn(dir) {
			c.keeper.tidy(path)
		}
	}
	if c.keeper.limits.Total > 0 {
		c.keeper.reclaimNow()
	}
}

// logsIn returns the log files, <container>/<n>.log, in the directory of a pod that have rotated files or leftovers.
func logsIn(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.log.*")) // only a wrong pattern is an error
	var logs []string
	for _, f := range files {
		n := NumberOf(strings.TrimSuffix(filepath.Base(f), tmpSuffix))
		if path := filepath.Join(filepath.Dir(f), fmt.Sprintf("%d.log", n)); n >= 0 && !slices.Contains(logs, path) {
			logs = append(logs, path)
		}
	}
	return logs
}
