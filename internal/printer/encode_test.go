package printer

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestEncodedTextIsPlainOnATerminal(t *testing.T) {
	for in, want := range map[string]struct{ json, yaml string }{
		`{"a": "b", "m": 12345678901234567890, "e": 1.50}`: {`{"a": "b", "m": 12345678901234567890, "e": 1.50}`, "a: b\ne: 1.5\nm: 12345678901234567890\n"},
		"[\"\u202e\u2066\"]":        {`["\u202e\u2066"]`, "- \"\\U0000202E\\U00002066\"\n"},
		"[\"\u007f\U000e0041\"]":    {`["\u007f\udb40\udc41"]`, "- \"\\U0000007F\\U000E0041\"\n"},
		"{\"k\u200b\": \"äöü 世界\"}": {`{"k\u200b": "äöü 世界"}`, "\"k\\U0000200B\": äöü 世界\n"},
		"[\"\\u001b[2J\"]":          {`["\u001b[2J"]`, "- \"\\U0000001B[2J\"\n"},
		"[\"FFFF0X \u202e\"]":       {`["FFFF0X \u202e"]`, "- \"FFFF0X \\U0000202E\"\n"},
		"[\"\xff\"]":                {`["\ufffd"]`, "- \ufffd\n"},
		"[\"two\\nlines\"]":         {`["two\nlines"]`, "- |-\n  two\n  lines\n"},
	} {
		if got := string(JSON([]byte(in))); got != want.json {
			t.Errorf("JSON of %q: %q, want %q", in, got, want.json)
		}
		if got, err := YAML([]byte(in)); err != nil || string(got) != want.yaml {
			t.Errorf("YAML of %q: %q, %v; want %q", in, got, err, want.yaml)
		}
	}
	if _, err := YAML([]byte("{")); err == nil {
		t.Error("half a document became YAML")
	}
}

func TestJSONIsPassedOnEscaped(t *testing.T) {
	var b bytes.Buffer
	const text = "{\"a\": \"\u202e\"}\n"
	if n, err := io.WriteString(JSONWriter(&b), text); n != len(text) || err != nil || b.String() != `{"a": "\u202e"}`+"\n" {
		t.Errorf("%q, %d of %d bytes, %v", b.String(), n, len(text), err)
	}
	r, w := io.Pipe()
	_ = r.Close()
	if n, err := io.WriteString(JSONWriter(w), text); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("to nobody: %d, %v", n, err)
	}
}

func TestLinesBecomeOne(t *testing.T) {
	if got := OneLine("a\nb\n\nc"); got != "a; b; ; c" {
		t.Error(got)
	}
}
