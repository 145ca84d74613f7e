package daemon

import (
	"fmt"
	"strings"
	"testing"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests"
)

// TestTheLogOfTheDaemonCannotBeForged: any client can cause text in the log.
func TestTheLogOfTheDaemonCannotBeForged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		log := NewLogger(&b, config.Logging{Level: "info", Format: format})
		log.With(daemontest.Evil, daemontest.Evil).WithGroup(daemontest.Evil).Info(daemontest.Evil, daemontest.Evil, daemontest.Evil, "err", fmt.Errorf("%s", daemontest.Evil), "key", manifests.Key{Namespace: daemontest.Evil, Name: daemontest.Evil}, "list", []string{daemontest.Evil}, "bytes", []byte(daemontest.Evil), "any", daemontest.HostileTexts[model.Input]())
		if bad := daemontest.ActedOn(b.String()); bad != "" || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s: %s in %q", format, bad, b.String())
		}
	}
}
