// Package applied keeps what was applied over the API as files: one for each object, in one directory, which a
// file.Source reads like any other.
//
// It owns that directory. A change of it survives a crash at any moment as a whole or not at all, also one of many
// objects. It must not know what manifests mean.
//
// Goroutines: a change of many objects syncs their files side by side, and waits for that.
package applied

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"monopod/internal/atomicfile"
	"monopod/manifests"
)

// Names of files that are not read: those of a change under way.
const (
	stagedPrefix = ".new-"
	// journal lists the remaining steps of a change that has been decided.
	journal = ".change"
	// damaged is the directory for a journal that cannot be read, with the documents of its change.
	damaged = ".damaged"
)

// Store is the directory. Its methods may be called from any goroutine.
//
// A change goes this way; a crash after the journal was written is a crash after the change:
//
//	write .new-N for each object, fsync -> write .change (what replaces what), fsync -> rename, remove -> remove .change
type Store struct {
	dir string
	// disk is atomicfile; tests have disks that fail.
	disk Disk

	// mu is held during a change.
	mu sync.Mutex
	// sound is set if no journal and no staged files remain.
	sound bool
	// bound limits what is stored.
	bound bound
	// lost is what Open has not returned yet.
	lost *DamagedError
	// crash, in tests, ends a change before the step named.
	crash func(step string)
	// whole is held while files are replaced. Readers of the directory hold it to see a change as a whole.
	whole sync.Mutex

	// noteMu guards notes. It may be held while whole is taken, never the reverse.
	noteMu sync.Mutex
	// notes are the notes of all documents, by file name; nil until they have been read.
	notes map[string]*Note
}

// Disk is how files are written durably, and renamed over others.
type Disk struct {
	Write   func(path string, data []byte, mode fs.FileMode) error
	Replace func(from, to string) error
}

// NewStore returns the store of a directory. It does no I/O.
func NewStore(dir string) *Store {
	return NewStoreOn(Disk{Write: atomicfile.Write, Replace: atomicfile.Replace}, dir)
}

// NewStoreOn returns the store of a directory on another disk.
func NewStoreOn(disk Disk, dir string) *Store {
	return &Store{dir: dir, disk: disk, bound: bound{objects: MaxObjects, bytes: MaxBytes}}
}

// Dir is the directory.
func (s *Store) Dir() string { return s.dir }

// Whole keeps changes away while it is held.
func (s *Store) Whole() sync.Locker { return &s.whole }

// Open creates the directory and completes or reverts a change that a crash interrupted. Change does so too. A DamagedError reports that
// the change could not be completed; it is returned once, and the store can be used.
func (s *Store) Open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openLocked(); err != nil {
		return err
	}
	if lost := s.lost; lost != nil {
		s.lost = nil
		return lost
	}
	return nil
}

func (s *Store) openLocked() error {
	if s.sound {
		return nil
	}
	// The documents may be Secrets.
	if err := atomicfile.MkdirAll(s.dir); err != nil {
		return fmt.Errorf("directory of applied objects: %w", err)
	}
	err := s.finish()
	if lost, ok := errors.AsType[*DamagedError](err); ok {
		s.lost = lost
		err = s.setAside()
	}
	if err != nil {
		return fmt.Errorf("finish the change of applied objects that was interrupted: %w", err)
	}
	if err := s.dropStaged(); err != nil {
		return fmt.Errorf("clear the directory of applied objects: %w", err)
	}
	s.forgetNotes()
	s.sound = true
	return nil
}

// FileName is where an object is stored: kind.namespace.name.yaml, with _ for the namespace of cluster-wide kinds. Names too long for a file
// end with ~ and a hash, and so do those that contain a ~.
func FileName(id manifests.ObjectID) string {
	const longest = 255
	ns := id.Namespace
	if ns == "" {
		ns = "_"
	}
	name := strings.ToLower(id.Kind) + "." + ns + "." + id.Name
	if Kept(id.Kind) {
		name = keptPrefix + name
	}
	if len(name)+len(".yaml") > longest || strings.Contains(name, "~") {
		sum := sha256.Sum256([]byte(name))
		end := "~" + hex.EncodeToString(sum[:8])
		name = strings.ToValidUTF8(name[:min(len(name), longest-len(".yaml")-len(end))], "") + end
	}
	return name + ".yaml"
}

