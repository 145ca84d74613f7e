package shim

import (
	"io"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// setLogger sends warnings to containerd through the FIFO "log" in the working directory. containerd's own function would block until the
// FIFO has a reader, and pass on harmless messages.
func setLogger() {
	log.L.Logger.SetLevel(logrus.WarnLevel)
	log.L.Logger.SetFormatter(quietFormatter{&logrus.TextFormatter{DisableColors: true}})
	log.L.Logger.SetOutput(io.Discard)
	// Non-blocking: lines are dropped while there is no reader.
	fd, err := unix.Open("log", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		log.L.Logger.SetOutput(dropper{fdWriter(fd)})
	}
}

// fdWriter writes to a descriptor; unlike os.File, it returns EAGAIN if a write would block.
type fdWriter int

// Write implements io.Writer.
func (fd fdWriter) Write(p []byte) (int, error) { return unix.Write(int(fd), p) }

// dropper ignores write errors, which logrus would print to stderr.
type dropper struct{ io.Writer }

// Write implements io.Writer.
func (d dropper) Write(p []byte) (int, error) {
	_, _ = d.Writer.Write(p)
	return len(p), nil
}

// quietFormatter drops messages that are known to be harmless, see noise.
type quietFormatter struct {
	logrus.Formatter
}

// Format implements logrus.Formatter.
func (f quietFormatter) Format(e *logrus.Entry) ([]byte, error) {
	if noise(e.Message) {
		return nil, nil
	}
	return f.Formatter.Format(e)
}
