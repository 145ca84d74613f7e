package printer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"
)

func TestWhatATerminalMayActOnIsEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain äöü 世界 🙂 a\\b":     "plain äöü 世界 🙂 a\\b",
		"\x1b[2Jgone":             `\x1b[2Jgone`,
		"c1 \u009b31m":            `c1 \x9b31m`,
		"del \x7f bell \a":        `del \x7f bell \x07`,
		"a\nb\r\tc":               `a\nb\r\tc`,
		"bidi \u202e \u2066":      `bidi \u202e \u2066`,
		"zero\u200bwidth\ufeff":   `zero\u200bwidth\ufeff`,
		"lines\u2028\u2029\u0085": `lines\u2028\u2029\x85`,
		"invalid \xff\xc3":        `invalid \xff\xc3`,
		"tag \U000e0041":          `tag \U000e0041`,
		"filler \u3164":           `filler \u3164`,
		"replaced \ufffd":         "replaced \ufffd",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOnlyTheFormatLaysOut(t *testing.T) {
	type word string
	var b bytes.Buffer
	p := New(&b)
	p.Printf("%-6s|%5s|%*d|%q|%v|%s|%v|%5.1f\n", "a\nb", word("c\x1b"), 4, 7, "q\n", errors.New("e\nf"), time.Second, []string{"x", "y\n"}, 1.25)
	want := "a\\nb  |c\\x1b|   7|\"q\\n\"|e\\nf|1s|[x y\\n]|  1.2\n"
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
	b.Reset()
	p.Println("a\nb", 3, error(nil))
	p.Lines("one\x1b\n\ttwo\n")
	p.Block("  ", "x\n\ny\r\n")
	if want := "a\\nb 3 <nil>\none\\x1b\n    two\n  x\n\n  y\n"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

type listed []string

func (l listed) Error() string   { return strings.Join(l, "\n") }
func (l listed) Lines() []string { return l }

func TestLinesOfAnErrorAreThoseItIsMadeOf(t *testing.T) {
	joined := errors.Join(errors.New("a\nb"), errors.New("c"))
	for _, c := range []struct {
		err  error
		want []string
	}{
		{errors.New("a\nforged"), []string{`a\nforged`}},
		{joined, []string{`a\nb`, "c"}},
		{fmt.Errorf("x\x1b: %w", joined), []string{`x\x1b: a\nb`, "c"}},
		{fmt.Errorf("%w: y", joined), []string{`a\nb\nc: y`}},
		{fmt.Errorf("z: %w", listed{"1", "2\x7f"}), []string{"z: 1", `2\x7f`}},
		{errors.Join(listed{"1", "2"}, joined), []string{"1", "2", `a\nb`, "c"}},
	} {
		if got := ErrorLines(c.err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.err, got, c.want)
		}
	}
}

// unsafe is the first character that must not reach a terminal from encoded text.
func unsafe(text string) string {
	for i, r := range text {
		if r != '\n' && (!unicode.IsPrint(r) || r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], "\ufffd")) {
			return fmt.Sprintf("%U at %d", r, i)
		}
	}
	return ""
}

func FuzzNothingPassesThePrinter(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\x1b]0;t\a", "a\nb", "\u202e\u2066", "\u009b1m", "\xff\xfe", "\uffff0X0000202E", `\uFFFF0X0000202E`, "- x", "key: v\n", " lead", "true", "1e3",
		"\U000e0041\ufeff", "FFFF0X", "\r\n", "tab\there", strings.Repeat("long ", 40) + "\u200b", "null", "\u2028", "\x00", "\U0001f469\u200d\U0001f52c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if e := Escape(s); unsafe(e) != "" || strings.Contains(e, "\n") {
			t.Errorf("Escape(%q) = %q: %s", s, e, unsafe(e))
		}
		var out bytes.Buffer
		New(&out).Printf("<%s|%20s|%q>\n", s, s, s)
		New(&out).Println(errors.New(s), []byte(s))
		if bad := unsafe(out.String()); bad != "" || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%q printed %q: %s", s, out.String(), bad)
		}
		for _, l := range append(ErrorLines(fmt.Errorf("a: %w", errors.New(s))), SplitLines(s)...) {
			if unsafe(l) != "" || strings.Contains(l, "\n") {
				t.Errorf("%q gave the line %q", s, l)
			}
		}
		value := map[string]any{"k" + s[:min(len(s), 99)]: []any{s, map[string]any{"n": s + "\n" + s}}}
		b, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(JSON(b), &got); err != nil || !reflect.DeepEqual(got, want) || unsafe(string(JSON(b))) != "" {
			t.Errorf("JSON of %q: %s: %v %s", s, JSON(b), err, unsafe(string(JSON(b))))
		}
		y, err := YAML(b)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		if err := yaml.Unmarshal(y, &got); err != nil || !reflect.DeepEqual(got, want) || unsafe(string(y)) != "" {
			t.Errorf("YAML of %q: %q: %v %s\n%#v\n%#v", s, y, err, unsafe(string(y)), got, want)
		}
	})
}
