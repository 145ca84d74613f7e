package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/podstatus"
)

// imageKeeper is Images with a known set of pods, in a bubble of synctest.
type imageKeeper struct {
	*Images
	t     *testing.T
	fake  *daemontest.FakeImages
	pods  *knownPods
	ready chan struct{}

	mu   sync.Mutex
	told []string // guarded by mu
}

// knownPods implements Pods.
type knownPods struct {
	mu sync.Mutex
	// desired is nil until the sources have been read.
	desired  *model.Desired
	observed bool
}

func (p *knownPods) Current() (model.Desired, []podstatus.Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.desired == nil {
		return model.Desired{}, nil, false
	}
	return *p.desired, nil, p.observed
}

func (p *knownPods) TroubleText() string { return "no runtime" }

// lose is the end of the runtime.
func (p *knownPods) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observed = false
}

func (c *imageKeeper) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

func newKeeper(t *testing.T, policy gc.Policy) *imageKeeper {
	t.Helper()
	c := &imageKeeper{t: t, fake: daemontest.NewFakeImages(), ready: make(chan struct{})}
	c.pods = &knownPods{observed: true}
	c.Images = &Images{Policy: policy, Pods: c.pods, Pins: NewPins(slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler), Record: func(kind, reason, message string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.told = append(c.told, kind+" "+reason+": "+message)
	}}
	return c
}

// follows starts collecting until the test ends.
func (c *imageKeeper) follows() {
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Follow(ctx, c.fake, c.ready) }()
	c.t.Cleanup(func() { cancel(); <-ended })
}

// publish makes these documents all that is wanted, of sources that have been read.
func (c *imageKeeper) publish(reports []model.Input, docs string) {
	c.t.Helper()
	content, err := decode.All("/m/a.yaml", []byte(docs), decode.Options{Source: "file"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.pods.mu.Lock()
	defer c.pods.mu.Unlock()
	c.pods.desired = &model.Desired{
		Pods: content.Pods, Workloads: content.Workloads, Order: []string{"file", "http"}, Reported: map[string]bool{"file": true}, Inputs: reports,
	}
}

func (c *imageKeeper) has(want ...string) {
	c.t.Helper()
	synctest.Wait()
	got := c.fake.Digests()
	if !slices.Equal(got, want) {
		c.t.Errorf("there are %v, want %v", got, want)
	}
}

func (c *imageKeeper) add(digest string, size int64) {
	c.fake.Mu.Lock()
	defer c.fake.Mu.Unlock()
	c.fake.All = append(c.fake.All, ctrd.ImageUse{Info: image.Info{Digest: "sha256:" + digest, Size: size, Own: size, FirstSeen: time.Now().Add(-time.Hour)}})
}

func (c *imageKeeper) full(percent int64) {
	c.fake.Mu.Lock()
	defer c.fake.Mu.Unlock()
	c.fake.Space = gc.Disk{Capacity: 100, Available: 100 - percent}
}

func (c *imageKeeper) change() { c.fake.Changes <- struct{}{} }

// unreachable is the state of a source that has never answered.
func unreachable() []model.Input {
	return []model.Input{{Source: "http", Input: "http://x", State: model.InputUnreachable}}
}

func TestImagesGoWhenTheDiskIsFullAndItIsKnownWhoNeedsWhich(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute})
		for _, d := range []string{"pod", "cron", "volume", "mended", "revision", "used", "spare"} {
			c.add(d, 5)
		}
		c.fake.All[5].Pods = []string{"default/gone"}
		c.full(100)
		c.follows()
		time.Sleep(time.Hour)
		synctest.Wait()
		all := []string{"sha256:cron", "sha256:mended", "sha256:pod", "sha256:revision", "sha256:spare", "sha256:used", "sha256:volume"}
		c.has(all...)

		broken := filepath.Join(t.TempDir(), "broken.yaml")
		testfiles.Write(t, broken, "kind: Pod\nspec:\n  containers:\n  - image: \"mended\"\n   name: c\n")
		docs := fmt.Sprintf(daemontest.PodOfImage, "a", "pod") + "  volumes: [{name: v, image: {reference: volume}}]\n---\n" +
			"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec:\n  schedule: \"0 3 * * *\"\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: cron}]}}}}\n"
		refused := model.Input{Source: "file", Input: broken, State: model.InputRefused}
		steps := []func(){
			func() { close(c.ready) },
			func() { c.publish([]model.Input{refused}, docs) },
			func() { c.Pins.Want([]string{"sha256:revision"}) },
		}
		for _, step := range steps { // none of them is enough
			step()
			time.Sleep(time.Hour)
			c.has(all...)
		}
		c.publish(append(unreachable(), refused), docs)
		time.Sleep(collectEvery)
		c.has("sha256:cron", "sha256:mended", "sha256:pod", "sha256:revision", "sha256:used", "sha256:volume")
		if want := "Warning FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (95% of 100 B used). Failed to free sufficient space by deleting unused images (freed 5 bytes). "; len(c.said()) != 1 || !strings.HasPrefix(c.said()[0], want) {
			t.Errorf("told: %q", c.said())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(c.said()) != 1 {
			t.Errorf("it is told again: %q", c.said())
		}
		c.full(50)
		time.Sleep(collectEvery)
		c.full(99)
		time.Sleep(collectEvery)
		synctest.Wait()
		if len(c.said()) != 2 {
			t.Errorf("the second time is not told: %q", c.said())
		}
	})
}

