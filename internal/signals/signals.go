// Package signals deals with signals that a program was started to ignore, as by nohup or as a background job of a script.
//
// It must not handle any other signal: those belong to the program. It starts no goroutines.
package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// Adopt has the programs that this one starts begin with the default action for SIGHUP and SIGINT, also when this one was started to ignore them: an ignored
// signal is inherited by each program that is started, and a container or a shell script could never be interrupted. It returns the signals that were ignored.
// This program continues to ignore them unless it asks for them with signal.Notify. Go handles all other signals itself, and its children never inherit those.
func Adopt() []os.Signal {
	var ignored []os.Signal
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			ignored = append(ignored, s)
			signal.Notify(make(chan os.Signal, 1), s) // a handler, which does nothing, is not inherited
		}
	}
	return ignored
}