// Path is where an object is stored.
func (s *Store) Path(id manifests.ObjectID) string { return filepath.Join(s.dir, FileName(id)) }

// Get returns the stored document of an object without its note, nil when there is none, and an empty one when it cannot be read: it can be
// replaced and removed like any other.
func (s *Store) Get(id manifests.ObjectID) ([]byte, error) {
	data, err := atomicfile.Read(s.Path(id), atomicfile.MaxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, atomicfile.ErrDamaged) {
		return []byte{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read applied objects: %w", err)
	}
	if _, data = Split(data); data == nil {
		data = []byte{}
	}
	return data, nil
}

// Change is a set of documents to store and to remove.
type Change struct {
	Put map[manifests.ObjectID][]byte
	// Notes are the notes of the documents in Put. A document without an entry here has no note afterwards.
	Notes  map[manifests.ObjectID]*Note
	Remove []manifests.ObjectID
}

// Change carries out a change. After an error nothing has changed, unless it is an UnfinishedError.
func (s *Store) Change(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openLocked(); err != nil {
		return err
	}
	if len(c.Put)+len(c.Remove) == 0 {
		return nil
	}
	if err := s.fitsLocked(c); err != nil {
		if _, full := errors.AsType[*FullError](err); full {
			return err
		}
		return fmt.Errorf("store applied objects: %w; nothing was changed", err)
	}
	sizes := s.bound
	s.bound.stored(nil) // until the change has been carried out
	s.sound = false
	p, err := s.stage(c)
	switch {
	case err == nil && p.steps() == 1:
		err = s.carryOut(p)
	case err == nil:
		err = s.decide(p)
	}
	if _, decided := errors.AsType[*UnfinishedError](err); decided {
		s.setNotes(c)
		return err
	}
	if err != nil {
		return errors.Join(fmt.Errorf("store applied objects: %w; nothing was changed", err), s.openLocked())
	}
	defer s.setNotes(c)
	if p.steps() > 1 {
		if err := s.carryOut(p); err != nil {
			return &UnfinishedError{Err: err}
		}
	}
	if err := s.settle(p); err != nil {
		return &UnfinishedError{Err: err}
	}
	s.sound = true
	sizes.stored(&c)
	s.bound = sizes
	return nil
}

// UnfinishedError is a change that has been decided and could not be carried out to its end: the next start, or the next
// change, does that.
type UnfinishedError struct{ Err error }

// Error implements error.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("store applied objects: %v; the change is recorded, and will be completed with the next change or start", e.Err)
}

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// DamagedError is a change whose journal cannot be read. A part of it may have been carried out.
type DamagedError struct {
	// Aside is the directory that has what remains of the change.
	Aside string
	Err   error
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("a change of applied objects was interrupted, and its journal cannot be read: %v; re-apply it; its documents are in %s", e.Err, e.Aside)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Err }

// plan is a change as the journal has it: names in the directory only.
type plan struct {
	// Rename maps staged files to what they replace.
	Rename map[string]string `json:"rename,omitempty"`
	Remove []string          `json:"remove,omitempty"`
}

func (p plan) steps() int { return len(p.Rename) + len(p.Remove) }

// stage writes the new documents beside the old ones.
func (s *Store) stage(c Change) (plan, error) {
	p := plan{Rename: map[string]string{}}
	for _, id := range c.Remove {
		p.Remove = append(p.Remove, FileName(id))
	}
	slices.Sort(p.Remove)
	for id, data := range c.Put {
		s.at("stage")
		tmp := fmt.Sprintf("%s%d", stagedPrefix, len(p.Rename))
		data, err := Join(c.Notes[id], data)
		if err != nil {
			return plan{}, err
		}
		if err := os.WriteFile(filepath.Join(s.dir, tmp), data, 0o600); err != nil {
			return plan{}, err
		}
		p.Rename[tmp] = FileName(id)
	}
	return p, s.syncAll(slices.Collect(maps.Keys(p.Rename)))
}