// The limit of images keeps the disk from what has unused images removed otherwise.
func TestUnusedImagesGoWhenTheDiskWasTooFullForAnother(t *testing.T) {
	for _, policy := range []gc.Policy{{High: 85, Low: 80, MinAge: 2 * time.Minute}, {High: 100, Low: 80}} {
		synctest.Test(t, func(t *testing.T) {
			c := newKeeper(t, policy)
			for _, d := range []string{"a", "b", "c", "pod"} {
				c.add(d, 5)
			}
			c.full(84)
			c.publish(nil, fmt.Sprintf(daemontest.PodOfImage, "a", "pod"))
			c.pods.mu.Lock()
			c.pods.desired.Reported["http"] = true
			c.pods.mu.Unlock()
			c.Pins.Want(nil)
			close(c.ready)
			c.follows()
			time.Sleep(time.Hour)
			c.has("sha256:a", "sha256:b", "sha256:c", "sha256:pod")
			c.fake.Want.Store(8)
			c.change()
			time.Sleep(collectSettle)
			c.has("sha256:c", "sha256:pod")
			time.Sleep(time.Hour)
			c.has("sha256:c", "sha256:pod")
		})
	}
}

func TestNothingIsCollectedWhenThePodsCannotBeSeenAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 85, Low: 80})
		c.add("kept", 5) // of a pod that is known to the pool alone
		c.full(99)
		c.publish(unreachable(), fmt.Sprintf(daemontest.PodOfImage, "a", "pod"))
		c.Pins.Want(nil)
		c.Use(c.fake, true)
		synctest.Wait()
		if _, decided := c.needs(); !decided {
			t.Fatal("it is not known who needs which")
		}
		c.fake.Before = c.pods.lose
		if freed, err := c.ReclaimImages(t.Context(), 5); freed != 0 || !errors.Is(err, errUndecided) {
			t.Errorf("%d, %v", freed, err)
		}
		c.has("sha256:kept")
	})
}

func TestImagesAreLookedAtSoonAfterAChangeAndWhenOneGetsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 85, Low: 80, MinAge: time.Minute, MaxAge: 2 * time.Hour})
		c.publish(unreachable(), fmt.Sprintf(daemontest.PodOfImage, "a", "pod"))
		c.Pins.Want(nil)
		close(c.ready)
		c.follows()
		c.add("pod", 5)
		time.Sleep(collectSettle + time.Second)
		c.has("sha256:pod")
		c.add("old", 5) // an hour ago
		c.full(84)
		c.change()
		time.Sleep(collectSettle)
		c.has("sha256:old", "sha256:pod")
		time.Sleep(time.Hour - 2*collectSettle)
		c.has("sha256:old", "sha256:pod")
		time.Sleep(2 * collectSettle)
		c.has("sha256:pod")
		c.add("new", 20)
		c.full(90)
		c.change()
		time.Sleep(collectSettle)
		c.has("sha256:pod")
		if len(c.said()) != 0 {
			t.Errorf("told: %q", c.said())
		}
	})
}

func TestWhatFailsWhileImagesAreCollectedIsToldFromTheSecondTimeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 85, Low: 80})
		c.publish(unreachable(), "# nothing\n")
		c.Pins.Want(nil)
		close(c.ready)
		c.fake.Err = errors.New("bolt is stuck")
		c.follows()
		time.Sleep(collectEvery)
		synctest.Wait()
		if len(c.said()) != 0 {
			t.Errorf("told at once: %q", c.said())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []string{"Warning ImageGCFailed: bolt is stuck"}; !slices.Equal(c.said(), want) {
			t.Errorf("told %q, want %q", c.told, want)
		}
		c.fake.Mu.Lock()
		c.fake.Err = image.ErrNoCapacity
		c.fake.Mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(c.said()) != 2 || c.said()[1] != "Warning InvalidDiskCapacity: invalid capacity 0 on image filesystem" {
			t.Errorf("told %q", c.said())
		}
	})
}

func TestReclaimImagesFreesWhatIsAskedForAndNothingThatIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 100, Low: 80})
		for _, d := range []string{"a", "b", "pod"} {
			c.add(d, 5)
		}
		if _, err := c.ReclaimImages(t.Context(), 5); !errors.Is(err, node.ErrStarting) {
			t.Errorf("without a runtime: %v", err)
		}
		c.publish(unreachable(), fmt.Sprintf(daemontest.PodOfImage, "p", "pod"))
		c.follows()
		synctest.Wait()
		if _, err := c.ReclaimImages(t.Context(), 5); !errors.Is(err, errUndecided) {
			t.Errorf("before preload archives are read: %v", err)
		}
		close(c.ready)
		c.Pins.Want(nil)
		synctest.Wait()
		if freed, err := c.ReclaimImages(t.Context(), 0); freed != 0 || err != nil {
			t.Errorf("nothing: %d, %v", freed, err)
		}
		if freed, err := c.ReclaimImages(t.Context(), 3); freed != 5 || err != nil {
			t.Errorf("3 bytes: %d, %v", freed, err)
		}
		c.has("sha256:b", "sha256:pod")
		if freed, err := c.ReclaimImages(t.Context(), 1000); freed != 5 || err != nil {
			t.Errorf("1000 bytes: %d, %v", freed, err)
		}
		c.has("sha256:pod")
	})
}
