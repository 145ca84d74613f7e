// Package describe holds the commands that explain one pod or object: describe, why and events.
//
// It must not change anything. Its goroutines end with the command.
package describe

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
