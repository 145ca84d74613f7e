// Package printer writes what people read on a terminal. Names, messages and output come from containers, registries, servers and
// files, so they may hold escape sequences that change the terminal, or line ends that forge lines. A Printer escapes each argument:
// only formats, which are constants of the program, lay out lines.
//
// It knows nothing about what it prints and starts no goroutines. A Printer is as safe for concurrent use as its writer.
package printer

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// Printer writes text with all arguments escaped. Errors of the writer are dropped, as with fmt.Print on a terminal that is gone.
type Printer struct{ w io.Writer }

// New returns a Printer that writes to w.
func New(w io.Writer) Printer { return Printer{w} }

// Printf is fmt.Fprintf with escaped arguments. The format must be a constant.
func (p Printer) Printf(format string, args ...any) {
	_, _ = io.WriteString(p.w, Sprintf(format, args...))
}

// Println is fmt.Fprintln with escaped arguments.
func (p Printer) Println(args ...any) {
	_, _ = io.WriteString(p.w, fmt.Sprintln(safe(args)...))
}

// Lines prints text whose line ends are layout: those of a text that the program itself put together. Each line is escaped.
func (p Printer) Lines(text string) {
	var b strings.Builder
	for l := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(line(l) + "\n")
	}
	_, _ = io.WriteString(p.w, b.String())
}

// Block prints text of several lines, such as the output of a container, each line behind an indent: none can pass for another
// line of the program.
func (p Printer) Block(indent, text string) {
	var b strings.Builder
	for _, l := range SplitLines(text) {
		b.WriteString(strings.TrimRight(indent+l, " ") + "\n")
	}
	_, _ = io.WriteString(p.w, b.String())
}

// Sprintf is fmt.Sprintf with escaped arguments.
func Sprintf(format string, args ...any) string {
	if false {
		_ = fmt.Sprintf(format, args...) // so that vet checks the callers
	}
	return fmt.Sprintf(format, safe(args)...)
}

// safe returns the arguments as what they print when they are escaped.
func safe(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg
		if !isNumber(arg) {
			out[i] = cell{arg}
		}
	}
	return out
}

// isNumber reports whether a value prints digits only, whatever the verb; a width (*) must stay one.
func isNumber(v any) bool {
	if v == nil {
		return true
	}
	switch v.(type) {
	case error, fmt.Stringer, fmt.Formatter:
		return false
	}
	switch reflect.TypeOf(v).Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

// cell is an argument that is escaped when it is printed.
type cell struct{ v any }

// Format implements fmt.Formatter.
func (c cell) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = io.WriteString(f, strconv.Quote(fmt.Sprint(c.v)))
		return
	}
	text := Escape(fmt.Sprintf(fmt.FormatString(bare{f}, verb), c.v))
	width, ok := f.Width()
	if space := width - len([]rune(text)); ok && space > 0 {
		if f.Flag('-') {
			text += strings.Repeat(" ", space)
		} else {
			text = strings.Repeat(" ", space) + text
		}
	}
	_, _ = io.WriteString(f, text)
}

// bare is a fmt.State without width: that is for what is escaped.
type bare struct{ fmt.State }

// Width implements fmt.State.
func (bare) Width() (int, bool) { return 0, false }

// OneLine joins the lines of a text by semicolons.
func OneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
