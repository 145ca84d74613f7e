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
	// journalMagic starts every journal; its last digit is the version of the layout.
	journalMagic = 0x6d6f6e6f6c6f6731
	// journalSize is the size of the file, less than a page on any machine, so that it is mapped as a whole.
	journalSize = 128
)

// journal records which part of a container's output is in its log file. It is a mapped file, so the next process sees every store,
// whenever this one is killed; power cuts are not covered.
//
// A write to the log file has these steps, each one store or one system call:
//
//	begin   the file, its size, the number of bytes to add, and their end in the spool; then writing = stream
//	write
//	done    start = that end; then writing = 0
//
// If the process is killed before begin is complete, the output is still in the spool and nothing of it in the log file. After that, settle
// inspects how much of the write is in the file. logFile.mu is held from begin to done, so only one stream writes at a time. Output that
// the disk refuses is dropped, which is one step: writing = stream + dropping, after the number of dropped lines.
type journal struct {
	magic atomic.Uint64
	// writing is 1 + the stream of the current write, plus dropping if the write is given up; 0 means that there is no write.
	writing atomic.Uint64
	// The current write: the log file and its size before, the number of bytes to add, the new start.
	dev, ino, size, length, upTo atomic.Uint64
	streams                      [2]progress
	// dropped is the number of dropped lines that the log file does not report yet, next its value after the write.
	dropped, next atomic.Uint64
}

// dropping is added to journal.writing when the rest of a write is given up.
const dropping = 2

// progress is the position of one stream: the part of its spool that is still needed.
type progress struct {
	// start is the first byte that is not in the log file, end the byte after the last one from the FIFO. If end is before start, both are
	// being reset to 0.
	start, end atomic.Uint64
	// moved is the number of bytes copied to offset 0 while that copy replaces the part; otherwise 0.
	moved atomic.Uint64
}

// move makes the n bytes at offset 0 the needed part. It can be repeated after any of its stores.
func (p *progress) move(n int64) {
	p.moved.Store(uint64(n))
	p.end.Store(uint64(n))
	p.start.Store(0)
	p.moved.Store(0)
}

// Compile-time check: the layout fits into the file.
const _ = uint(journalSize - unsafe.Sizeof(journal{}))

// openJournal maps the journal at path, and creates it if there is no valid one.
func openJournal(path string) (*journal, error) {
	j, err := mapJournal(path)
	if err == nil {
		return j, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoJournal) {
		return nil, err
	}
	// The file is written, not only extended: storing into a mapping without allocated memory would be fatal.
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

// errNoJournal means that the file is not a journal of this version.
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

// close unmaps the journal, which must not be used afterwards. The receiver may be nil.
func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(j), journalSize)
}

// settle completes a write that a kill may have interrupted: output that is completely in the log file counts as written; a part is
// removed, to be written again. After an error, lines may be duplicated.
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
		whole, err = j.inspect(path)
	}
	if whole {
		start.Store(upTo)
		j.dropped.Store(j.next.Load())
	}
	j.writing.Store(0)
	return err
}

// inspect reports whether the log file contains the whole write; otherwise it removes the part that it contains.
func (j *journal) inspect(path string) (whole bool, err error) {
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

// find opens the log file of the last write by its inode: it is at path or, if it was rotated since, next to it. It returns nil if the file
// is gone.
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

// mark is the position in a spool that a write to the log file reaches: everything before upTo is in the log. The zero mark is for output
// that is in no spool.
type mark struct {
	spool *spool
	upTo  int64
}

// begin records that n bytes will be added to the file described by st, after which no dropped lines are unreported.
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

// drop records that the rest of the output will never be written, and how many dropped lines the log file does not report.
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

// done records that the output was written, or was dropped for good.
func (m mark) done() {
	if m.spool == nil {
		return
	}
	j := m.spool.journal
	m.spool.progress().start.Store(uint64(m.upTo))
	j.dropped.Store(j.next.Load())
	j.writing.Store(0)
}
