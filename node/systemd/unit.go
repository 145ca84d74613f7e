package systemd

import (
	_ "embed" // for the unit
	"strings"
)

// UnitName is the name of the service.
const UnitName = "monopod.service"

//go:embed monopod.service
var unit string //nolint:gochecknoglobals // what is embedded must be one

// defaultStart is how the unit starts monopod.
const defaultStart = "ExecStart=/usr/local/bin/monopod run"

// Unit is the unit that runs a program, with further arguments of `run`.
func Unit(program string, args ...string) string {
	words := []string{quoted(program), "run"}
	for _, a := range args {
		words = append(words, quoted(a))
	}
	return strings.Replace(unit, defaultStart, "ExecStart="+strings.Join(words, " "), 1)
}

// quoted is a word of a command line of systemd.
func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(s)
	if s == "" || strings.ContainsAny(s, " \t'\";") {
		return `"` + s + `"`
	}
	return s
}

// IsOurs says that a unit is one of ours.
func IsOurs(text string) bool {
	return strings.HasPrefix(text, strings.SplitAfter(unit, "\n")[0])
}
