package rollout

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"monopod/internal/atomicfile"
	"monopod/manifests"
	"monopod/runner/rollout/packed"
)

const (
	// stateFile holds the State of one pod: a line with magic and checksum, then JSON.
	stateFile = "state"
	// damagedFile is the new name of a state with a wrong checksum.
	damagedFile = "state.damaged"
	tempPrefix  = ".state-"
	// atOnce is the number of states that are written together.
	atOnce = 64
	// syncsAtOnce is the number of concurrent syncs of unordered states; each occupies a thread.
	syncsAtOnce = 16
	stateMagic  = "monopod-revisions-1 sha256:"
)

// Store keeps the state of each pod in a directory, DIR/NAMESPACE/NAME/. After a power cut, it contains the old or the new state. Only root
// may read it. Its methods may be called from any goroutine.
type Store struct {
	dir string
	// fsync syncs a file; tests replace it by a disk that hangs.
	fsync func(*os.File) error
	// layout is locked for writing while directories are removed, and for reading while they are created or written to.
	layout sync.RWMutex

	mu sync.Mutex
	// newest are the highest numbers of the entries that were begun, by pod; guarded by mu.
	newest map[manifests.Key]uint64
}

// NewStore returns the store in a directory. It does no I/O.
func NewStore(dir string) *Store {
	return &Store{dir: dir, fsync: (*os.File).Sync, newest: map[manifests.Key]uint64{}}
}

func (s *Store) path(key manifests.Key) string { return filepath.Join(s.dir, key.Namespace, key.Name) }

// Entry is the state of one pod.
type Entry struct {
	Key   manifests.Key
	State *State
	// Number orders the entries of a pod that several goroutines write: an entry is dropped if one with a higher number was begun.
	Number uint64
}

// begin reports whether an entry must be written, because no later one was begun.
func (s *Store) begin(e Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Number < s.newest[e.Key] {
		return false
	}
	s.newest[e.Key] = e.Number
	return true
}

// Load reads all states. It sets damaged ones aside and omits them; the error describes them.
func (s *Store) Load() (map[manifests.Key]*State, error) {
	all := map[manifests.Key]*State{}
	dirs, err := filepath.Glob(filepath.Join(s.dir, "*", "*"))
	if err != nil {
		return all, err
	}
	var problems []error
	var p packed.Packer
	for _, dir := range dirs {
		key := manifests.Key{Namespace: filepath.Base(filepath.Dir(dir)), Name: filepath.Base(dir)}
		st, err := load(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			problems = append(problems, fmt.Errorf("revisions of pod %s: %w", key, err))
		default:
			st.pack(&p)
			all[key] = st
		}
	}
	return all, errors.Join(problems...)
}

// load reads the state in a directory, and removes leftovers of a crash.
func load(dir string) (*State, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // it does no harm
		}
	}
	path := filepath.Join(dir, stateFile)
	b, err := atomicfile.Read(path, atomicfile.MaxState)
	if err != nil && !errors.Is(err, atomicfile.ErrDamaged) {
		return nil, err
	}
	var st *State
	if err == nil {
		st, err = decode(b)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), atomicfile.SetAside(path, filepath.Join(dir, damagedFile)))
	}
	return st, nil
}

func encode(st *State) ([]byte, error) {
	b, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return fmt.Appendf(nil, "%s%s\n%s\n", stateMagic, hex.EncodeToString(sum[:]), b), nil
}

func decode(b []byte) (*State, error) {
	head, body, _ := bytes.Cut(b, []byte("\n"))
	sum := sha256.Sum256(bytes.TrimSuffix(body, []byte("\n")))
	if string(head) != stateMagic+hex.EncodeToString(sum[:]) {
		return nil, errors.New("it is damaged: the checksum is wrong")
	}
	st := &State{}
	if err := json.Unmarshal(body, st); err != nil {
		return nil, err
	}
	if st.Revision(st.Active) == nil || st.Revision(st.Wanted) == nil {
		return nil, errors.New("it lacks the running revision")
	}
	return st, nil
}

// Save writes states in this order: after a crash, a prefix of them is stored. It continues after a state that cannot be written, which
// keeps its old content. failed are those states, err describes why.
func (s *Store) Save(entries []Entry) (failed []Entry, err error) { return s.saveParts(entries, 1) }

// SaveUnordered is Save without an order: after a crash, any of them may be stored. It is several times as fast.
func (s *Store) SaveUnordered(entries []Entry) (failed []Entry, err error) {
	return s.saveParts(entries, syncsAtOnce)
}

func (s *Store) saveParts(entries []Entry, together int) (failed []Entry, err error) {
	var problems []error
	for part := range slices.Chunk(entries, atOnce) {
		for i, err := range s.save(part, together) {
			if err != nil {
				failed, problems = append(failed, part[i]), append(problems, err)
			}
		}
	}
	return failed, errors.Join(problems...)
}

// save stores that many entries concurrently; 1 means in order. The result has the error of each entry.
func (s *Store) save(entries []Entry, together int) []error {
	files, failed := make([]*os.File, len(entries)), make([]error, len(entries))
	// All are written before the first one is synced: the file system then syncs them together, and concurrent syncs cost little more than
	// one.
	each := func(do func(i int) error) {
		var g errgroup.Group
		g.SetLimit(together)
		for i := range entries {
			g.Go(func() error {
				if err := do(i); err != nil {
					failed[i] = fmt.Errorf("store revisions of pod %s: %w", entries[i].Key, err)
				}
				return nil
			})
		}
		_ = g.Wait() // errors are in failed
	}
	each(func(i int) (err error) {
		files[i], err = s.write(entries[i])
		return err
	})
	each(func(i int) error {
		f := files[i]
		if f == nil {
			return nil
		}
		if err := s.settle(entries[i], f); err != nil {
			_ = os.Remove(f.Name()) // already renamed if it was stored
			return err
		}
		return nil
	})
	return failed
}

// write writes a state to a new file. It returns neither a file nor an error if there is a later entry.
func (s *Store) write(e Entry) (*os.File, error) {
	b, err := encode(e.State)
	if err != nil {
		return nil, err
	}
	s.layout.RLock()
	defer s.layout.RUnlock()
	if !s.begin(e) {
		return nil, nil
	}
	dir := s.path(e.Key)
	if err := atomicfile.MkdirAll(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// settle renames a written file to the state and syncs the directory.
func (s *Store) settle(e Entry, f *os.File) error {
	if err := errors.Join(s.fsync(f), f.Close()); err != nil {
		return err
	}
	if placed, err := s.place(e, f.Name()); err != nil || !placed {
		return err
	}
	return atomicfile.SyncDir(s.path(e.Key))
}

// place renames a written file to the state, unless a later entry was begun: then it deletes the file.
func (s *Store) place(e Entry, file string) (placed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Number < s.newest[e.Key] {
		return false, os.Remove(file)
	}
	return true, os.Rename(file, filepath.Join(s.path(e.Key), stateFile))
}

// Remove deletes the directory of the entry's pod, unless a later entry was begun. The state of the entry is ignored.
func (s *Store) Remove(e Entry) error {
	s.layout.Lock()
	defer s.layout.Unlock()
	if !s.begin(e) {
		return nil
	}
	dir := s.path(e.Key)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(dir)) // the namespace may contain other pods
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.newest, e.Key)
	return nil
}
