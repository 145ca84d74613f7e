package document_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"monopod/manifests/document"
	"monopod/manifests/manifesttest"
)

func TestSplitDocuments(t *testing.T) {
	for _, c := range []struct {
		name string
		in   string
		// want is "line:first word" of each document, with "j" behind it for JSON.
		want string
	}{
		{"nothing", "", ""},
		{"white space", " \n\t\n", ""},
		{"comments", "# a\n---\n# b\n", ""},
		{"a document without marker", "a: 1\n", "1:a:"},
		{"a marker before", "---\na: 1\n", "1:---"},
		{"comments and directives before the marker", "# x\n%YAML 1.1\n---\na: 1\n", "1:#"},
		{"two documents", "a: 1\n---\nb: 1\n", "1:a: 2:---"},
		{"empty documents between", "---\n---\n# x\n---\na: 1\n---\n", "4:---"},
		{"an end marker", "a: 1\n...\nb: 1\n", "1:a: 3:b:"},
		{"an end marker and a marker", "a: 1\n...\n---\nb: 1\n", "1:a: 3:---"},
		{"content behind the marker", "--- a\n--- b\n", "1:--- 2:---"},
		{"a comment behind the marker", "--- # x\n--- # y\na: 1\n", "2:---"},
		{"a tab behind the marker", "a: 1\n---\t# x\nb: 1\n", "1:a: 2:---"},
		{"dashes that are no marker", "a: 1\n----\n --- \n---b\n", "1:a:"},
		{"Windows line ends", "a: 1\r\n---\r\nb: 1\r\n", "1:a: 2:---"},
		{"old Macintosh line ends", "a: 1\r---\rb: 1\r", "1:a: 2:---"},
		{"Unicode line ends", "a: 1\u2028---\u2029b: 1\u0085--- c", "1:a: 2:--- 4:---"},
		{"a marker in a quoted string ends the document", "a: \"x\n---\nb\"\n", "1:a: 2:---"},
		{"JSON", "{\"a\": 1}\n", "1:{\"a\":j"},
		{"JSON after JSON", "{\"a\": 1} {}\n\n\t{\"b\": 1}", "1:{\"a\":j 1:{}j 3:{\"b\":j"},
		{"JSON in a YAML document", "---\n{\"a\": 1}\n", "1:---"},
		{"broken JSON stays one document", "{\"a\": 1}\n{\"b\"}\n", "1:{\"a\":j"},
	} {
		var got []string
		for _, d := range document.Split([]byte(c.in)) {
			first := strings.Fields(string(d.Data))[0]
			if d.JSON {
				first += "j"
			}
			got = append(got, fmt.Sprintf("%d:%s", d.Line, first))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, strings.Join(got, " "), c.want)
		}
	}
}

// countDocuments counts the documents with content that a YAML parser finds; ok is false when it finds errors.
func countDocuments(data []byte) (n int, ok bool) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return n, true
		}
		if err != nil {
			return n, false
		}
		if value := doc.Content[0]; value.Kind != yaml.ScalarNode || value.Tag != "!!null" {
			n++
		}
	}
}

// TestNoDocumentIsLost compares with a parser that the splitter does without: a document that it does not see
// would be dropped without a word.
func TestNoDocumentIsLost(t *testing.T) {
	for _, dir := range []string{"valid", "invalid"} {
		for name, data := range manifesttest.Files(t, "../decode/testdata/"+dir) {
			want, ok := countDocuments(data)
			if !ok || strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".err") {
				continue
			}
			if got := len(document.Split(data)); got < want {
				t.Errorf("%s: %d documents, a parser finds %d", name, got, want)
			}
		}
	}
}

func TestLineColumnCountsCharacters(t *testing.T) {
	line, column := document.LineColumn([]byte("ab\nä=c\n"), len("ab\nä="))
	if line != 2 || column != 3 {
		t.Errorf("got %d:%d, want 2:3", line, column)
	}
}

func TestLinesAreCountedWhateverEndsThem(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028"} {
		for pad := range 5 { // the end lies across the edge of what is looked at first
			data := []byte(strings.Repeat("x", 1020+pad) + end + strings.Repeat("y", 5000) + end + "z")
			if line, column := document.LineColumn(data, len(data)-1); line != 3 || column != 1 {
				t.Errorf("%q behind %d: line %d, column %d", end, 1020+pad, line, column)
			}
		}
	}
}

// FuzzSplit compares the splitter with a parser: it may find more documents than one, never fewer.
func FuzzSplit(f *testing.F) {
	for _, data := range manifesttest.Files(f, "../decode/testdata/valid") {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs := document.Split(data)
		if want, ok := countDocuments(data); ok && len(docs) < want {
			t.Fatalf("%d documents, a parser finds %d", len(docs), want)
		}
		for _, d := range docs {
			if n, ok := countDocuments(d.Data); ok && n > 1 && !d.JSON {
				t.Fatalf("a document holds %d: %q", n, d.Data)
			}
		}
	})
}
