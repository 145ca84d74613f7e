package main

import (
	"monopod/internal/daemon"
	"monopod/internal/program"
)

// Commands is the tree of all commands.
type Commands struct {
	*program.Program
	// Machine is for the commands that run pods.
	Machine daemon.Machine
}
