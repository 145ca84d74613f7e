package program

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"monopod/internal/printer"
)

// Out returns the printer for standard output. All text for people goes through Out and Errs, because names and messages come from
// containers, registries, servers and files. Only Raw, RawErr and PrintObject pass bytes on.
func (p *Program) Out() printer.Printer { return printer.New(p.Stdout) }

// Errs returns the printer for standard error.
func (p *Program) Errs() printer.Printer { return printer.New(p.Stderr) }

// Raw is standard output for what must arrive as it is: the output of a container, an archive, text that is a constant of the program.
func (p *Program) Raw() io.Writer { return p.Stdout }

// RawErr is Raw for standard error.
func (p *Program) RawErr() io.Writer { return p.Stderr }

// RawJSON is standard output for what writes JSON itself.
func (p *Program) RawJSON() io.Writer { return printer.JSONWriter(p.Stdout) }

// PrintObject prints a value as JSON or YAML.
func (p *Program) PrintObject(v any, format string) error {
	b, err := json.MarshalIndent(v, "", "    ")
	if err == nil && format == "yaml" {
		b, err = printer.YAML(b)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if format == "json" {
		b = append(printer.JSON(b), '\n')
	}
	_, err = p.Stdout.Write(b)
	return err
}

// Table prints rows in columns on standard output.
func (p *Program) Table() *Table { return &Table{W: p.Out()} }

// Table prints rows in columns. Widths only grow, so that rows that are printed later stay aligned.
type Table struct {
	W      printer.Printer
	widths []int
}

// Fit makes room for a row before anything is printed.
func (t *Table) Fit(cells []string) {
	for i, c := range cells {
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(printer.Escape(c)))
	}
}

// Print prints a row.
func (t *Table) Print(cells []string) {
	t.Fit(cells)
	var b strings.Builder
	for i, c := range cells {
		c = printer.Escape(c)
		b.WriteString(c)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c)+3))
		}
	}
	t.W.Printf("%s\n", strings.TrimRight(b.String(), " "))
}

// PrintAll prints rows with columns as wide as their longest cell.
func (t *Table) PrintAll(rows [][]string) {
	for _, r := range rows {
		t.Fit(r)
	}
	for _, r := range rows {
		t.Print(r)
	}
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
