package run

import (
	"errors"
	"strings"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// TestARunTellsWhatItWaitsForAndAnnouncesTheGracePeriod: each step of the runtime waits until it has been shown.
func TestARunTellsWhatItWaitsForAndAnnouncesTheGracePeriod(t *testing.T) {
	t.Parallel()
	for name, quiet := range map[string]bool{"shown": false, "quiet": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRunBench(t)
			errs := &daemontest.SyncBuffer{}
			shown := func(text string) error {
				for deadline := time.Now().Add(daemontest.Patience); !quiet && !strings.Contains(errs.String(), text); time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						return errors.New("not shown: " + text)
					}
				}
				return nil
			}
			b.fail = func(_ manifests.Key, a runner.Action) error {
				switch a.Kind {
				case runner.EnsureImage:
					return shown("pod default/web: ")
				case runner.StopContainer:
					return shown("pod default/web: removing, with a grace period of up to 30s (--grace shortens it)\n")
				}
				return nil
			}
			p, _, _ := b.prog()
			p.Stderr, p.ProgressAfter = errs, time.Millisecond
			args := []string{"once", "--config", b.Path("config.yaml"), "--min-ready", "0s", "--rm", "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))}
			if quiet {
				args = append(args, "-q")
			}
			if code := commands(t.Context(), p, args); code != 0 || quiet && errs.String() != "" {
				t.Errorf("code %d: %s", code, errs)
			}
			b.nothingLeft()
		})
	}
}
