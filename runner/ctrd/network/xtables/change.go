package xtables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnlisted says that the tool cannot even list the rules.
var ErrUnlisted = errors.New("the rules cannot be listed")

// maxTries bounds how often a change is planned again because others changed the rules in between.
const maxTries = 10

// Apply puts chains and jumps in place, whatever is there of them, each jump once.
func (s Set) Apply(ctx context.Context) error { return s.change(ctx, s.placed) }

// Remove takes away the chains with all that leads to them, whoever made it. It is idempotent.
func (s Set) Remove(ctx context.Context) error { return s.change(ctx, s.removed) }

// change reads the rules and makes of them what plan says, in one transaction. It fails as a whole when others, perhaps
// another program, have changed the rules since they were read: then it is planned again from what they are now.
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
		if input.String() == last { // nobody else is to blame
			return failed
		}
		last = input.String()
		if _, failed = run(ctx, last, s.Tool+"-restore", "-w", "5", "--noflush"); failed == nil {
			return nil
		}
	}
	return failed
}

// tables are those that the chains are in.
func (s Set) tables() []string {
	var out []string
	for _, c := range s.Chains {
		if !slices.Contains(out, c.Table) {
			out = append(out, c.Table)
		}
	}
	return out
}

// listing is a table as the tool prints it.
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

// leadsTo reports whether a rule jumps to a chain; nothing follows the target when it is a chain.
func leadsTo(rule, chain string) bool {
	return strings.HasSuffix(rule, " -j "+chain) || strings.HasSuffix(rule, " -g "+chain)
}

// removed is how the chains go. They are flushed first, for they may lead to each other.
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

// has says whether a chain is ours.
func (s Set) has(table, name string) bool {
	return slices.ContainsFunc(s.Chains, func(c Chain) bool { return c.Table == table && c.Name == name })
}

// placed is how chains and jumps get as they should be. A jump that is right stays where it is; two of them, or those
// of an earlier version with another match, are replaced by one.
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
