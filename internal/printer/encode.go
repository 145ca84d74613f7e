package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// JSON escapes what encoding/json leaves as it is although a terminal may act on it: DEL, C1 control characters, bidirectional
// overrides and invisible characters. b must be valid JSON, which has such characters in strings only; so is the result, with the same value.
func JSON(b []byte) []byte {
	if IsPlain(strings.NewReplacer("\n", "", "\t", "").Replace(string(b))) {
		return b
	}
	var out bytes.Buffer
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteString(`\ufffd`)
		case isPlain(r) || r == '\n' || r == '\t':
			out.Write(b[:size])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		b = b[size:]
	}
	return out.Bytes()
}

// mark is U+FFFF, which the YAML encoder always escapes, as escapedMark.
const mark, escapedMark = "\uffff", `\uFFFF`

// YAML converts JSON to YAML that is safe on a terminal and has the same value. The encoder escapes control characters, but neither
// bidirectional overrides nor invisible characters: each is replaced by a mark that it does escape, with a number behind it.
func YAML(b []byte) ([]byte, error) {
	b = JSON(b)
	var tree any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	nonce := ""
	for n := 0; bytes.Contains(b, []byte("FFFF"+nonce)) || nonce == ""; n++ {
		nonce = fmt.Sprintf("%dX", n)
	}
	marked := false
	tree = replaceStrings(tree, func(s string) string {
		var out strings.Builder
		for _, r := range s {
			if isPlain(r) || r == '\n' || r == '\t' {
				out.WriteRune(r)
				continue
			}
			marked = true
			fmt.Fprintf(&out, "%s%s%08X", mark, nonce, r)
		}
		return out.String()
	})
	if !marked {
		return yaml.JSONToYAML(b)
	}
	marks, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	out, err := yaml.JSONToYAML(JSON(marks))
	if err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(out, []byte(escapedMark+nonce), []byte(`\U`)), nil
}

// replaceStrings returns a tree of decoded JSON with all strings and keys replaced.
func replaceStrings(tree any, by func(string) string) any {
	switch t := tree.(type) {
	case string:
		return by(t)
	case []any:
		for i := range t {
			t[i] = replaceStrings(t[i], by)
		}
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, v := range t {
			out[by(k)] = replaceStrings(v, by)
		}
		return out
	}
	return tree
}

// JSONWriter returns a writer that passes JSON on to w as JSON does. Each Write must have whole characters.
func JSONWriter(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

// Write implements io.Writer.
func (j jsonWriter) Write(b []byte) (int, error) {
	if _, err := j.w.Write(JSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
