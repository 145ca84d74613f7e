// Package streams is what a process in a container is connected to: the words that those who serve connections and
// those who run containers have in common. It has no code of its own.
package streams

import "io"

// Streams are the standard streams of a remote client of a process. A nil stream is not connected.
type Streams struct {
	// Stdin may be read from until its end, even after the call that it was given to has returned.
	Stdin io.Reader
	// The process blocks while Stdout and Stderr accept nothing. Their errors mean that the client is gone. With a terminal, all output is
	// written to Stdout.
	Stdout, Stderr io.Writer
	// TTY gives the process a terminal.
	TTY bool
	// Resize has the sizes of the terminal, the first one at once. It may be closed.
	Resize <-chan Size
}

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint16 }
