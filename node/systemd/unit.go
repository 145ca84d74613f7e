package systemd

import (
	_ "embed" // for the unit
	"strings"
)

// UnitName is the name of the service.
const UnitName = "monopod.service"

//go:embed monopod.service
var unit string

// defaultStart is how the unit starts monopod.
const defaultStart = "ExecStart=/usr/local/bin/monopod run"

// Unit is the unit that runs a program, with further arguments of `run`.
func Unit(program string, args ...string) string {
	return strings.Replace(unit, defaultStart, start(program, args), 1)
}

// start is the line of a unit that starts a program.
func start(program string, args []string) string {
	words := []string{quoted(program), "run"}
	for _, a := range args {
		words = append(words, quoted(a))
	}
	return "ExecStart=" + strings.Join(words, " ")
}

// Starts reports whether a unit starts a program with these arguments of `run`, and no others.
func Starts(text, program string, args ...string) bool {
	want := start(program, args)
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == want {
			return true
		}
	}
	return false
}

// quoted is a word of a command line of systemd.
func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(s)
	if s == "" || strings.ContainsAny(s, " \t'\";") {
		return `"` + s + `"`
	}
	return s
}

// IsOurs reports whether a unit was written by monopod.
func IsOurs(text string) bool {
	return strings.HasPrefix(text, strings.SplitAfter(unit, "\n")[0])
}

// Program is the program that a unit of Unit starts; empty: it does not say.
func Program(text string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			return firstWord(rest)
		}
	}
	return ""
}

// firstWord undoes quoted.
func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if rest, ok := strings.CutPrefix(s, `"`); ok {
		end := strings.Index(strings.NewReplacer(`\\`, "..", `\"`, "..").Replace(rest), `"`)
		if end < 0 {
			return ""
		}
		word = rest[:end]
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, "%%", "%", "$$", "$").Replace(word)
}

// DropIn is the name of the file that gives pods the time they need at a shutdown, in a directory for drop-ins of logind.
const DropIn = "99-monopod.conf"
