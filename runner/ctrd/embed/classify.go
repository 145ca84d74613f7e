package embed

import (
	"strings"

	"github.com/sirupsen/logrus"
)

// harmless are warnings about this machine that need no action.
func harmless(msg string) bool { return msg == "failed check for fsverity support" }

// noise are messages that containerd logs at the end of each container, without a meaning for users.
func noise(e *logrus.Entry) bool {
	switch {
	case strings.HasPrefix(e.Message, "copy shim log"):
		return true // the FIFO is closed under the copying goroutine
	case strings.HasPrefix(e.Message, "cgroups: epoll wait"):
		return true
	case e.Message == "failed to delete dead shim" || e.Message == "failed to clean up after shim disconnected":
		err, _ := e.Data[logrus.ErrorKey].(error)
		said, _ := e.Data["stderr"].(string)
		return err != nil && strings.Contains(err.Error()+said, "getwd: no such file or directory") // its bundle has been removed: nothing is left
	}
	return false
}
