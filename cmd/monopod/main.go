// monopod runs Kubernetes Pods on this machine, from files and URLs, on containerd.
//
// This package owns the tree of commands: it chooses the one that the command line names. What a command does is in the packages
// internal/cli, run, setup and daemon. It must not decide anything about pods.
package main

import (
	"context"
	"os"

	"monopod/internal/program"
)

func main() { os.Exit(execute(newCommands(), os.Args[1:])) }

// execute runs the program until it ends or a signal ends it: the first one asks it to stop, the second one
// does not wait for that.
func execute(c Commands, args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c.Signals = program.NewInterrupts(stop)
	go c.Signals.Run()
	return c.run(ctx, args)
}
