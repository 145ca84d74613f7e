// Package logs copies the output of containers from FIFOs to CRI log files, and reads those files.
//
// It owns the FIFO directories, the log files and the links to them. It must not know pods, nor decide when
// a container has ended: the owner calls Finish after the task was deleted.
//
// Goroutines: two per attached container, which end with Finish or Close; idle ones hold no buffers; those of keeper
// while old files are compressed or removed. Read runs in its caller's goroutine (and fsnotify's own while following).
//
// A log is one file or several: <n>.log is written to, <n>.log.<time> and <n>.log.<time>.gz are what it was before.
// The writer itself rotates, between two lines, so that no file exceeds its limit; a rename comes between two announced
// writes, and the journal knows the file by its inode. Read takes all of them for one.
//
// What is lost: what the disk of the log files refuses. A process that is killed, at whatever instruction, loses
// and doubles nothing: output is in the FIFO, which the shim holds open, or in a spool beside it, or in the log
// file, and the journal says what of a spool is in the log file. See journal and spool. The exceptions:
//   - a power cut ends FIFOs and spools;
//   - a journal that cannot be made, or a spool that finds no room, is left out with one warning, and then a kill
//     loses what was taken from the FIFO and not written;
//   - the journal itself may be on its way to a disk or to swap in the microseconds of the kill: see spool;
//   - a log file that is moved to another directory in the instant of a write during which the process is killed
//     gets those lines, and so does its successor.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Names in the directory of a container.
const (
	stdinName  = "stdin"
	stdoutName = "stdout"
	stderrName = "stderr"
	metaName   = "meta.json"

	journalName = "journal"
	spoolSuffix = ".spool"
)

// Collector owns one directory with a subdirectory per container: FIFOs and where their output goes.
// Its methods may be called concurrently, but not two at once for the same container.
type Collector struct {
	dir, boot    string
	log          *slog.Logger
	delay, stall time.Duration
	pool         batches
	keeper       *keeper

	mu         sync.Mutex // guards all below
	containers map[string]*container
	closed     bool
}

// container is one attached container.
type container struct {
	out     *logFile
	journal *journal // nil: none could be made
	readers [2]*reader
	taps    taps
	// running counts the readers that have not ended; done is closed by the last one.
	running atomic.Int32
	done    chan struct{}
}

// Config of a Collector.
type Config struct {
	// Dir holds the FIFOs.
	Dir string
	// Boot is that of the machine: what was written in another one is dropped. Empty: nothing is.
	Boot   string
	Limits Limits
	// PodDirs returns the log directories of pods that count for Limits.Total, and no others; nil: there are none.
	PodDirs func() []string
	// Notice, which may be nil, is told what befalls the logs. It must not wait for anything.
	Notice func(Notice)
	Log    *slog.Logger
}

// NewCollector returns a Collector. It does no I/O.
func NewCollector(cfg Config) *Collector {
	c := &Collector{dir: cfg.Dir, boot: cfg.Boot, log: cfg.Log, delay: partialDelay, stall: stallAfter, keeper: newKeeper(cfg), containers: map[string]*container{}}
	c.keeper.shed = c.shed
	return c
}

// Attach makes the FIFOs of container id, remembers logPath on disk, and copies in the background.
// It is idempotent. A log file that cannot be opened is no error: it is tried again with each output.
func (c *Collector) Attach(id, logPath string) (stdout, stderr string, err error) {
	dir := filepath.Join(c.dir, id)
	stdout, stderr = filepath.Join(dir, stdoutName), filepath.Join(dir, stderrName)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return "", "", fmt.Errorf("attach logs of %s: %w", id, os.ErrClosed)
	case id == "" || filepath.Base(id) != id || id == "." || id == "..":
		return "", "", fmt.Errorf("attach logs: %q is no container id", id)
	}
	if old := c.containers[id]; old != nil {
		if old.out.path != logPath {
			return "", "", fmt.Errorf("attach logs of %s: already attached to %s", id, old.out.path)
		}
		return stdout, stderr, nil
	}
	if err := c.prepare(dir, logPath); err != nil {
		return "", "", fmt.Errorf("attach logs of %s: %w", id, err)
	}
	ct, err := c.start(id, dir, logPath)
	if err != nil {
		return "", "", fmt.Errorf("attach logs of %s: %w", id, err)
	}
	c.containers[id] = ct
	return stdout, stderr, nil
}

// Stdin makes the FIFO that an attached container reads its standard input from. The shim holds its other end open, so
// that there is no end of it. It goes with Finish.
func (c *Collector) Stdin(id string) (path string, err error) {
	path = filepath.Join(c.dir, id, stdinName)
	if err := makeFIFO(path); err != nil {
		return "", fmt.Errorf("standard input of %s: %w", id, err)
	}
	return path, nil
}

