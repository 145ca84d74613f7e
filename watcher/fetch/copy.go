package fetch

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
	"strconv"
	"strings"
	"time"

	"monopod/internal/atomicfile"
	"monopod/watcher"
)

// Copy is the last good answer of a remote source on disk: one file in a directory of the source's own, which is
// replaced as a whole. It belongs to the goroutine of that source.
type Copy struct {
	dir string
	// write is atomicfile.Write; tests have a disk that is full.
	write func(path string, data []byte, mode fs.FileMode) error
}

// NewCopy returns the copy that is, or will be, in dir.
func NewCopy(dir string) *Copy { return &Copy{dir: dir, write: atomicfile.Write} }

// Kept is what a Copy holds.
type Kept struct {
	// Body is the answer as it was received, Signature what vouches for it and came apart from it, if anything.
	Body, Signature []byte
	// Counts is the accepted content, as a List in JSON, where it differs from Body: refused objects have the content of earlier answers.
	// Nil if it is the same.
	Counts []byte
	Stamp
	// Stale is set if a newer answer could not be written. It is not stored in this form.
	Stale bool
}

// Stamp is what is kept about an answer.
type Stamp struct {
	// Place identifies the URL of the answer, which must be the one that is configured now. It is a hash because URLs can contain
	// passwords.
	Place string `json:"place"`
	Validators
	// Version is that of a signed answer.
	Version uint64 `json:"version,omitempty"`
	// Received is when the answer came, by a clock that may have been wrong.
	Received time.Time `json:"received"`
}

// ErrDamaged is returned for a copy that is not what was written.
var ErrDamaged = errors.New("the cached answer is damaged and not used")

// Names in the directory of a Copy.
const (
	copyFile  = "answer"
	staleFile = "answer.stale"
	// versionFile has the highest version of a signed answer that was accepted.
	versionFile = "version"
	// copyFormat is the first line of a copy.
	copyFormat = "monopod copy 1\n"
)

// maxCopy is more than any copy can have: an answer, its signature and what counts.
const maxCopy = 8 * watcher.MaxInput

// copyHead is the line of a copy before its three parts.
type copyHead struct {
	Stamp
	// Sizes are the bytes of Body, Signature and Counts.
	Sizes [3]int `json:"sizes"`
}

// Load reads the copy. Without one the error is fs.ErrNotExist; it is ErrDamaged when there is one that must not be used.
func (c *Copy) Load() (*Kept, error) {
	stale := false
	data, err := c.read(copyFile)
	if errors.Is(err, fs.ErrNotExist) {
		stale = true
		data, err = c.read(staleFile)
	}
	if err != nil {
		return nil, err
	}
	k, err := decodeCopy(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", c.dir, ErrDamaged, err)
	}
	k.Stale = stale
	return k, nil
}

func (c *Copy) read(name string) ([]byte, error) {
	path := filepath.Join(c.dir, name)
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxCopy:
		return nil, fmt.Errorf("%s: %w: %d bytes, %s", c.dir, ErrDamaged, info.Size(), info.Mode())
	}
	return atomicfile.Read(path, maxCopy)
}

// decodeCopy checks and takes apart what encodeCopy made.
func decodeCopy(data []byte) (*Kept, error) {
	rest, ok := bytes.CutPrefix(data, []byte(copyFormat))
	if !ok {
		return nil, errors.New("it has no valid header")
	}
	sum, rest, _ := bytes.Cut(rest, []byte{'\n'})
	if string(sum) != checksum(rest) {
		return nil, errors.New("its checksum does not match")
	}
	line, parts, _ := bytes.Cut(rest, []byte{'\n'})
	var head copyHead
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, err
	}
	k := &Kept{Stamp: head.Stamp}
	for i, part := range []*[]byte{&k.Body, &k.Signature, &k.Counts} {
		n := head.Sizes[i]
		if n < 0 || n > len(parts) {
			return nil, errors.New("the sizes of its parts do not match")
		}
		if n > 0 {
			*part = slices.Clip(parts[:n])
		}
		parts = parts[n:]
	}
	if len(parts) > 0 {
		return nil, errors.New("the sizes of its parts do not match")
	}
	return k, nil
}

func encodeCopy(k *Kept) ([]byte, error) {
	line, err := json.Marshal(copyHead{Stamp: k.Stamp, Sizes: [3]int{len(k.Body), len(k.Signature), len(k.Counts)}})
	if err != nil {
		return nil, err
	}
	rest := slices.Concat(line, []byte{'\n'}, k.Body, k.Signature, k.Counts)
	return slices.Concat([]byte(copyFormat), []byte(checksum(rest)), []byte{'\n'}, rest), nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Save replaces the copy; when it returns nil, the new one outlives a power cut. When it cannot be written the old one
// stays, marked as stale as far as that is possible.
func (c *Copy) Save(k *Kept) error {
	data, err := encodeCopy(k)
	if err == nil {
		err = c.replace(copyFile, data)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cache the answer: %w", err), c.markStale())
	}
	if err := os.Remove(filepath.Join(c.dir, staleFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache the answer: %w", err)
	}
	return nil
}

// replace replaces a file of the copy.
func (c *Copy) replace(name string, data []byte) error {
	if err := errors.Join(atomicfile.MkdirAll(c.dir), atomicfile.Sweep(c.dir)); err != nil {
		return err
	}
	return c.write(filepath.Join(c.dir, name), data, 0o600)
}

// Highest returns the highest version of a signed answer that was accepted, as far as its own file knows; 0 without one.
func (c *Copy) Highest() (uint64, error) {
	path := filepath.Join(c.dir, versionFile)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular() || info.Size() > maxVersionFile:
		return 0, fmt.Errorf("%s: %w", path, errVersionFile)
	}
	data, err := atomicfile.Read(path, maxVersionFile)
	if err != nil {
		return 0, err
	}
	text, sum, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), " ")
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || sum != checksum([]byte(text)) {
		return 0, fmt.Errorf("%s: %w", path, errVersionFile)
	}
	return version, nil
}

// maxVersionFile is more than the file of a version has.
const maxVersionFile = 1 << 10

var errVersionFile = errors.New("the highest accepted version cannot be read from its file; that of the cached answer, if any, is used")

// Raise makes version the one that Highest returns; when it returns nil, that outlives a power cut.
func (c *Copy) Raise(version uint64) error {
	text := strconv.FormatUint(version, 10)
	if err := c.replace(versionFile, []byte(text+" "+checksum([]byte(text))+"\n")); err != nil {
		return fmt.Errorf("store the version of the answer: %w", err)
	}
	return nil
}

// markStale renames the old copy to a name that marks it as older than what runs. Without a copy it creates an empty file of that name,
// which means that something may run.
func (c *Copy) markStale() error {
	stale := filepath.Join(c.dir, staleFile)
	err := os.Rename(filepath.Join(c.dir, copyFile), stale)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(stale, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// RemoveCopies removes the copies of all sources but those named from root, which has one directory per source. Copies may contain Secrets,
// so those of removed sources must not stay.
func RemoveCopies(root string, sources []string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !slices.Contains(sources, e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(root, e.Name())))
		}
	}
	return errors.Join(errs...)
}
