package run

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

func TestTheImagesOfRevisionsArePinnedForAsLongAsTheseAreKept(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	last := func(want int) (pins []string) {
		t.Helper()
		d.Eventually(fmt.Sprintf("%d images are pinned", want), func() error {
			calls := d.Pins.Calls()
			if len(calls) > 0 {
				pins = strings.Fields(calls[len(calls)-1])
			}
			if len(calls) == 0 || len(pins) != want {
				return fmt.Errorf("%q", calls)
			}
			return nil
		})
		return pins
	}
	last(0)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	first := last(1)
	d.Put("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1))
	both := last(2)
	if !slices.Contains(both, first[0]) {
		t.Errorf("%q, then %q", first, both)
	}
	d.Eventually("the revisions are stored", func() error {
		b, err := os.ReadFile(d.Path("root", "revisions", "default", "web", "state"))
		if err == nil && (!strings.Contains(string(b), both[0]) || !strings.Contains(string(b), both[1])) {
			err = errors.New("not yet")
		}
		return err
	})
	calls := len(d.Pins.Calls())
	d.End()
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	d.Eventually("the next agent has told", func() error {
		if len(d.Pins.Calls()) == calls {
			return errors.New("it has not")
		}
		return nil
	})
	if got := d.Pins.Calls()[calls:]; !slices.Equal(got, []string{strings.Join(both, " ")}) {
		t.Errorf("after a restart it tells %q", got)
	}
	if err := os.Remove(d.Path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	last(0)
}
