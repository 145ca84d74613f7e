package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// extract writes all programs to dir, which it creates, verifies their checksums and syncs them.
func (p *Parcel) extract(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
		return err
	}
	found := 0
	err := p.each(func(f listed, r io.Reader) (bool, error) {
		found++
		return true, writeFile(filepath.Join(dir, f.name), programMode, func(w io.Writer) error { return f.copy(w, r) })
	})
	if err != nil {
		return err
	}
	if found < len(p.list.files) {
		return fmt.Errorf("the archive lacks %d programs", len(p.list.files)-found)
	}
	if err := writeFile(filepath.Join(dir, sumsFile), 0o644, p.list.writeSums); err != nil {
		return err
	}
	return syncDir(dir)
}

// Program writes one program to w and verifies its checksum.
func (p *Parcel) Program(name string, w io.Writer) error {
	found := false
	err := p.each(func(f listed, r io.Reader) (bool, error) {
		if f.name != name {
			return true, nil
		}
		found = true
		return false, f.copy(w, r)
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no program %s in the archive", name)
	}
	return err
}

// each calls take with each program of the archive until it returns false or an error.
func (p *Parcel) each(take func(f listed, r io.Reader) (more bool, err error)) error {
	z, err := zstd.NewReader(bytes.NewReader(p.archive), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	want := map[string]listed{}
	for _, f := range p.list.files {
		want[f.name] = f
	}
	r := tar.NewReader(z)
	for more := true; more; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f, ok := want[h.Name]
		if !ok || h.Typeflag != tar.TypeReg || h.Size != f.size {
			return fmt.Errorf("archive holds %q (%d bytes), which is not on its list", h.Name, h.Size)
		}
		delete(want, h.Name)
		if more, err = take(f, r); err != nil {
			return err
		}
	}
	return nil
}

// copy writes the program to w, and fails if its content is wrong.
func (f listed) copy(w io.Writer, r io.Reader) error {
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), r); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.sum {
		return fmt.Errorf("%s has checksum %s, not %s", f.name, got, f.sum)
	}
	return nil
}

// writeFile creates a file and syncs it.
func writeFile(path string, mode os.FileMode, content func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = content(f)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask is
	}
	if err == nil {
		err = os.Chtimes(path, unpackedAt(), unpackedAt())
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
