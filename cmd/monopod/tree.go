package main

import "monopod/internal/program"

// Commands is the tree of all commands.
type Commands struct{ *program.Program }

// NewCommands returns the commands of a program.
func NewCommands(p *program.Program) Commands { return Commands{p} }
