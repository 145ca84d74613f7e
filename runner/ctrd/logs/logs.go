// Package logs copies the output of containers from FIFOs to CRI log files, and reads those files.
//
// It owns the FIFO directories, the log files and the links to them. It must not know pods or decide when a container has exited: the owner
// calls Finish after the task was deleted.
//
// Goroutines: two per attached container until Finish or Close, without buffers while idle; those of keeper while old files are compressed
// or removed. Read runs in the goroutine of its caller (plus that of fsnotify while following).
//
// A log is one file or several: <n>.log is the current one, <n>.log.<time> and <n>.log.<time>.gz are rotated ones. The writer itself
// rotates, between two lines, so that no file exceeds its limit. A rename never happens during an announced write, and the journal
// identifies the file by its inode. Read reads all files as one log.
//
// Output is lost only if the disk of the log files refuses it. Killing the process at any instruction neither loses nor duplicates output:
// it is in the FIFO, which the shim holds open, in a spool next to it, or in the log file, and the journal records which part of a spool is
// in the log file. See journal and spool. The exceptions:
//   - a power cut loses the content of FIFOs and spools;
//   - if a journal cannot be created, or there is no space for a spool, they are not used (with one warning); then a kill
//     loses what was read from the FIFO but not written;
//   - the journal itself may be on its way to a disk or to swap in the microseconds of the kill: see spool;
//   - if the log file is moved to another directory during the very write in which the process is killed, both that file
//     and its successor get these lines.
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

// Names of files in the directory of a container.
const (
	stdinName  = "stdin"
	stdoutName = "stdout"
	stderrName = "stderr"
	metaName   = "meta.json"

	journalName = "journal"
	spoolSuffix = ".spool"
)

// Collector owns one directory with a subdirectory per container, which contains its FIFOs and the path of its log. Methods may be called
// concurrently for different containers, but not for the same one.
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
	// running counts the running readers; the last one closes done.
	running atomic.Int32
	done    chan struct{}
}

// Config configures a Collector.
type Config struct {
	// Dir is the directory for FIFOs.
	Dir string
	// Boot is the current boot ID: files of other boots are removed. If it is empty, nothing is removed.
	Boot   string
	Limits Limits
	// PodDirs returns the log directories of the pods that count for Limits.Total; nil means none.
	PodDirs func() []string
	// Notice is called for events that concern logs; it must not block. Nil disables it.
	Notice func(Notice)
	Log    *slog.Logger
}

// NewCollector returns a Collector. It does no I/O.
func NewCollector(cfg Config) *Collector {
	c := &Collector{dir: cfg.Dir, boot: cfg.Boot, log: cfg.Log, delay: partialDelay, stall: stallAfter, keeper: newKeeper(cfg), containers: map[string]*container{}}
	c.keeper.shed = c.shed
	return c
}

// Attach creates the FIFOs of container id, stores logPath on disk, and starts copying in the background. It is idempotent. If the log file
// cannot be opened, this is not an error: each write tries again.
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

// Stdin creates the FIFO for the standard input of an attached container. The shim holds it open, so that the container never reads EOF.
// Finish removes it.
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
		ct.out.unreported = ct.journal.dropped.Load()
	}
	for i, name := range []string{stdoutName, stderrName} {
		r := &reader{
			out: ct.out, pool: &c.pool, split: splitter{stream: name}, log: c.log, now: time.Now, delay: c.delay, stall: c.stall,
			publish: func(data []byte) { ct.taps.publish(i, data) },
			part:    partSize(c.keeper.limits.MaxSize), most: writeMost(c.keeper.limits.MaxSize),
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
		c.log.Warn("cannot open log file, will be tried with each output", "path", logPath, "err", err)
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

// journal opens the journal in dir and settles a write that a kill interrupted. After an error, which it logs, it returns nil.
func (c *Collector) journal(dir, logPath string) *journal {
	j, err := openJournal(filepath.Join(dir, journalName))
	if err != nil {
		c.log.Warn("container output is copied without a journal: a kill can lose some", "dir", dir, "err", err)
		return nil
	}
	if err := j.settle(logPath); err != nil {
		c.log.Warn("lines may be duplicated in log file", "path", logPath, "err", err)
	}
	return j
}

// ended is called when a reader ends; the last one closes the file and the journal.
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

func (ct *container) setMode(m mode) {
	for _, r := range ct.readers {
		r.setMode(m)
	}
}

// Finish waits until all output of id has been written (the task must have been deleted), but not longer than ctx, then removes its FIFOs.
// It is idempotent; after an error it can be called again.
func (c *Collector) Finish(ctx context.Context, id string) error {
	c.mu.Lock()
	ct := c.containers[id]
	c.mu.Unlock()
	if ct != nil {
		ct.setMode(modeDrain)
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

// Reopen creates the container's log file again after another program renamed it.
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

// IDs returns the attached containers, sorted. After Recover, the owner calls Finish for unknown ones.
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

// Lost returns how many lines of id could not be written to its log file.
func (c *Collector) Lost(id string) uint64 {
	c.mu.Lock()
	ct := c.containers[id]
	c.mu.Unlock()
	if ct == nil {
		return 0
	}
	return ct.out.lostLines()
}

// Close stops copying without waiting for the containers; their output stays in the FIFOs until the next Recover. An incomplete line that
// was already read is written as a P piece, because that may take long.
func (c *Collector) Close() error {
	c.mu.Lock()
	c.closed = true
	all := make([]*container, 0, len(c.containers))
	for _, ct := range c.containers {
		all = append(all, ct)
	}
	c.mu.Unlock()
	for _, ct := range all {
		ct.setMode(modeStop)
	}
	for _, ct := range all {
		<-ct.done
	}
	c.keeper.close()
	return nil
}
