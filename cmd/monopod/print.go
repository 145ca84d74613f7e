package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"monopod/internal/printer"
)

// out and errs print for people on standard output and standard error. All text goes through them: names and messages come from
// containers, registries, servers and files. Only raw, rawErr and printObject pass bytes on.
func (p *program) out() printer.Printer  { return printer.New(p.stdout) }
func (p *program) errs() printer.Printer { return printer.New(p.stderr) }

// raw is standard output for what must arrive as it is: the output of a container, an archive, text that is a constant of the program.
func (p *program) raw() io.Writer { return p.stdout }

// rawErr is raw for standard error.
func (p *program) rawErr() io.Writer { return p.stderr }

// rawJSON is standard output for what writes JSON itself.
func (p *program) rawJSON() io.Writer { return printer.JSONWriter(p.stdout) }

// printObject prints a value as JSON or YAML.
func (p *program) printObject(v any, format string) error {
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
	_, err = p.stdout.Write(b)
	return err
}

// table prints rows in columns on standard output.
func (p *program) table() *table { return &table{w: p.out()} }

// table prints rows in columns. Widths only grow, so that rows that are printed later stay aligned.
type table struct {
	w      printer.Printer
	widths []int
}

// fit makes room for a row before anything is printed.
func (t *table) fit(cells []string) {
	for i, c := range cells {
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(printer.Escape(c)))
	}
}

func (t *table) print(cells []string) {
	t.fit(cells)
	var b strings.Builder
	for i, c := range cells {
		c = printer.Escape(c)
		b.WriteString(c)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c)+3))
		}
	}
	t.w.Printf("%s\n", strings.TrimRight(b.String(), " "))
}

func (t *table) printAll(rows [][]string) {
	for _, r := range rows {
		t.fit(r)
	}
	for _, r := range rows {
		t.print(r)
	}
}
