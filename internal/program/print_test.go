package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// hostile is a text of a container or a server that would act on a terminal.
const hostile = "a\x1b[2Jb\u202ec"

func TestWhatIsPrintedCannotActOnATerminal(t *testing.T) {
	var out, errs strings.Builder
	p := &Program{Stdout: &out, Stderr: &errs}
	p.Out().Println(hostile)
	p.Table().Print([]string{hostile, hostile})
	p.Errs().Println(hostile)
	p.PrintError(errors.New(hostile))
	if _, err := io.WriteString(p.RawJSON(), `"`+strings.ReplaceAll(hostile, "\x1b", "")+`"`); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "yaml"} {
		if err := p.PrintObject(map[string]string{"text": hostile}, format); err != nil {
			t.Error(err)
		}
	}
	if got := out.String() + errs.String(); strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("%q", got)
	}
}

func TestObjectsArePrintedAsJSONAndYAML(t *testing.T) {
	object := map[string]any{"name": "web", "tags": []string{"a", "1"}}
	for format, want := range map[string]string{
		"json": "{\n    \"name\": \"web\",\n    \"tags\": [\n        \"a\",\n        \"1\"\n    ]\n}\n",
		"yaml": "name: web\ntags:\n- a\n- \"1\"\n",
	} {
		var out strings.Builder
		if err := (&Program{Stdout: &out}).PrintObject(object, format); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}
	}
	if err := (&Program{Stdout: io.Discard}).PrintObject(func() {}, "json"); err == nil || !strings.HasPrefix(err.Error(), "print: ") {
		t.Error(err)
	}
}

// A reader that is gone, as `head`, must be noticed.
func TestALostOutputIsAnError(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	if err := (&Program{Stdout: w}).PrintObject("x", "json"); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestEachErrorHasALine(t *testing.T) {
	var errs strings.Builder
	p := &Program{Stderr: &errs}
	p.PrintError(fmt.Errorf("apply: %w", errors.Join(errors.New("a.yaml: bad"), errors.New("b.yaml:\nworse"))))
	if want := "monopod: apply: a.yaml: bad\nmonopod: b.yaml:\\nworse\n"; errs.String() != want {
		t.Errorf("%s\nwant\n%s", errs.String(), want)
	}
}

func TestOutputOfOthersPassesAsItIs(t *testing.T) {
	var out, errs strings.Builder
	p := &Program{Stdout: &out, Stderr: &errs}
	for _, w := range []io.Writer{p.Raw(), p.RawErr()} {
		if _, err := io.WriteString(w, hostile); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != hostile || errs.String() != hostile {
		t.Errorf("%q, %q", out.String(), errs.String())
	}
}

func TestFilesAndBuffersAreNoTerminals(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, f := range []io.Writer{file, &strings.Builder{}, nil} {
		if IsTerminal(f) {
			t.Errorf("%T is taken for a terminal", f)
		}
		if width, height := Screen(f); width != 80 || height != 24 {
			t.Errorf("%T: %d x %d", f, width, height)
		}
	}
}

func TestTableColumnsGrowForLaterRows(t *testing.T) {
	var out strings.Builder
	tab := (&Program{Stdout: &out}).Table()
	tab.Fit([]string{"", "wide enough"})
	for _, row := range [][]string{{"a", "b", "c"}, {"größer", "b", "c"}, {"a", "b", "c"}} {
		tab.Print(row)
	}
	want := "a   b             c\ngrößer   b             c\na        b             c\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
