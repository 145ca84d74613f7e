package embed

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestABundleThatIsGoneIsNoWarning: containerd asks about a shim whose container it is just removing.
func TestABundleThatIsGoneIsNoWarning(t *testing.T) {
	var log strings.Builder
	b := bridge{slog.New(slog.NewTextHandler(&log, nil))}
	const message = "failed to clean up after shim disconnected"
	for text, logged := range map[string]bool{"getwd: no such file or directory: exit status 1": false, "the runtime hangs": true} {
		log.Reset()
		e := &logrus.Entry{Level: logrus.WarnLevel, Message: message, Data: logrus.Fields{logrus.ErrorKey: errors.New(text)}}
		if err := b.Fire(e); err != nil || strings.Contains(log.String(), message) != logged {
			t.Errorf("%s: %v %q", text, err, log.String())
		}
	}
}
