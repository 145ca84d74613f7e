// Package streams is what a process in a container is connected to: the words that those who serve connections and
// those who run containers have in common. It has no code of its own.
package streams

import "io"

// Streams are the ends of a process that somebody far away holds. What is nil is not connected.
type Streams struct {
	// Stdin may be read from until its end, even after the call that it was given to has returned.
	Stdin io.Reader
	// Stdout and Stderr hold the process up while they take nothing. An error of theirs means that nobody is there any more.
	// With a terminal all comes by Stdout.
	Stdout, Stderr io.Writer
	// TTY gives the process a terminal.
	TTY bool
	// Resize has the sizes of the terminal, the first one at once. It may be closed.
	Resize <-chan Size
}

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint16 }
