package why

import (
	"fmt"
	"strings"
	"time"

	"monopod/internal/model"
	"monopod/internal/printer"
)

// label begins the lines of a kind of steps.
func label(k Kind) string {
	switch k {
	case Cause:
		return "because"
	case Action:
		return "do"
	}
	return string(k)
}

// Print words an answer for people: the summary, then a block for each chain. clock prints a time of day.
func (a *Answer) Print(clock func(time.Time) string) string {
	var b strings.Builder
	p := printer.New(&b)
	if len(a.Chains) != 1 {
		p.Println(a.Text + ".")
	}
	for i := range a.Chains {
		if len(a.Chains) > 1 {
			p.Println()
		}
		a.Chains[i].print(p, clock)
	}
	return b.String()
}

func (c *Chain) print(p printer.Printer, clock func(time.Time) string) {
	end := ":"
	if c.Fine {
		end = "."
	}
	p.Println(c.Text + end)
	before := Kind("")
	for _, s := range c.Steps {
		name := ""
		if s.Kind != before {
			name = label(s.Kind)
		}
		before = s.Kind
		text := s.Text
		if s.Kind == Next && !s.At.IsZero() {
			text += " (" + clock(s.At) + ")"
		}
		p.Printf("  %-8s %s\n", name, text)
		for _, line := range s.Lines {
			p.Block("             ", strings.ReplaceAll(line, "\n", `\n`)) // each is one line, whatever a name of a file has in it
		}
	}
}

// failureCount is the number of consecutive failures of a probe as a text; empty for none.
func failureCount(p *model.Probe) string {
	if p == nil || p.Failures == 0 {
		return ""
	}
	often := times(p.Failures)
	if p.Failures > 1 {
		often += " in a row"
	}
	return fmt.Sprintf(" (%s; %d count)", often, p.Threshold)
}
