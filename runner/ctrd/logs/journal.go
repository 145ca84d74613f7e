package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// journalMagic begins every journal; its last digit is the version of the layout.
	journalMagic = 0x6d6f6e6f6c6f6731
	// journalSize is the size of the file: less than one page of any machine, so that it is in memory whole.
	journalSize = 128
)

// journal says how far the output of a container has come into its log file. It is a mapped file, so every
// store is there for the next process, whenever this one is killed; power cuts are not its business.
//
// A write to the log file goes through these steps, each one store or one system call:
//
//	begin   which file, its size, what is added, and which part of the spool that is; then writing = stream
//	write
//	done    start = the end of that part; then writing = 0
//
// Killed before begin, the part is still in the spool and nothing of it in the log file. After it, settle looks
// how much of the write the file has. logFile.mu is held from begin to done, so that at most one stream writes.
// What the disk refuses is dropped, which is one step: writing = stream + dropping, after how many lines that makes.
type journal struct {
	magic atomic.Uint64
	// writing is 1 + the stream whose write is under way, and dropping if it is to be given up; 0: none.
	writing atomic.Uint64
	// Of the write under way: the log file and its size before, the number of bytes added, the new start.
	dev, ino, size, length, upTo atomic.Uint64
	streams                      [2]progress
	// dropped is how many lines were dropped and are not told of in the log file, next what it is after the write.
	dropped, next atomic.Uint64
}

// dropping is added to journal.writing when the rest of a write is given up.
const dropping = 2

// progress is how far one stream has come: which part of its spool counts.
type progress struct {
	// start is the first byte that is not in the log file, end is after the last one from the FIFO. Where end
	// is before start, both are on their way to 0.
	start, end atomic.Uint64
	// moved is not 0 while the part is replaced by a copy at 0 of so many bytes.
	moved atomic.Uint64
}

// move makes the n bytes at 0 the part that counts. It can be repeated after any of its stores.
func (p *progress) move(n int64) {
	p.moved.Store(uint64(n))
	p.end.Store(uint64(n))
	p.start.Store(0)
	p.moved.Store(0)
}

// The layout has room in the file.
const _ = uint(journalSize - unsafe.Sizeof(journal{}))

// openJournal maps the journal at path, which it makes where there is none that can be used.
func openJournal(path string) (*journal, error) {
	j, err := mapJournal(path)
	if err == nil {
		return j, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoJournal) {
		return nil, err
	}
	// Written, not only made longer: memory must be there before it is mapped, or a store into it is fatal.
	b := binary.NativeEndian.AppendUint64(make([]byte, 0, journalSize), journalMagic)
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(tmp, b[:journalSize], 0o600); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, err
	}
	return mapJournal(path)
}

// errNoJournal is that of a file that is no journal of this version.
var errNoJournal = errors.New("not a journal")

func mapJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != journalSize {
		return nil, errNoJournal
	}
	p, err := unix.MmapPtr(int(f.Fd()), 0, nil, journalSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	j := (*journal)(p)
	if j.magic.Load() != journalMagic || j.writing.Load() > uint64(len(j.streams))+dropping {
		return nil, errors.Join(errNoJournal, j.close())
	}
	return j, nil
}

// close unmaps the journal, which must not be used any more. It may be nil.
func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(j), journalSize)
}

// settle decides on a write that the death of the process may have cut short: what is in the log file whole
// counts as written, a part of it is removed, to be written again. After an error lines may come twice.
func (j *journal) settle(path string) error {
	w := j.writing.Load()
	if w == 0 {
		return nil
	}
	whole := w > dropping
	if whole {
		w -= dropping
	}
	var err error
	start, upTo := &j.streams[w-1].start, j.upTo.Load()
	switch {
	case whole:
	case start.Load() == upTo: // only the last stores are missing
		whole = true
	default:
		whole, err = j.look(path)
	}
	if whole {
		start.Store(upTo)
		j.dropped.Store(j.next.Load())
	}
	j.writing.Store(0)
	return err
}

// look reports whether the log file has the whole write, and else removes what it has of it.
func (j *journal) look(path string) (whole bool, err error) {
	f, err := j.find(path)
	if f == nil {
		return false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	before := int64(j.size.Load())
	switch {
	case st.Size() >= before+int64(j.length.Load()):
		return true, nil
	case st.Size() > before:
		return false, f.Truncate(before)
	default:
		return false, nil
	}
}

// find opens the log file that was written to: that at path, or when it was rotated since, one beside it. It
// returns nil when there is none.
func (j *journal) find(path string) (*os.File, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		var st unix.Stat_t
		if !e.Type().IsRegular() || unix.Lstat(name, &st) != nil || st.Dev != j.dev.Load() || st.Ino != j.ino.Load() {
			continue
		}
		return os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	}
	return nil, nil
}

// mark is what a write to the log file means for a spool: everything before upTo is in the log. The zero mark
// belongs to output that is in no spool.
type mark struct {
	spool *spool
	upTo  int64
}

// begin tells the journal that n bytes will be added to the file st describes, and with them that no line is dropped
// that the file does not tell of.
func (m mark) begin(st *unix.Stat_t, n int) {
	if m.spool == nil {
		return
	}
	j := m.spool.journal
	j.dev.Store(st.Dev)
	j.ino.Store(st.Ino)
	j.size.Store(uint64(st.Size))
	j.length.Store(uint64(n))
	j.upTo.Store(uint64(m.upTo))
	j.next.Store(0)
	j.writing.Store(uint64(m.spool.stream) + 1)
}

// drop tells the journal that what is not written of the output never will be, and that this makes so many lines
// that the log file does not tell of.
func (m mark) drop(dropped uint64) {
	if m.spool == nil {
		return
	}
	j := m.spool.journal
	j.upTo.Store(uint64(m.upTo)) // begin may not have got its turn
	j.next.Store(dropped)
	j.writing.Store(uint64(m.spool.stream) + 1 + dropping)
	m.done()
}

// done tells the journal that the output was written, or was dropped for good.
func (m mark) done() {
	if m.spool == nil {
		return
	}
	j := m.spool.journal
	m.spool.progress().start.Store(uint64(m.upTo))
	j.dropped.Store(j.next.Load())
	j.writing.Store(0)
}
