// Package change holds the commands that request changes from a daemon: apply, delete, scale, restart, drain, cordon, and wait.
//
// It must not touch pods itself. Its goroutines end with the command.
package change

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
