// Package lookup finds the objects and pods that the arguments of a command refer to.
//
// It must not change them. It has no goroutines.
package lookup

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
