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

// shutdownFile is the name of the file in the root directory.
const shutdownFile = "shutdown.json"

// shutdown records how the last run ended, and which images may be damaged since. It is written when a run starts and ends, and
// while images are verified after a power cut.
type shutdown struct {
	Boot string `json:"boot"`
	// Clean is set if everything was on disk when the run ended.
	Clean bool `json:"clean"`
	// Doubt is set if images may be damaged, except the Sound ones.
	Doubt bool     `json:"doubt,omitempty"`
	Sound []string `json:"sound,omitempty"`
}

// next returns the state of a run in a boot, given that of the last run. Killing a process loses nothing that it has written; a
// power cut loses what was not on disk yet.
func (s shutdown) next(boot string) shutdown {
	n := shutdown{Boot: boot, Doubt: s.Doubt, Sound: s.Sound}
	if s.Boot != "" && s.Boot != boot && !s.Clean {
		n.Doubt, n.Sound = true, nil
	}
	return n
}

// shutdownStore keeps the file.
type shutdownStore struct {
	path string
	log  *slog.Logger
	// write replaces a file; tests replace it.
	write func(path string, data []byte, mode fs.FileMode) error

	mu sync.Mutex // guards the fields below
	shutdown
}

func (b *shutdownStore) writeLocked() error {
	text, err := json.Marshal(b.shutdown)
	if err != nil {
		return err
	}
	return b.write(b.path, append(text, '\n'), 0o600)
}

// begin records the start of a run. If the disk is full, so that this cannot be written, it truncates the file, which takes no
// space: after a power cut all images are then verified. The run continues, because it frees disk space.
func (b *shutdownStore) begin() (unwritten, err error) {
	unwritten = b.writeLocked()
	if unwritten == nil {
		return nil, nil
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), atomicfile.SyncDir(filepath.Dir(b.path)))
	}
	if err != nil {
		return nil, errors.Join(unwritten, err)
	}
	return unwritten, nil
}

// readShutdown reads the file. An unreadable file counts as one of an unknown boot.
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

// openShutdown records the start of a run and returns the images that may be damaged; nil: none. After an unreadable file all may
// be.
func (r *Runtime) openShutdown() (*repair.Doubt, error) {
	b := &shutdownStore{path: filepath.Join(r.cfg.RootDirectory, shutdownFile), log: r.log, write: atomicfile.Write}
	b.shutdown = readShutdown(b.path).next(r.bootID)
	if slices.ContainsFunc(r.notices.Repaired, func(d guard.Repair) bool { return !d.Current }) {
		b.Doubt, b.Sound = true, nil
	}
	unwritten, err := b.begin()
	if err != nil {
		return nil, err
	}
	if unwritten != nil {
		r.log.Warn("cannot record the start: images will be verified after the next start", "err", unwritten)
	}
	r.close.add(b.close)
	if !b.Doubt {
		return nil, nil
	}
	r.log.Warn("images are verified before use: the last shutdown was not clean, or a database was restored from an older copy", "sound", len(b.Sound))
	return &repair.Doubt{Sound: slices.Clone(b.Sound), OnSound: b.noteSound, OnAll: b.noteAll}, nil
}

// close records a clean shutdown once everything is on disk. If that takes too long, the images stay in doubt.
func (b *shutdownStore) close(ctx context.Context) error {
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

// syncAt flushes the file system of a directory to disk.
func syncAt(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return unix.Syncfs(int(dir.Fd()))
}

func (b *shutdownStore) noteSound(digest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Sound = append(b.Sound, digest)
	if err := b.writeLocked(); err != nil {
		b.log.Warn("record that an image is intact", "err", err)
	}
}

func (b *shutdownStore) noteAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Doubt, b.Sound = false, nil
	if err := b.writeLocked(); err != nil {
		b.log.Warn("record that all images are intact", "err", err)
	}
	b.log.Info("all images are intact")
}
