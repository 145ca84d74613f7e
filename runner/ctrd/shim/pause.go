package shim

import (
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// IsPause reports whether this process was started to be process 1 of a shared process namespace.
func IsPause() bool { return filepath.Base(os.Args[0]) == "pause" }

// Pause is the main function of that process: it waits for a signal to exit. The kernel reaps orphaned children, because this process
// ignores SIGCHLD.
func Pause() {
	signal.Ignore(unix.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM, unix.SIGINT)
	<-end
}