// start opens the FIFOs in dir and starts the two readers.
func (c *Collector) start(id, dir, logPath string) (*container, error) {
	ct := &container{
		out:     &logFile{path: logPath, id: id, log: c.log, keeper: c.keeper},
		journal: c.journal(dir, logPath),
		done:    make(chan struct{}),
	}
	if ct.journal != nil {
		ct.out.untold = ct.journal.dropped.Load()
	}
	for i, name := range []string{stdoutName, stderrName} {
		r := &reader{
			out: ct.out, pool: &c.pool, split: splitter{stream: name}, log: c.log, now: time.Now, delay: c.delay, stall: c.stall,
			give: func(data []byte) { ct.taps.give(i, data) },
			part: partSize(c.keeper.limits.MaxSize), most: writeMost(c.keeper.limits.MaxSize),
		}
		path := filepath.Join(dir, name)
		if ct.journal != nil {
			r.spool = &spool{path: path + spoolSuffix, journal: ct.journal, stream: i}
		}
		if err := r.open(path); err != nil {
			if i > 0 {
				ct.readers[0].close()
			}
			return nil, errors.Join(err, ct.journal.close())
		}
		ct.readers[i] = r
	}
	if err := ct.out.reopen(); err != nil {
		c.log.Warn("cannot open log file, will be tried with each output", "path", logPath, "error", err)
	}
	ct.running.Store(int32(len(ct.readers)))
	for _, r := range ct.readers {
		go func() {
			defer ct.ended()
			r.run()
		}()
	}
	return ct, nil
}

// journal opens the journal in dir and ends what was under way when the last process was killed. It returns nil
// after an error, which it tells.
func (c *Collector) journal(dir, logPath string) *journal {
	j, err := openJournal(filepath.Join(dir, journalName))
	if err != nil {
		c.log.Warn("container output is copied without a journal: a kill can lose some", "dir", dir, "error", err)
		return nil
	}
	if err := j.settle(logPath); err != nil {
		c.log.Warn("lines may come twice in log file", "path", logPath, "error", err)
	}
	return j
}

// ended is called by each reader; the last one closes the file and the journal.
func (ct *container) ended() {
	if ct.running.Add(-1) == 0 {
		ct.taps.end()
		if ct.out.close() && ct.journal != nil {
			ct.journal.dropped.Store(0)
		}
		_ = ct.journal.close() // only a wrong address is an error
		close(ct.done)
	}
}

func (ct *container) tell(m mode) {
	for _, r := range ct.readers {
		r.tell(m)
	}
}

// Finish waits until all output of id has been written (the task must be deleted or gone) but not longer
// than ctx, then removes its FIFOs. It is idempotent; after an error it can be called again.
func (c *Collector) Finish(ctx context.Context, id string) error {
	c.mu.Lock()
	ct := c.containers[id]
	c.mu.Unlock()
	if ct != nil {
		ct.tell(modeDrain)
		select {
		case <-ct.done:
		case <-ctx.Done():
			return fmt.Errorf("write last output of %s to %s: %w", id, ct.out.path, context.Cause(ctx))
		}
	}
	if id == "" || filepath.Base(id) != id || id == "." || id == ".." {
		return fmt.Errorf("finish logs: %q is no container id", id)
	}
	if err := os.RemoveAll(filepath.Join(c.dir, id)); err != nil {
		return fmt.Errorf("remove fifos of %s: %w", id, err)
	}
	c.mu.Lock()
	delete(c.containers, id)
	c.mu.Unlock()
	return nil
}

// Reopen makes the container's log file anew under its path, after somebody renamed it away.
func (c *Collector) Reopen(id string) error {
	c.mu.Lock()
	ct := c.containers[id]
	c.mu.Unlock()
	if ct == nil {
		return fmt.Errorf("reopen log of %s: %w", id, fs.ErrNotExist)
	}
	if err := ct.out.reopen(); err != nil {
		return fmt.Errorf("reopen log of %s: %w", id, err)
	}
	return nil
}

// IDs returns the attached containers, sorted. After Recover the owner calls Finish for those it does not know.
func (c *Collector) IDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.containers))
	for id := range c.containers {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

// Lost returns how many lines of id could not be written to its log file so far.
func (c *Collector) Lost(id string) uint64 {
	c.mu.Lock()
	ct := c.containers[id]
	c.mu.Unlock()
	if ct == nil {
		return 0
	}
	return ct.out.lostLines()
}

// Close stops copying without waiting for the containers; their output waits in the FIFOs for the next
// Recover. The beginning of a line that was read already is written as a P piece: it may be long until then.
func (c *Collector) Close() error {
	c.mu.Lock()
	c.closed = true
	all := make([]*container, 0, len(c.containers))
	for _, ct := range c.containers {
		all = append(all, ct)
	}
	c.mu.Unlock()
	for _, ct := range all {
		ct.tell(modeStop)
	}
	for _, ct := range all {
		<-ct.done
	}
	c.keeper.close()
	return nil
}
