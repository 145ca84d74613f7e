package shim

import (
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// IsPause reports whether this process was started to be process 1 of a shared process namespace.
func IsPause() bool { return filepath.Base(os.Args[0]) == "pause" }

// Pause is that process: it does nothing until it is told to end. Whatever is left to it when it ends is collected
// by the kernel, which does so for parents that ignore the signal.
func Pause() {
	signal.Ignore(unix.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM, unix.SIGINT)
	<-end
}
