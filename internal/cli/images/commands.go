// Package images holds the commands about images: list, pull and remove.
//
// It must not talk to a registry: the daemon does. Its goroutines end with the command.
package images

import "monopod/internal/program"

// Commands are the commands of this package.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
