package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
	"monopod/internal/boottime"
)

// Files of the record, from old to new.
const (
	oldFile = "events.old"
	logFile = "events.log"
	newFile = "events.new" // being written
)

// maxRead is how much of a file is read. One that is longer is none of ours.
const maxRead = 16 << 20

// store is the record on disk: lines are appended to a file until it is full. It then becomes the old one, and a new
// one begins with what is in the book. Each step leaves files that can be read: a line that was not written to its end
// has no valid checksum.
type store struct {
	dir   string
	limit int64 // of a file
	file  *os.File
	size  int64 // up to the end of the last whole line
}

// load reads both files and finds the place where the next line goes.
func (s *store) load() ([]record, error) {
	old, _, oldErr := readFile(filepath.Join(s.dir, oldFile))
	found, whole, err := readFile(filepath.Join(s.dir, logFile))
	if s.size = whole; err != nil {
		s.size = s.limit // what is in it is left alone
	}
	return append(old, found...), errors.Join(oldErr, err)
}

// Read returns the selected events that are on disk in dir, as List does. It needs no daemon and changes nothing. That
// there is no record is no error.
func Read(dir string, f Filter) ([]corev1.Event, error) {
	return readAt(boottime.Now(), dir, f)
}

func readAt(now boottime.Moment, dir string, f Filter) ([]corev1.Event, error) {
	s := store{dir: dir}
	found, err := s.load()
	ordered := latest(found)
	walls := wallsOf(ordered)
	var out []record
	for i := range ordered {
		r := &ordered[i]
		if now.Boot != "" && r.BootID == now.Boot {
			walls[r.Boot] = now.Wall.Add(-now.Since)
		}
		if f.matches(r) {
			out = append(out, *r)
		}
	}
	node, _ := os.Hostname() // without one, the events do not say where they are from
	return convert(out, walls, node), err
}

// readFile returns the records of a file, and the length of its whole lines. Damaged lines are left out.
func readFile(path string) (found []record, whole int64, err error) {
	f, err := atomicfile.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, 0, err
	}
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !ended {
			break // torn
		}
		whole += int64(len(line)) + 1
		if r, err := parseLine(line); err == nil {
			found = append(found, r)
		}
		b = rest
	}
	return found, whole, nil
}

// write appends records. When they no longer fit, a new file starts with the result of everything.
func (s *store) write(batch []record, everything func() []record) error {
	var text []byte
	for i := range batch {
		text = batch[i].appendLine(text)
	}
	if s.size+int64(len(text)) > s.limit || s.lost() {
		return s.turn(everything())
	}
	if err := s.open(); err != nil {
		return err
	}
	_, err := s.file.WriteAt(text, s.size)
	if err == nil {
		err = unix.Fdatasync(int(s.file.Fd()))
	}
	if err != nil {
		_ = s.file.Truncate(s.size) // what is left of it would be a torn line
		return fmt.Errorf("write events: %w", err)
	}
	s.size += int64(len(text))
	return nil
}

// lost reports whether the file has been removed by another process.
func (s *store) lost() bool {
	if s.file == nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(s.file.Fd()), &st) == nil && st.Nlink == 0
}

// open opens the log, and cuts off what is torn.
func (s *store) open() error {
	if s.file != nil {
		return nil
	}
	if err := atomicfile.MkdirAll(s.dir); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	err = errors.Join(f.Truncate(s.size), atomicfile.SyncDir(s.dir))
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("write events: %w", err)
	}
	s.file = f
	return nil
}

// turn makes the log the old file and begins a new one. When the disk is full, the old file makes room.
func (s *store) turn(all []record) error {
	text := linesWithin(all, s.limit/4*3) // the book holds about half of it, and does not count exactly
	err := s.begin(text)
	if errors.Is(err, unix.ENOSPC) && os.Remove(filepath.Join(s.dir, oldFile)) == nil {
		err = s.begin(text)
	}
	if err != nil {
		_ = os.Remove(filepath.Join(s.dir, newFile))
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// begin writes a new file and puts it in the place of the log.
func (s *store) begin(text []byte) error {
	if err := atomicfile.MkdirAll(s.dir); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(s.dir, name) }
	if err := os.RemoveAll(path(newFile)); err != nil { // what a process has left that was killed, or damage
		return err
	}
	f, err := os.OpenFile(path(newFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	for _, name := range []string{logFile, oldFile} { // a directory can neither be read later nor be replaced
		if info, serr := os.Lstat(path(name)); err == nil && serr == nil && info.IsDir() {
			err = atomicfile.SetAside(path(name), path(name)+".damaged")
		}
	}
	if err == nil {
		if err = os.Rename(path(logFile), path(oldFile)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(path(newFile), path(logFile))
	}
	if err == nil {
		err = atomicfile.SyncDir(s.dir)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	s.close()
	s.file, s.size = f, int64(len(text))
	return nil
}

// linesWithin returns the newest records, in order, as far as there is room.
func linesWithin(all []record, room int64) []byte {
	lines := make([][]byte, 0, len(all))
	for i := len(all) - 1; i >= 0 && room > 0; i-- {
		line := all[i].appendLine(nil)
		if room -= int64(len(line)); room >= 0 {
			lines = append(lines, line)
		}
	}
	slices.Reverse(lines)
	return bytes.Join(lines, nil)
}

func (s *store) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}
