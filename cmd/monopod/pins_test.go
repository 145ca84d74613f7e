package main

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
	d.start()
	last := func(want int) (pins []string) {
		t.Helper()
		d.eventually(fmt.Sprintf("%d images are pinned", want), func() error {
			calls := d.pins.Calls()
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
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	first := last(1)
	d.put("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1))
	both := last(2)
	if !slices.Contains(both, first[0]) {
		t.Errorf("%q, then %q", first, both)
	}
	d.eventually("the revisions are stored", func() error {
		b, err := os.ReadFile(d.path("root", "revisions", "default", "web", "state"))
		if err == nil && (!strings.Contains(string(b), both[0]) || !strings.Contains(string(b), both[1])) {
			err = errors.New("not yet")
		}
		return err
	})
	calls := len(d.pins.Calls())
	d.end()
	d.start()
	d.shows("Running", "get", "pod", "web")
	d.eventually("the next agent has told", func() error {
		if len(d.pins.Calls()) == calls {
			return errors.New("it has not")
		}
		return nil
	})
	if got := d.pins.Calls()[calls:]; !slices.Equal(got, []string{strings.Join(both, " ")}) {
		t.Errorf("after a restart it tells %q", got)
	}
	if err := os.Remove(d.path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	last(0)
}
