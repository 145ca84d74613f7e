package rollout

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/boottime"
	"monopod/internal/model"
	"monopod/manifests"
)

// pinning returns a Controller and the digests that it passes to Config.Images.
func pinning(t *testing.T, dir string) (c *Controller, reported *[]string, stop func()) {
	t.Helper()
	reported = &[]string{}
	began := time.Now()
	c = New(Config{
		Store: NewStore(dir), Log: slog.New(slog.DiscardHandler),
		Clock: func() boottime.Moment {
			return boottime.Moment{Boot: "b", Since: time.Hour + time.Since(began), Wall: time.Now()}
		},
		Images: func(digests []string) { *reported = append(*reported, strings.Join(digests, " ")) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	synctest.Wait()
	return c, reported, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestImagesOfKeptRevisionsAreReported(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, reported, stop := pinning(t, dir)
		gone := false
		x, y := &actor{name: "x"}, &actor{name: "y"}
		run := func(digest string, actors ...*actor) {
			var pods []*manifests.Pod
			for _, a := range actors {
				pods = append(pods, a.wanted)
			}
			c.Update(model.Desired{Pods: pods, Reported: map[string]bool{"": gone, "file": gone}}, nil)
			synctest.Wait()
			for _, p := range pods {
				c.Observe(p.Key(), &Observed{Recorded: p, Seen: Seen{Ready: true, Images: map[string]string{"c": digest, "volume/v": "v"}}})
			}
			synctest.Wait()
		}
		x.write(good)
		run("0", x)
		y.write(good)
		run("0", x, y) // the same images: no call
		x.write(good)
		run("1", x, y)
		run("9", x, y) // not a new revision
		if want := []string{"", "0 v", "0 1 v"}; !slices.Equal(*reported, want) {
			t.Fatalf("told %q, want %q", *reported, want)
		}
		old, err := c.State(x.wanted.Key()).Revision(1).Pod(x.wanted.Origin)
		if err != nil || old.Images["c"] != "0" || old.Images["volume/v"] != "v" {
			t.Errorf("gone back to: %+v, %v", old, err)
		}
		gone = true
		run("0", x)
		for i := range Kept + 1 { // the first ones of x are dropped
			x.write(good)
			run(string(rune('a'+i)), x)
		}
		if got, want := (*reported)[len(*reported)-1], "b c d e f g h i j k v"; got != want {
			t.Errorf("at last %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		stop()

		c, reported, stop = pinning(t, dir)
		if want := []string{"b c d e f g h i j k v"}; !slices.Equal(*reported, want) {
			t.Errorf("after a restart: %q, want %q", *reported, want)
		}
		run("", nil...)
		time.Sleep(time.Minute)
		if got := (*reported)[len(*reported)-1]; got != "" || len(*reported) != 2 {
			t.Errorf("with all pods gone: %q", *reported)
		}
		stop()
	})
}
