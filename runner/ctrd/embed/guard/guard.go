// Package guard protects the agent and its pods from damaged databases of the embedded containerd.
//
// bbolt maps a database into memory and panics in its own goroutines at the first invalid page. So each database is checked before containerd
// opens it. A damaged or missing one is set aside and replaced by a copy:
//
//	<state>/mirror/<boot>/   after each change, in memory as a rule: what containers run now. Gone with the boot
//	<root>/backup/           on the disk, now and then: images and their layers, for after a power cut
//
// It owns these two directories. It must not know pods. Goroutines: one, from Watch to Close.
package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"monopod/internal/atomicfile"
	"monopod/runner/ctrd/embed/boltfile"
)

// Config of a Guard.
type Config struct {
	// Metadata is the path of meta.db of containerd, Snapshots that of metadata.db of the snapshotter.
	Metadata, Snapshots string
	// Mirror and Backup are the directories for copies. A mirror is valid for one Boot of the machine.
	Mirror, Backup, Boot string
	// OnRepair is called for each database that was damaged or missing.
	OnRepair func(Repair)
	Log      *slog.Logger
}

// Repair describes the repair of a database.
type Repair struct {
	Path  string
	Cause error
	// Copy is the file that replaced it; empty: none, the database starts empty.
	Copy string
	// Current reports whether the copy was up to date, so that no running container is lost.
	Current bool
	// Aside is the new path of the damaged file; empty: the file was missing.
	Aside string
}

// String describes what happened and its consequence.
func (r Repair) String() string {
	text := fmt.Sprintf("containerd's database %s could not be used: %v", r.Path, r.Cause)
	switch {
	case r.Current:
		text += "; it was replaced with an up-to-date copy: nothing is lost"
	case r.Copy != "":
		text += "; it was replaced with " + r.Copy + ": containers that are newer are restarted, and images pulled again"
	default:
		text += "; there is no copy, it starts empty: images are imported or pulled again"
	}
	if r.Aside != "" {
		text += "; the damaged file is " + r.Aside
	}
	return text
}

// Guard keeps copies of two databases. A nil Guard does nothing.
type Guard struct {
	cfg Config

	mu sync.Mutex // guards all below
	// copied is the head of the mirror of each database.
	copied map[string]boltfile.Head
	// watching reports whether Watch was called and Close was not.
	watching bool
	// backedUp is the head of the backup of each database, and its time.
	backedUp map[string]uint64
	backupAt time.Time

	stop func()
	// flushed is called by tests after each copy of Watch, with its result.
	flushed func(error)
}

// New returns a Guard. It does no I/O.
func New(cfg Config) *Guard {
	return &Guard{cfg: cfg, copied: map[string]boltfile.Head{}, backedUp: map[string]uint64{}}
}

func (g *Guard) databases() []string { return []string{g.cfg.Metadata, g.cfg.Snapshots} }

func (g *Guard) mirror(path string) string {
	return filepath.Join(g.cfg.Mirror, g.cfg.Boot, filepath.Base(path))
}

func (g *Guard) backup(path string) string { return filepath.Join(g.cfg.Backup, filepath.Base(path)) }

// Restore checks the databases, and replaces damaged and missing ones. They must not be open. An error means that one is damaged and could not
// be replaced.
func (g *Guard) Restore() error {
	if g == nil {
		return nil
	}
	if err := g.dropOldMirrors(); err != nil {
		g.cfg.Log.Warn("remove copies of databases from an earlier boot", "err", err)
	}
	var repairs []Repair
	for _, path := range g.databases() {
		cause := g.check(path)
		if cause == nil {
			continue
		}
		r, err := g.replace(path, cause)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", path, cause, err)
		}
		if r != nil {
			repairs = append(repairs, *r)
		}
	}
	if len(repairs) > 0 {
		if err := g.reconcile(); err != nil {
			return fmt.Errorf("compare the databases of containerd: %w", err)
		}
	}
	for _, r := range repairs {
		g.cfg.Log.Error(r.String())
		if g.cfg.OnRepair != nil {
			g.cfg.OnRepair(r)
		}
	}
	g.firstCopies() // while all is sound
	g.firstBackups()
	return nil
}

// dropOldMirrors removes the mirrors of earlier boots.
func (g *Guard) dropOldMirrors() error {
	entries, err := os.ReadDir(g.cfg.Mirror)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Name() != g.cfg.Boot {
			errs = append(errs, os.RemoveAll(filepath.Join(g.cfg.Mirror, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// errTorn reports a usable database whose last transaction may be missing.
var errTorn = errors.New("one of its meta pages is not valid")

// check returns the damage of a database, or fs.ErrNotExist if it is missing.
func (g *Guard) check(path string) error {
	f, err := atomicfile.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h, err := boltfile.Check(f, info.Size(), readable)
	if err == nil && h.Torn {
		return errTorn
	}
	return err
}

// replace replaces a database by its best copy. It returns nil if there is nothing to report.
func (g *Guard) replace(path string, cause error) (*Repair, error) {
	missing := errors.Is(cause, fs.ErrNotExist)
	if _, err := os.Stat(filepath.Dir(path)); missing && err != nil {
		return nil, ignoreMissing(err) // the first start, or the directory was removed
	}
	r := &Repair{Path: path, Cause: cause}
	if missing {
		r.Cause = errors.New("it is missing")
	}
	for _, from := range []string{g.mirror(path), g.backup(path)} {
		if g.check(from) == nil {
			r.Copy, r.Current = from, from == g.mirror(path) && !newer(path, from)
			break
		}
	}
	switch {
	case errors.Is(cause, errTorn) && !r.Current, missing && r.Copy == "":
		return nil, nil // bbolt goes on from the transaction before; or the first start was cut off
	case !missing:
		r.Aside = path + ".damaged"
		if err := atomicfile.SetAside(path, r.Aside); err != nil {
			return nil, err
		}
	}
	if r.Copy == "" {
		return r, atomicfile.SyncDir(filepath.Dir(path))
	}
	data, err := os.ReadFile(r.Copy)
	if err != nil {
		return nil, err
	}
	return r, atomicfile.Write(path, data, 0o600)
}

// newer reports whether a database has transactions that its copy lacks, as far as its head can be read.
func newer(path, than string) bool {
	h, err := headOf(path)
	c, cerr := headOf(than)
	return err == nil && cerr == nil && h.Tx > c.Tx
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