// syncAll puts files on the disk, many at once: what they share is then written once.
func (s *Store) syncAll(names []string) error {
	var g errgroup.Group
	g.SetLimit(32)
	for _, name := range names {
		g.Go(func() error { return syncPath(filepath.Join(s.dir, name)) })
	}
	return g.Wait()
}

// decide writes the journal: from its rename on, the change has happened.
func (s *Store) decide(p plan) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	s.at("journal")
	if err := atomicfile.SyncDir(s.dir); err != nil { // what it names is there before it is
		return err
	}
	s.at("decide")
	path := filepath.Join(s.dir, journal)
	if err := s.disk.Write(path, data, 0o600); err != nil {
		// Whether it is on the disk is not known: take it back.
		if back := os.Remove(path); back != nil && !errors.Is(back, fs.ErrNotExist) {
			return &UnfinishedError{Err: errors.Join(err, back)}
		}
		return err
	}
	s.at("decided")
	return nil
}

// carryOut performs the remaining steps of a change. It is idempotent.
func (s *Store) carryOut(p plan) error {
	s.whole.Lock()
	defer s.whole.Unlock()
	for _, tmp := range slices.Sorted(maps.Keys(p.Rename)) {
		s.at("rename")
		err := s.disk.Replace(filepath.Join(s.dir, tmp), filepath.Join(s.dir, p.Rename[tmp]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range p.Remove {
		s.at("remove")
		if err := atomicfile.Remove(filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// settle puts a change that was carried out on the disk, and removes its journal.
func (s *Store) settle(p plan) error {
	s.at("settle")
	if err := atomicfile.SyncDir(s.dir); err != nil {
		return err
	}
	if p.steps() == 1 {
		return nil
	}
	s.at("forget")
	if err := os.Remove(filepath.Join(s.dir, journal)); err != nil {
		return err
	}
	s.at("forgotten")
	return atomicfile.SyncDir(s.dir) // before the next change: this one must not be done again after it
}

func (s *Store) at(step string) {
	if s.crash != nil {
		s.crash(step)
	}
}

// finish carries out the journal, if one exists.
func (s *Store) finish() error {
	data, err := atomicfile.Read(filepath.Join(s.dir, journal), atomicfile.MaxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var p plan
	if err == nil {
		p, err = decodePlan(data)
	}
	if errors.Is(err, atomicfile.ErrDamaged) {
		return &DamagedError{Aside: filepath.Join(s.dir, damaged), Err: err}
	}
	if err != nil {
		return err
	}
	if err := s.carryOut(p); err != nil {
		return err
	}
	return s.settle(p)
}

// decodePlan reads a journal. It may name files of the directory only.
func decodePlan(data []byte) (plan, error) {
	var p plan
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("%w: %s: %w", atomicfile.ErrDamaged, journal, err)
	}
	for _, names := range [][]string{p.Remove, slices.Collect(maps.Keys(p.Rename)), slices.Collect(maps.Values(p.Rename))} {
		for _, name := range names {
			if name == "" || name == "." || name == ".." || name != filepath.Base(name) {
				return p, fmt.Errorf("%w: %s names %q", atomicfile.ErrDamaged, journal, name)
			}
		}
	}
	return p, nil
}

// setAside moves a journal that cannot be read, and the documents of its change, to a directory of their own; the journal last, so that a crash
// repeats it. What was set aside before is removed.
func (s *Store) setAside() error {
	dir := filepath.Join(s.dir, damaged)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	staged, err := s.staged()
	if err != nil {
		return err
	}
	for _, name := range append(staged, journal) {
		if err := os.Rename(filepath.Join(s.dir, name), filepath.Join(dir, strings.TrimPrefix(name, "."))); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(s.dir)
}

// staged returns the names of the documents that changes have left.
func (s *Store) staged() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stagedPrefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// dropStaged removes what a change has left that was never decided.
func (s *Store) dropStaged() error {
	names, err := s.staged()
	if err != nil {
		return err
	}
	errs := []error{atomicfile.Sweep(s.dir)}
	for _, name := range names {
		errs = append(errs, os.Remove(filepath.Join(s.dir, name)))
	}
	return errors.Join(errs...)
}

// syncPath puts a file on the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
