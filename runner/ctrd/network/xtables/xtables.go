// Package xtables maintains chains in iptables and ip6tables, with either kernel interface of those tools.
//
// It owns no state: the rules are in the kernel. It must not know what they are for.
package xtables

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// Tool returns the program for the family of an address.
func Tool(a netip.Addr) string {
	if a.Is6() {
		return "ip6tables"
	}
	return "iptables"
}

// Usable returns nil if the tool works on this machine.
func Usable(ctx context.Context, tool, table string) error {
	_, err := run(ctx, "", tool, "-w", "5", "-t", table, "-S")
	return err
}

// Legacy reports whether the tool uses the old kernel interface, which does not report changes.
func Legacy(ctx context.Context, tool string) bool {
	out, err := run(ctx, "", tool, "--version")
	return err == nil && !strings.Contains(out, "nf_tables")
}

// Chain is a chain with all its rules.
type Chain struct {
	Table, Name string
	// Rules are its rules without "-A NAME".
	Rules []string
}

// Position is the position of a jump in a built-in chain.
type Position string

// The positions of a jump.
const (
	First Position = "-I"
	Last  Position = "-A"
)

// Jump is a jump from a built-in chain to a Chain.
type Jump struct {
	Table, From, To string
	At              Position
	Match           []string
}

func (j Jump) args(command string) []string {
	args := append([]string{"-w", "5", "-t", j.Table, command, j.From}, j.Match...)
	return append(args, "-j", j.To)
}

// Set is the chains and jumps of one tool for one purpose.
type Set struct {
	Tool   string
	Chains []Chain
	Jumps  []Jump
}

// Present reports whether all chains have the expected number of rules, and all jumps exist.
func (s Set) Present(ctx context.Context) bool {
	for _, c := range s.Chains {
		out, err := run(ctx, "", s.Tool, "-w", "5", "-t", c.Table, "-S", c.Name)
		if err != nil || strings.Count(out, "-A "+c.Name+" ") != len(c.Rules) {
			return false
		}
	}
	for _, j := range s.Jumps {
		if _, err := run(ctx, "", s.Tool, j.args("-C")...); err != nil {
			return false
		}
	}
	return true
}

// Made reports whether all chains and jumps exist, regardless of the rules.
func (s Set) Made(ctx context.Context) bool {
	for _, c := range s.Chains {
		if _, err := run(ctx, "", s.Tool, "-w", "5", "-t", c.Table, "-S", c.Name); err != nil {
			return false
		}
	}
	return Set{Tool: s.Tool, Jumps: s.Jumps}.Present(ctx)
}

// Restore returns the input of iptables-restore --noflush that creates or refills the chains.
func (s Set) Restore() string {
	var b strings.Builder
	for _, t := range s.tables() {
		fmt.Fprintf(&b, "*%s\n%sCOMMIT\n", t, s.content(t))
	}
	return b.String()
}

// content returns the lines that create or refill the chains of a table.
func (s Set) content(table string) string {
	var b strings.Builder
	for _, c := range s.Chains {
		if c.Table != table {
			continue
		}
		fmt.Fprintf(&b, ":%s - [0:0]\n", c.Name)
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "-A %s %s\n", c.Name, r)
		}
	}
	return b.String()
}

// Refill replaces the rules of the chains, and creates them if necessary. Jumps are not changed.
func (s Set) Refill(ctx context.Context) error {
	_, err := run(ctx, s.Restore(), s.Tool+"-restore", "-w", "5", "--noflush")
	return err
}

// run runs a tool. Its error contains the output of the tool.
func run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
