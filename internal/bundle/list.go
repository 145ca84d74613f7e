package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// list is the content of an archive.
type list struct {
	// version identifies the archive by its content.
	version string
	files   []listed
}

// listed is a program: its name, size in bytes and SHA-256 in hexadecimal.
type listed struct {
	name string
	size int64
	sum  string
}

// Version returns the identifier of an archive.
func Version(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:8])
}

// text returns the input of parseList: the version, then a line "<sha256> <size> <name>" per program.
func (l list) text() []byte {
	b := fmt.Appendln(nil, l.version)
	for _, f := range l.files {
		b = fmt.Appendln(b, f.sum, f.size, f.name)
	}
	return b
}

func parseList(text []byte) (list, error) {
	version, rest, _ := bytes.Cut(text, []byte("\n"))
	l := list{version: string(version)}
	if !isVersion(l.version) {
		return list{}, fmt.Errorf("list of programs: bad version %q", version)
	}
	for line := range strings.Lines(string(rest)) {
		f, err := parseLine(strings.Fields(line))
		if err != nil {
			return list{}, fmt.Errorf("list of programs: line %q: %w", line, err)
		}
		l.files = append(l.files, f)
	}
	return l, nil
}

func parseLine(fields []string) (listed, error) {
	if len(fields) != 3 || len(fields[0]) != hex.EncodedLen(sha256.Size) || fields[2] != filepath.Base(fields[2]) {
		return listed{}, errors.New("not a checksum, a size and a name")
	}
	size, err := strconv.ParseInt(fields[1], 10, 64)
	return listed{fields[2], size, fields[0]}, err
}

// isVersion reports whether name may be a result of Version.
func isVersion(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 8 && strings.ToLower(name) == name
}

// writeSums writes the list in the format of sha256sum.
func (l list) writeSums(w io.Writer) error {
	for _, f := range l.files {
		if _, err := fmt.Fprintf(w, "%s  %s\n", f.sum, f.name); err != nil {
			return err
		}
	}
	return nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
