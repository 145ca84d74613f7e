// Package attach holds the commands that connect a user to a container: exec, attach, debug, port-forward, cp and logs.
//
// It must not decide which pods run. Its goroutines end with the command.
package attach

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
