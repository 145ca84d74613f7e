//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"monopod/e2e/testimages"
)

// hostilePull is an image in a registry, with the expected output of `monopod why` for a pod that uses it.
type hostilePull struct {
	name, want string
	image      v1.Image
	// onlyLarge: skipped in CI, where similar cases run.
	onlyLarge bool
}

func hostilePulls(t *testing.T) []hostilePull {
	t.Helper()
	small := []testimages.File{{Path: "bin", Mode: 0o755}}
	with := func(kind types.MediaType, layer []byte) v1.Image {
		t.Helper()
		img, err := mutate.AppendLayers(testimages.FromFiles(t, small, nil), static.NewLayer(layer, kind))
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	env := func(c *v1.Config) { c.Env = slices.Repeat([]string{"A=B"}, 1_000_000) }
	return []hostilePull{
		{name: "bomb", image: with(types.DockerLayer, gzipped(t, oneFile("bin/sh"))), want: tooFull},
		{name: "bomb-zstd", image: with(types.OCILayerZStd, zstdCompressed(t, oneFile("bin/sh"))), want: tooFull, onlyLarge: true},
		{name: "bomb-hole", image: with(types.OCIUncompressedLayer, hole("bin/sh", 1<<40)), want: tooFull, onlyLarge: true},
		{name: "bomb-inodes", image: with(types.DockerLayer, gzipped(t, manyFiles(80_000))), want: tooFull, onlyLarge: true},
		{name: "window", image: with(types.OCILayerZStd, zstdWindow(t, 256<<20)), want: "compress them again", onlyLarge: true},
		{name: "config", image: testimages.FromFiles(t, small, env), want: "values"},
	}
}

// TestAttackPulls: an image of a registry that expands to more than the disk holds, or needs too much memory, is refused with the reason.
// The agent stays within its memory limit, unpacked data is removed, and no pod is evicted.
func TestAttackPulls(t *testing.T) {
	a, root := newOnDisk(t)
	registry := testimages.Registry(t)
	for _, h := range hostilePulls(t) {
		if h.onlyLarge && !large() {
			continue
		}
		testimages.Push(t, registry+"/"+h.name+":1", h.image)
		a.survives("the pulled image "+h.name, func() {
			before, least := free(t, root), leastFree(t, root)
			a.put(h.name, podOf(h.name, "image: '"+registry+"/"+h.name+":1'", ""))
			a.eventually("why says what is wrong with "+h.name, func() error {
				out, err := a.run("why", h.name)
				if err == nil && !strings.Contains(out, h.want) {
					err = fmt.Errorf("%q is not in\n%.2000s", h.want, out)
				}
				return err
			})
			if n := least(); n < evictedBelow {
				t.Errorf("%s: %d MiB of the disk were free; pods are evicted below %d", h.name, n, evictedBelow)
			}
			a.drop(h.name)
			a.gone(h.name)
			a.eventually("what "+h.name+" took of the disk is free", func() error {
				if now := free(t, root); now < before-8 {
					return fmt.Errorf("%d MiB are free of %d", now, before)
				}
				return nil
			})
		})
	}
	for _, bad := range []string{"Evicted", "EvictionThresholdMet"} {
		if a.log.contains(bad) {
			t.Errorf("the log has %q\n%s", bad, a.log.tail())
		}
	}
}
