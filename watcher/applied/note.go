package applied

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"monopod/internal/atomicfile"
	"monopod/manifests"
	"monopod/manifests/kinds"
	"monopod/manifests/policy"
)

// Note is the metadata that the Kubernetes API has set on a stored object. It is a comment on the first line of the document, which readers
// of manifests do not see.
type Note = manifests.ServerMetadata

const (
	// notePrefix is the prefix of a document with a note.
	notePrefix = "#monopod.dev/note "
	// MaxNote is the maximal size of a note in bytes.
	MaxNote = 256 << 10
	// keptPrefix is the file name prefix of kinds that are not manifests. Hidden files are not read as manifests.
	keptPrefix = ".kept-"
)

// ErrNoteTooLarge is the error for a note of more than MaxNote bytes.
var ErrNoteTooLarge = errors.New("the metadata is too large")

// Kept reports whether a kind is stored but is not a manifest: only the Kubernetes API reads it.
func Kept(kind string) bool {
	return kind == "Namespace" || kind == "ServiceAccount" || kinds.Inert(kind)
}

// Split separates the note of a stored document from the manifest. A damaged note is ignored.
func Split(data []byte) (note *Note, manifest []byte) {
	rest, found := bytes.CutPrefix(data, []byte(notePrefix))
	if !found {
		return nil, data
	}
	line, manifest, _ := bytes.Cut(rest, []byte("\n"))
	note = &Note{}
	if len(line) > MaxNote || json.Unmarshal(line, note) != nil {
		return nil, manifest
	}
	return note, manifest
}

// Join returns the stored form of a document with a note; nil adds none.
func Join(note *Note, manifest []byte) ([]byte, error) {
	if note == nil {
		return manifest, nil
	}
	line, err := json.Marshal(note)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata: %w", err)
	}
	line = ascii(line)
	if len(line) > MaxNote {
		return nil, fmt.Errorf("%w: %d bytes, and at most %d are stored; remove owner references, finalizers or managed fields", ErrNoteTooLarge, len(line), MaxNote)
	}
	return bytes.Join([][]byte{[]byte(notePrefix), line, []byte("\n"), manifest}, nil), nil
}

// ascii escapes non-ASCII characters in JSON: YAML treats some of them as line breaks.
func ascii(line []byte) []byte {
	if !bytes.ContainsFunc(line, func(r rune) bool { return r >= utf8.RuneSelf-1 }) {
		return line
	}
	out := make([]byte, 0, len(line)+64)
	for _, r := range string(line) {
		switch high, low := utf16.EncodeRune(r); {
		case r < utf8.RuneSelf-1:
			out = append(out, byte(r))
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Policy returns the policy for a document with this note. Objects created over the Kubernetes API may be pods that the node rejects and
// never starts, and hooks, which Helm creates when they are to run.
func Policy(p policy.Policy, note *Note) policy.Policy {
	p.Rejects = note != nil && note.UID != ""
	p.HelmHooks = p.HelmHooks || p.Rejects
	return p
}

// Give adds a note to the objects of its document. Pods and workloads get its uid, which identifies their dependents.
func Give(note *Note, c *manifests.Content) {
	if note == nil {
		return
	}
	for _, p := range c.Pods {
		p.Given = note
		if note.UID != "" {
			p.Object.UID = note.UID
		}
	}
	for _, o := range c.Objects {
		o.Given = note
	}
	for _, w := range c.Workloads {
		w.Given = note
		if note.UID != "" {
			w.Object.SetUID(note.UID)
		}
	}
}

// Note returns the note of a stored object, nil if it has none. It must not be modified.
func (s *Store) Note(id manifests.ObjectID) *Note {
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	s.loadNotesLocked()
	return s.notes[FileName(id)]
}

// Notes returns all notes by the names of their files, see FileName.
func (s *Store) Notes() map[string]*Note {
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	s.loadNotesLocked()
	all := make(map[string]*Note, len(s.notes))
	maps.Copy(all, s.notes)
	return all
}

// loadNotesLocked reads the notes of all files once. Files that cannot be read have none.
func (s *Store) loadNotesLocked() {
	if s.notes != nil {
		return
	}
	s.notes = map[string]*Note{}
	s.whole.Lock()
	defer s.whole.Unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".yaml") && e.Type().IsRegular() {
			if note := readNote(filepath.Join(s.dir, name)); note != nil {
				s.notes[name] = note
			}
		}
	}
}

// readNote reads at most the maximum size of a note.
func readNote(path string) *Note {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	begin := make([]byte, len(notePrefix))
	if _, err := io.ReadFull(f, begin); err != nil || string(begin) != notePrefix {
		return nil
	}
	line, err := io.ReadAll(io.LimitReader(f, MaxNote+1))
	if err != nil || !bytes.Contains(line, []byte("\n")) {
		return nil
	}
	note, _ := Split(append(begin, line...))
	return note
}

// setNotes updates the notes after a change.
func (s *Store) setNotes(c Change) {
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	s.loadNotesLocked()
	for _, id := range c.Remove {
		delete(s.notes, FileName(id))
	}
	for id := range c.Put {
		if note := c.Notes[id]; note != nil {
			s.notes[FileName(id)] = note
		} else {
			delete(s.notes, FileName(id))
		}
	}
}

// forgetNotes discards the notes, so that the next use reads them again.
func (s *Store) forgetNotes() {
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	s.notes = nil
}

// Documents returns the stored documents of the kinds that are Kept, without notes, by the names of their files. Unreadable ones are
// omitted.
func (s *Store) Documents() map[string][]byte {
	s.whole.Lock()
	defer s.whole.Unlock()
	paths, err := filepath.Glob(filepath.Join(s.dir, keptPrefix+"*.yaml"))
	if err != nil {
		return nil
	}
	all := map[string][]byte{}
	for _, path := range paths {
		data, err := atomicfile.Read(path, atomicfile.MaxState)
		if err != nil {
			continue
		}
		_, all[filepath.Base(path)] = Split(data)
	}
	return all
}
