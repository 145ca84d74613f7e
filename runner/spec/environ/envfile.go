package environ

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
)

// EnvFiles returns the files that the environment of a container is read from, each once. Their volumes need not be
// mounted in it.
func EnvFiles(c *corev1.Container) []spec.EnvFile {
	var files []spec.EnvFile
	seen := map[spec.EnvFile]bool{}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
			f := spec.EnvFile{Volume: from.FileKeyRef.VolumeName, Path: from.FileKeyRef.Path}
			if !seen[f] {
				files, seen[f] = append(files, f), true
			}
		}
	}
	return files
}

// fileValue looks a variable up in a file of a volume.
func fileValue(in spec.Input, ref *corev1.FileKeySelector) (string, error) {
	if in.Preview {
		return "", nil
	}
	text, exists := in.EnvFiles[spec.EnvFile{Volume: ref.VolumeName, Path: ref.Path}]
	if exists {
		value, found, err := lookUp(text, ref.Key)
		if err != nil {
			return "", fmt.Errorf("file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
		}
		if found {
			return value, nil
		}
	}
	switch {
	case ptr.Deref(ref.Optional, false):
		return "", errOptional
	case !exists:
		return "", fmt.Errorf("volume %q has no file %q", ref.VolumeName, ref.Path)
	}
	return "", fmt.Errorf("couldn't find key %s in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
}

// lookUp returns the first value that a file of variables has for a key. Only what a POSIX shell would read in the same
// way is accepted, as kubelet does since 1.35: NAME='value', where the value is taken as it is and may span lines.
// What comes after the key is not looked at.
//
//	# a comment
//	 NAME='value' # another
//	EMPTY= 'a shell would not assign this'
func lookUp(text, key string) (value string, found bool, err error) {
	p := envParser{rest: text}
	for {
		name, value, err := p.next()
		if err != nil {
			return "", false, fmt.Errorf("line %d: %w", p.line, err)
		}
		if name == "" || name == key {
			return value, name == key && name != "", nil
		}
	}
}

// envParser reads a file of variables from its beginning.
type envParser struct {
	rest string
	// line is the number of the line that was read last.
	line int
}

const blanks = " \t"

// next returns the next variable, an empty name at the end.
func (p *envParser) next() (name, value string, err error) {
	for {
		text, ok := p.readLine()
		if !ok {
			return "", "", nil
		}
		text = strings.TrimLeft(text, blanks)
		if text == "" || text[0] == '#' {
			continue
		}
		name, text, ok = strings.Cut(text, "=")
		switch {
		case !ok:
			return "", "", errors.New("no '=' in it")
		case name == "":
			return "", "", errors.New("no name before '='")
		case strings.TrimRight(name, blanks) != name:
			return "", "", errors.New("a space before '='")
		case text != "" && strings.ContainsRune(blanks, rune(text[0])):
			return name, "", nil
		}
		value, err = p.quoted(text)
		return name, value, err
	}
}

// quoted reads a value in single quotes that begins with text.
func (p *envParser) quoted(text string) (string, error) {
	begin := p.line
	text, ok := strings.CutPrefix(text, "'")
	if !ok {
		return "", errors.New("the value is not in single quotes")
	}
	var value strings.Builder
	for {
		part, after, closed := strings.Cut(text, "'")
		value.WriteString(part)
		if closed {
			if after = strings.TrimLeft(after, blanks); after != "" && after[0] != '#' {
				return "", errors.New("something follows the closing quote")
			}
			return value.String(), nil
		}
		value.WriteByte('\n')
		if text, ok = p.readLine(); !ok {
			p.line = begin
			return "", errors.New("the quote is not closed")
		}
	}
}

// readLine returns a line without its end.
func (p *envParser) readLine() (line string, ok bool) {
	if p.rest == "" {
		return "", false
	}
	p.line++
	line, p.rest, _ = strings.Cut(p.rest, "\n")
	return strings.TrimSuffix(line, "\r"), true
}
