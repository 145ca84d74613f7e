package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/embed/guard"
	"monopod/runner/ctrd/image/repair"
)

// shutdownFile is in the root directory.
const shutdownFile = "shutdown.json"

// shutdown is how the last run ended, and what is in doubt since. It is written at the start and the end of a run, and
// while images are looked at after a power cut.
type shutdown struct {
	Boot string `json:"boot"`
	// Clean says that all was on the disk when the run ended.
	Clean bool `json:"clean"`
	// Doubt says that images may be damaged, but for the Sound ones.
	Doubt bool     `json:"doubt,omitempty"`
	Sound []string `json:"sound,omitempty"`
}

// next is what holds for a run in a boot, by what the last run has left. A process that is killed leaves what the kernel
// has; only with the machine goes what was not on the disk yet.
func (s shutdown) next(boot string) shutdown {
	n := shutdown{Boot: boot, Doubt: s.Doubt, Sound: s.Sound}
	if s.Boot != "" && s.Boot != boot && !s.Clean {
		n.Doubt, n.Sound = true, nil
	}
	return n
}

// shutdownBook keeps the file.
type shutdownBook struct {
	path string
	log  *slog.Logger
	// write replaces a file.
	write func(path string, data []byte, mode fs.FileMode) error

	mu sync.Mutex // guards all below
	shutdown
}

func (b *shutdownBook) writeLocked() error {
	text, err := json.Marshal(b.shutdown)
	if err != nil {
		return err
	}
	return b.write(b.path, append(text, '\n'), 0o600)
}

// begin notes that a run has begun. Where that cannot be written, because the disk is full, the file is emptied, which takes no room: should
// the machine go down now all is in doubt then, and the run goes on, because it is what makes room.
func (b *shutdownBook) begin() (untold, err error) {
	untold = b.writeLocked()
	if untold == nil {
		return nil, nil
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), atomicfile.SyncDir(filepath.Dir(b.path)))
	}
	if err != nil {
		return nil, errors.Join(untold, err)
	}
	return untold, nil
}

// readShutdown reads the file; one that cannot be read is of another boot.
func readShutdown(path string) shutdown {
	var last shutdown
	text, err := atomicfile.Read(path, atomicfile.MaxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || json.Unmarshal(text, &last) != nil:
		return shutdown{Boot: "unknown"}
	}
	return last
}

// openShutdown notes that a run has begun, and returns what is in doubt; nil: nothing. A file that cannot be read leaves
// all in doubt.
func (r *Runtime) openShutdown() (*repair.Doubt, error) {
	b := &shutdownBook{path: filepath.Join(r.cfg.RootDirectory, shutdownFile), log: r.log, write: atomicfile.Write}
	b.shutdown = readShutdown(b.path).next(r.bootID)
	if slices.ContainsFunc(r.notices.Repaired, func(d guard.Repair) bool { return !d.Current }) {
		b.Doubt, b.Sound = true, nil
	}
	untold, err := b.begin()
	if err != nil {
		return nil, err
	}
	if untold != nil {
		r.log.Warn("images are looked at after the next start: how this run begins cannot be noted", "err", untold)
	}
	r.close.add(b.close)
	if !b.Doubt {
		return nil, nil
	}
	r.log.Warn("images are looked at before they are used: the machine went down without warning, or a database is older than they are", "sound", len(b.Sound))
	return &repair.Doubt{Sound: slices.Clone(b.Sound), OnSound: b.noteSound, OnAll: b.noteAll}, nil
}

// close notes that all that was written is on the disk. Where that takes too long it is left in doubt.
func (b *shutdownBook) close(ctx context.Context) error {
	synced := make(chan error, 1)
	go func() { synced <- syncAt(filepath.Dir(b.path)) }()
	select {
	case err := <-synced:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Clean = true
	return b.writeLocked()
}

// syncAt writes the file system of a directory to its disk.
func syncAt(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return unix.Syncfs(int(dir.Fd()))
}

func (b *shutdownBook) noteSound(digest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Sound = append(b.Sound, digest)
	if err := b.writeLocked(); err != nil {
		b.log.Warn("note that an image is sound", "err", err)
	}
}

func (b *shutdownBook) noteAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Doubt, b.Sound = false, nil
	if err := b.writeLocked(); err != nil {
		b.log.Warn("note that all images are sound", "err", err)
	}
	b.log.Info("all images are as they should be")
}
