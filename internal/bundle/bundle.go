// Package bundle carries the helper programs (shim, runc, CNI plugins) of a monopod-bundle binary and unpacks them.
// A plain build (without the build tag "bundle") carries nothing.
//
// It owns the directory it unpacks to and never removes what it once put there: shims of containers that run,
// and the runc they will be stopped with, may be of an earlier version. It has no goroutines.
package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// sumsFile is the first entry of the archive and lists the others, one "<sha256>  <name>" per line. It is
// unpacked last: a directory that has it is complete.
const sumsFile = "SHA256SUMS"

// Unpack writes the programs into dir, verifies their checksums, and returns the directory that holds
// them; "" when this binary carries none. Files that are already there and intact are kept. Each version
// has a directory of its own below dir, which appears complete or not at all; several processes may unpack
// at once.
func Unpack(dir string) (string, error) {
	if len(carried().archive) == 0 {
		return "", nil
	}
	return unpack(carried(), dir)
}

// Carries says that this binary has programs to unpack: it needs nothing beside it.
func Carries() bool { return len(carried().archive) > 0 }

// parcel is an archive and its name.
type parcel struct {
	archive []byte
	// version is what Version said when the archive was made. To compute it at each start would read, and
	// keep in memory, an archive that is hardly ever needed.
	version string
}

func unpack(p parcel, dir string) (string, error) {
	final := filepath.Join(dir, p.version)
	if intact(final) {
		return final, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, ".unpack-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	fresh := filepath.Join(tmp, "new")
	err = extract(p.archive, fresh)
	debug.FreeOSMemory() // the decoder's window: more than monopod needs for the rest of its life
	if err != nil {
		return "", fmt.Errorf("unpack to %s: %w", dir, err)
	}
	return final, place(fresh, final, filepath.Join(tmp, "old"))
}

// Version names an archive by its content.
func Version(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:8])
}

// place moves fresh to final, and a damaged final out of the way.
func place(fresh, final, old string) error {
	err := os.Rename(fresh, final)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	if intact(final) {
		return nil // another process was faster
	}
	if err := os.Rename(final, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, final)
}

// extract writes all files of the archive to dir, which it makes, and onto the disk.
func extract(archive []byte, dir string) error {
	z, err := zstd.NewReader(bytes.NewReader(archive), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	r := tar.NewReader(z)
	first, err := r.Next()
	if err != nil {
		return err
	}
	list, err := io.ReadAll(r)
	if err != nil || first.Name != sumsFile {
		return fmt.Errorf("archive begins with %s, not %s: %w", first.Name, sumsFile, err)
	}
	sums, err := parseSums(list)
	if err != nil {
		return err
	}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = extractFile(r, h, dir, sums)
		}
		if err != nil {
			return err
		}
	}
	if len(sums) > 0 {
		return fmt.Errorf("archive lacks %d of the files it lists", len(sums))
	}
	return write(filepath.Join(dir, sumsFile), bytes.NewReader(list), first)
}

// extractFile writes one program and takes it off the list.
func extractFile(r io.Reader, h *tar.Header, dir string, sums map[string]string) error {
	want, ok := sums[h.Name]
	if !ok || !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg {
		return fmt.Errorf("archive holds %q, which it does not list", h.Name)
	}
	delete(sums, h.Name)
	sum := sha256.New()
	if err := write(filepath.Join(dir, h.Name), io.TeeReader(r, sum), h); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%s has checksum %s, not %s", h.Name, got, want)
	}
	return nil
}

func write(path string, r io.Reader, h *tar.Header) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		// The time in the archive is how a later start sees that nobody touched the file.
		err = os.Chtimes(path, h.ModTime, h.ModTime)
	}
	return err
}

// intact says whether dir holds everything, unchanged as far as sizes and times tell. To compute all
// checksums at each start would cost more than the rest of the start.
func intact(dir string) bool {
	list, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return false
	}
	sums, err := parseSums(list)
	if err != nil {
		return false
	}
	mark, err := os.Stat(filepath.Join(dir, sumsFile))
	if err != nil {
		return false
	}
	for name := range sums {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Size() == 0 || st.Mode().Perm()&0o111 == 0 || !st.ModTime().Equal(mark.ModTime()) {
			return false
		}
	}
	return true
}

func parseSums(list []byte) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(sum) != hex.EncodedLen(sha256.Size) || name == "" {
			return nil, fmt.Errorf("%s: bad line %q", sumsFile, line)
		}
		sums[name] = sum
	}
	return sums, nil
}
