// Package corpus finds manifests that were written outside of this project (../shared/corpus next to the repository), with the results of
// Kubernetes for them.
//
// It must only be used by tests; without the corpus they are skipped.
package corpus

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// File is one row of the corpus index.
type File struct {
	// Name is its path in the corpus; the first element is the group: A, B, C or D.
	Name string
	Data []byte
	// Verdicts are the results of the API server of v1.36 for its documents, except empty ones.
	Verdicts []Verdict
	// Kubelet is the result of a v1.36 kubelet, which reads only the first document of the file.
	Kubelet string
}

// Verdict is the result of Kubernetes for one document.
type Verdict struct {
	// Kind is apiVersion and kind.
	Kind string
	// Strict and Invalid are the results of strict decoding and of validation: "ok" or an error; Invalid is empty if the document is not a
	// Pod.
	Strict, Invalid string
}

// OK reports whether Kubernetes accepts the document.
func (v Verdict) OK() bool { return v.Strict == "ok" && (v.Invalid == "" || v.Invalid == "ok") }

// isEmpty reports whether the document contains only comments, which Kubernetes calls an object without a kind.
func (v Verdict) isEmpty() bool {
	return strings.HasPrefix(v.Strict, "ERR(Object 'Kind' is missing in '#") ||
		strings.HasPrefix(v.Strict, "ERR(Object 'Kind' is missing in '--- #") || v.Strict == "ERR(Object 'Kind' is missing in '--- ')"
}

// Open reads the corpus, or skips the test.
func Open(tb testing.TB) []File {
	tb.Helper()
	dir := find()
	index, err := os.ReadFile(filepath.Join(dir, "INDEX.tsv"))
	if err != nil {
		tb.Skipf("the corpus of manifests is not here: %v; MONOPOD_CORPUS names its directory", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(index), "\n"), "\n")
	names := strings.Split(lines[0], "\t")
	docs, kubelet := slices.Index(names, "docs_v1.36"), slices.Index(names, "kubelet_v1.36")
	var files []File
	for _, line := range lines[1:] {
		cells := strings.Split(line, "\t")
		data, err := os.ReadFile(filepath.Join(dir, cells[0]))
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, File{Name: cells[0], Data: data, Verdicts: parseVerdicts(cells[docs]), Kubelet: cells[kubelet]})
	}
	if len(files) < 300 {
		tb.Fatalf("only %d files in the corpus", len(files))
	}
	return files
}

// find looks for shared/corpus next to the repository of the test.
func find() string {
	if dir := os.Getenv("MONOPOD_CORPUS"); dir != "" {
		return dir
	}
	root, err := os.Getwd()
	for err == nil && root != "/" {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	return filepath.Join(root, "..", "shared", "corpus")
}

var (
	documentStart = regexp.MustCompile(`(?:^|; )(\d+):`)
	documentText  = regexp.MustCompile(`^(.*?) ?strict=(ok|ERR\(.*?\)?)(?: valid=(ok|ERR\(.*))?$`)
)

// parseVerdicts parses a cell like "1:v1 Pod strict=ok valid=ok; 2:...". Messages may contain anything, so only consecutive numbers start a
// document.
func parseVerdicts(cell string) []Verdict {
	var starts [][]int
	for _, m := range documentStart.FindAllStringSubmatchIndex(cell, -1) {
		if cell[m[2]:m[3]] == strconv.Itoa(len(starts)+1) {
			starts = append(starts, m)
		}
	}
	var all []Verdict
	for i, m := range starts {
		end := len(cell)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		parts := documentText.FindStringSubmatch(cell[m[1]:end])
		if parts == nil {
			parts = []string{"", "?", cell[m[1]:end], ""}
		}
		v := Verdict{Kind: parts[1], Strict: parts[2], Invalid: parts[3]}
		if !v.isEmpty() {
			all = append(all, v)
		}
	}
	return all
}
