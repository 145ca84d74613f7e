package xtables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnlisted reports that the tool cannot list the rules.
var ErrUnlisted = errors.New("the rules cannot be listed")

// maxTries limits how often a change is planned again because the rules were changed concurrently.
const maxTries = 10

// Apply sets chains and jumps, whatever exists, each jump once.
func (s Set) Apply(ctx context.Context) error { return s.change(ctx, s.placed) }

// Remove removes the chains and all jumps to them, including those that were added by others. It is idempotent.
func (s Set) Remove(ctx context.Context) error { return s.change(ctx, s.removed) }

// change reads the rules and applies a planned change in one transaction. The transaction fails if the rules were changed since they were read;
// then the change is planned again.
func (s Set) change(ctx context.Context, plan func(table string, now listing) string) error {
	var last string
	var failed error
	for range maxTries {
		var input strings.Builder
		for _, t := range s.tables() {
			out, err := run(ctx, "", s.Tool, "-w", "5", "-t", t, "-S")
			if err != nil {
				return fmt.Errorf("%w: %w", ErrUnlisted, err)
			}
			if lines := plan(t, parse(out)); lines != "" {
				fmt.Fprintf(&input, "*%s\n%sCOMMIT\n", t, lines)
			}
		}
		if input.Len() == 0 {
			return nil
		}
		if input.String() == last { // the rules were not changed concurrently
			return failed
		}
		last = input.String()
		if _, failed = run(ctx, last, s.Tool+"-restore", "-w", "5", "--noflush"); failed == nil {
			return nil
		}
	}
	return failed
}

// tables returns the tables of the chains.
func (s Set) tables() []string {
	var out []string
	for _, c := range s.Chains {
		if !slices.Contains(out, c.Table) {
			out = append(out, c.Table)
		}
	}
	return out
}

// listing is the rules of a table as printed by the tool.
type listing struct {
	chains []string
	rules  []string
}

func parse(out string) listing {
	var l listing
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "-N "); ok {
			l.chains = append(l.chains, name)
		}
		if rule, ok := strings.CutPrefix(line, "-A "); ok {
			l.rules = append(l.rules, rule)
		}
	}
	return l
}

// leadsTo reports whether a rule jumps to a chain. A jump to a chain has no options after its target.
func leadsTo(rule, chain string) bool {
	return strings.HasSuffix(rule, " -j "+chain) || strings.HasSuffix(rule, " -g "+chain)
}

// removed plans the removal. The chains are flushed first, because they may jump to each other.
func (s Set) removed(table string, now listing) string {
	var flush, unlink, drop strings.Builder
	for _, c := range s.Chains {
		if c.Table != table || !slices.Contains(now.chains, c.Name) {
			continue
		}
		fmt.Fprintf(&flush, "-F %s\n", c.Name)
		fmt.Fprintf(&drop, "-X %s\n", c.Name)
		for _, rule := range now.rules {
			if from, _, _ := strings.Cut(rule, " "); leadsTo(rule, c.Name) && !s.has(table, from) {
				fmt.Fprintf(&unlink, "-D %s\n", rule)
			}
		}
	}
	return flush.String() + unlink.String() + drop.String()
}

// has reports whether a chain belongs to the set.
func (s Set) has(table, name string) bool {
	return slices.ContainsFunc(s.Chains, func(c Chain) bool { return c.Table == table && c.Name == name })
}

// placed plans chains and jumps. A correct jump stays where it is. Duplicates, and jumps with another match, are replaced by one.
func (s Set) placed(table string, now listing) string {
	var b strings.Builder
	b.WriteString(s.content(table))
	for _, j := range s.Jumps {
		if j.Table != table {
			continue
		}
		want := strings.Join(append(append([]string{j.From}, j.Match...), "-j", j.To), " ")
		var have []string
		for _, rule := range now.rules {
			if strings.HasPrefix(rule, j.From+" ") && leadsTo(rule, j.To) {
				have = append(have, rule)
			}
		}
		if len(have) == 1 && have[0] == want {
			continue
		}
		for _, rule := range have {
			fmt.Fprintf(&b, "-D %s\n", rule)
		}
		fmt.Fprintf(&b, "%s %s\n", j.At, want)
	}
	return b.String()
}
