// monopod runs Kubernetes Pods on this machine, from files and URLs, on containerd.
//
// This package owns the configuration, the command line, and App, which wires the other packages together and
// starts their goroutines. It must not decide anything about pods.
package main

import (
	"context"
	"os"
)

func main() { os.Exit(execute(newProgram(), os.Args[1:])) }

// execute runs the program until it ends or a signal ends it: the first one asks it to stop, the second one
// does not wait for that.
func execute(p *program, args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p.signals = newInterrupts(stop)
	go p.signals.run()
	return p.run(ctx, args)
}
