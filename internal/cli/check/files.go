package check

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monopod/internal/regular"
	"monopod/internal/verdict"
	"monopod/manifests/document"
)

// manifestFile is a file named on the command line, or in a directory named there.
type manifestFile struct {
	Name    string
	Content []byte
	// Err is the error if the file cannot be read.
	Err error
	// Ignored is why the daemon does not read it, either; empty if it does.
	Ignored string
}

// ManifestFiles reads arguments: files, directories, or standard input. Directories are read as the daemon reads them, without what is below
// their sub-directories. What is named twice, or with its directory, is read once. A directory without manifests is an error.
func (p Commands) ManifestFiles(paths []string) []manifestFile {
	var all []manifestFile
	seen := map[string]bool{}
	for _, path := range paths {
		for _, f := range p.filesOf(path) {
			clean := filepath.Clean(f.Name)
			named := f.Ignored != "" && slices.ContainsFunc(paths, func(path string) bool { return filepath.Clean(path) == clean })
			if !seen[clean] && !named {
				seen[clean] = true
				all = append(all, f)
			}
		}
	}
	return all
}

// filesOf reads one argument.
func (p Commands) filesOf(path string) []manifestFile {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(p.Stdin, document.MaxSize+1))
		return []manifestFile{{Name: verdict.StdinName, Content: b, Err: err}}
	}
	if strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://") {
		return []manifestFile{{Name: path, Err: errors.New("URLs are not fetched here; use curl -fsSL URL | monopod ... -, or add it to sources in the configuration")}}
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []manifestFile{readManifest(path)}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return []manifestFile{{Name: path, Err: err}}
	}
	var out []manifestFile
	left := maxLooked
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case verdict.IsManifestName(e.Name()):
			b, err := regular.ReadFile(file, document.MaxSize) // nobody has named it: what blocks is not waited for
			out = append(out, manifestFile{Name: file, Content: b, Err: err})
		case !e.IsDir():
			out = append(out, manifestFile{Name: file, Ignored: "not a .yaml, .yml or .json file"})
		case hasManifests(file, &left):
			out = append(out, manifestFile{Name: file, Ignored: verdict.SubDirectory})
		}
	}
	if !slices.ContainsFunc(out, func(f manifestFile) bool { return f.Ignored == "" }) {
		out = append(out, manifestFile{Name: path, Err: errors.New("no manifests in this directory; their names end with .yaml, .yml or .json")})
	}
	return out
}

// maxLooked limits the entries below the sub-directories of an argument that are looked at: it may be / or the home directory.
const maxLooked = 10_000

// hasManifests reports whether files with the names of manifests are anywhere below a directory, of which it looks at left entries at most.
// What cannot be looked at has none.
func hasManifests(dir string, left *int) bool {
	for queue := []string{dir}; len(queue) > 0 && *left > 0; queue = queue[1:] {
		f, err := os.Open(queue[0])
		if err != nil {
			continue
		}
		entries, _ := f.ReadDir(*left)
		_ = f.Close()
		*left -= len(entries)
		for _, e := range entries {
			switch {
			case strings.HasPrefix(e.Name(), "."):
			case e.IsDir():
				queue = append(queue, filepath.Join(queue[0], e.Name()))
			case verdict.IsManifestName(e.Name()):
				return true
			}
		}
	}
	return false
}

func readManifest(path string) manifestFile {
	f, err := os.Open(path)
	if err != nil {
		return manifestFile{Name: path, Err: err}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, document.MaxSize+1))
	return manifestFile{Name: path, Content: b, Err: err}
}
