package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"monopod/internal/testfiles"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod/manifests"
	"monopod/node"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/runtimetest"
	"monopod/watcher"
)

// imageKeeper is an images with a pool that has looked at its pods, in a bubble of synctest.
type imageKeeper struct {
	*images
	t     *testing.T
	fake  *fakeImages
	ready chan struct{}

	mu   sync.Mutex
	told []string // guarded by mu
}

func (c *imageKeeper) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

func newKeeper(t *testing.T, policy gc.Policy) *imageKeeper {
	t.Helper()
	c := &imageKeeper{t: t, fake: newFakeImages(), ready: make(chan struct{})}
	b := newBoard()
	pool := runner.NewPool(runtimetest.NewFake(), runner.Config{Log: slog.New(slog.DiscardHandler), NodeName: "n", NodeIPs: func() []string { return nil }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = pool.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	b.pool = pool
	pool.Update(runner.Desired{Objects: manifests.NewObjects(nil), Removable: func(manifests.Origin) bool { return true }})
	c.images = &images{policy: policy, board: b, pins: newPins(slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), tell: func(kind, reason, message string) {
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
	go func() { defer close(ended); c.follow(ctx, c.fake, c.ready) }()
	c.t.Cleanup(func() { cancel(); <-ended })
}

// publish makes these documents all that is wanted, of sources that have been read.
func (c *imageKeeper) publish(reports []watcher.Report, docs string) {
	c.t.Helper()
	content, err := manifests.LoadAll("/m/a.yaml", []byte(docs), manifests.Options{Source: "file"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.board.mu.Lock()
	defer c.board.mu.Unlock()
	c.board.published = true
	c.board.desired = watcher.Desired{
		Pods: content.Pods, Workloads: content.Workloads, Order: []string{"file", "http"}, Reported: map[string]bool{"file": true}, Reports: reports,
	}
}

func (c *imageKeeper) has(want ...string) {
	c.t.Helper()
	synctest.Wait()
	got := c.fake.digests()
	if !slices.Equal(got, want) {
		c.t.Errorf("there are %v, want %v", got, want)
	}
}

func (c *imageKeeper) add(digest string, size int64) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	c.fake.all = append(c.fake.all, ctrd.ImageUse{Info: image.Info{Digest: "sha256:" + digest, Size: size, Own: size, FirstSeen: time.Now().Add(-time.Hour)}})
}

func (c *imageKeeper) full(percent int64) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	c.fake.disk = gc.Disk{Capacity: 100, Available: 100 - percent}
}

func (c *imageKeeper) change() { c.fake.changed <- struct{}{} }

// unreachable is what a source says that has never answered.
func unreachable() []watcher.Report {
	return []watcher.Report{{Source: "http", Input: "http://x", State: watcher.Unreachable}}
}

const podOfImage = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: c, image: %s}]\n"

func TestImagesGoWhenTheDiskIsFullAndItIsKnownWhoNeedsWhich(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute})
		for _, d := range []string{"pod", "cron", "volume", "mended", "revision", "used", "spare"} {
			c.add(d, 5)
		}
		c.fake.all[5].Pods = []string{"default/gone"}
		c.full(100)
		c.follows()
		time.Sleep(time.Hour)
		synctest.Wait()
		all := []string{"sha256:cron", "sha256:mended", "sha256:pod", "sha256:revision", "sha256:spare", "sha256:used", "sha256:volume"}
		c.has(all...)

		broken := filepath.Join(t.TempDir(), "broken.yaml")
		testfiles.Write(t, broken, "kind: Pod\nspec:\n  containers:\n  - image: \"mended\"\n   name: c\n")
		docs := fmt.Sprintf(podOfImage, "a", "pod") + "  volumes: [{name: v, image: {reference: volume}}]\n---\n" +
			"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec:\n  schedule: \"0 3 * * *\"\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: cron}]}}}}\n"
		refused := watcher.Report{Source: "file", Input: broken, State: watcher.Refused}
		steps := []func(){
			func() { close(c.ready) },
			func() { c.publish([]watcher.Report{refused}, docs) },
			func() { c.pins.want([]string{"sha256:revision"}) },
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
			c.publish(nil, fmt.Sprintf(podOfImage, "a", "pod"))
			c.board.mu.Lock()
			c.board.desired.Reported["http"] = true
			c.board.mu.Unlock()
			c.pins.want(nil)
			close(c.ready)
			c.follows()
			time.Sleep(time.Hour)
			c.has("sha256:a", "sha256:b", "sha256:c", "sha256:pod")
			c.fake.wanted.Store(8)
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
		c.publish(unreachable(), fmt.Sprintf(podOfImage, "a", "pod"))
		c.pins.want(nil)
		c.use(c.fake, true)
		synctest.Wait()
		if _, decided := c.needs(); !decided {
			t.Fatal("it is not known who needs which")
		}
		c.fake.before = c.board.detach
		if freed, err := c.ReclaimImages(t.Context(), 5); freed != 0 || !errors.Is(err, errUndecided) {
			t.Errorf("%d, %v", freed, err)
		}
		c.has("sha256:kept")
	})
}

func TestImagesAreLookedAtSoonAfterAChangeAndWhenOneGetsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeper(t, gc.Policy{High: 85, Low: 80, MinAge: time.Minute, MaxAge: 2 * time.Hour})
		c.publish(unreachable(), fmt.Sprintf(podOfImage, "a", "pod"))
		c.pins.want(nil)
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
		c.pins.want(nil)
		close(c.ready)
		c.fake.err = errors.New("bolt is stuck")
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
		c.fake.mu.Lock()
		c.fake.err = image.ErrNoCapacity
		c.fake.mu.Unlock()
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
		c.publish(unreachable(), fmt.Sprintf(podOfImage, "p", "pod"))
		c.follows()
		synctest.Wait()
		if _, err := c.ReclaimImages(t.Context(), 5); !errors.Is(err, errUndecided) {
			t.Errorf("before preload archives are read: %v", err)
		}
		close(c.ready)
		c.pins.want(nil)
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

func TestImagesCommand(t *testing.T) {
	d := newDaemon(t)
	d.imgs.all = []ctrd.ImageUse{
		{Info: image.Info{
			Digest: "sha256:0123456789abcdef", Names: []string{"docker.io/library/a:1", "docker.io/library/a:2"}, Size: 12_345_678, Own: 345_678,
			FirstSeen: time.Now().Add(-time.Hour), UsedNow: true, Archives: []string{"/images/a.tar"},
		}, Pods: []string{"default/web", "default/other"}},
		{Info: image.Info{Digest: "sha256:feed", Size: 999, Own: 999, FirstSeen: time.Now().Add(-time.Hour), LastUsed: time.Now().Add(-26 * time.Hour)}},
		{Info: image.Info{Digest: "sha256:nginx:1", Names: []string{"docker.io/library/nginx:1"}, Size: 1000, Own: 1000, FirstSeen: time.Now()}},
	}
	d.imgs.pulls = []image.Pull{{Name: "example.com/big:1", Since: time.Now(), Done: 25_000_000, Total: 100_000_000}}
	d.put("web.yaml", fmt.Sprintf(podOfImage, "web", "nginx:1"))
	d.start()
	d.shows("manifest of pod default/web", "images")
	d.eventually("all is known", func() error {
		if r := d.cmd("images"); strings.Contains(r.stdout, "not all manifests") {
			return errors.New(r.stdout)
		}
		return nil
	})
	r := d.cmd("images")
	want := `IMAGE  DIGEST  SIZE  LAST USED  STAYS FOR
docker.io/library/a:1,docker.io/library/a:2  sha256:0123456789ab  12.3 MB (345.7 kB own)  now  in use by default/web, in use by default/other, 1 more
<none>  sha256:feed  999 B  26h ago  -
docker.io/library/nginx:1  sha256:nginx:1  1.0 kB  never  manifest of pod default/web

PULLING  PROGRESS  SINCE
example.com/big:1  25.0 MB of 100.0 MB (25%)  0s
`
	got := spaces.ReplaceAllString(r.stdout, "$1  ")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := d.cmd("images", "-o", "wide"); !strings.Contains(r.stdout, "sha256:0123456789abcdef") || !strings.Contains(r.stdout, "preload /images/a.tar") {
		t.Errorf("wide:\n%s", r.stdout)
	}
	if r := d.cmd("images", "-o", "name"); r.stdout != "docker.io/library/a:1\nsha256:feed\ndocker.io/library/nginx:1\n" {
		t.Errorf("names: %q", r.stdout)
	}
	r = d.cmd("images", "-o", "json")
	for _, part := range []string{`"usedPercent": 50`, `"highPercent": 85`, `"kind": "Preload"`, `"by": "pod default/web"`, `"done": 25000000`} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("json lacks %s:\n%s", part, r.stdout)
		}
	}
	if r := d.cmd("images", "-o", "tables"); r.code != exitUsage {
		t.Errorf("unknown format: %+v", r)
	}
}

func TestImagesAreRemovedUnlessPodsHaveContainersWithThem(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.imgs.all = []ctrd.ImageUse{
		{Info: image.Info{Digest: "sha256:app:1", Names: []string{"app:1"}, UsedNow: true}, Pods: []string{"default/web"}},
		{Info: image.Info{Digest: "sha256:feed"}},
		{Info: image.Info{Digest: "sha256:nginx:1", Names: []string{"nginx:1"}}},
	}
	d.start()
	d.eventually("images can be seen", func() error {
		if r := d.cmd("images"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	r := d.cmd("images", "rm", "nginx:1", "app:1", "sha256:feed", "sha256:none")
	if r.code != exitError || r.stdout != "nginx:1: removed sha256:nginx:1\nsha256:feed: removed sha256:feed\n" ||
		!strings.Contains(r.stderr, "monopod: app:1: pods have containers with it") || !strings.Contains(r.stderr, "monopod: sha256:none: no such image on this machine") {
		t.Errorf("%+v", r)
	}
	if left := d.imgs.digests(); len(left) != 1 || left[0] != "sha256:app:1" {
		t.Errorf("left: %v", left)
	}
	if r := d.cmd("images", "rm", "--force", "app:1"); r.code != exitOK || len(d.imgs.digests()) > 0 {
		t.Errorf("%+v, left %v", r, d.imgs.digests())
	}
	if r := d.cmd("images", "rm"); r.code != exitUsage {
		t.Errorf("no image named: %+v", r)
	}
}

func TestWhyAndDescribeSayHowFarAPullIs(t *testing.T) {
	d := newDaemon(t)
	slow := make(chan struct{})
	d.fake.Delay = func(a runner.Action) time.Duration {
		if a.Kind == runner.EnsureImage {
			<-slow
		}
		return 0
	}
	defer close(slow)
	d.imgs.pulls = []image.Pull{{Name: "big:1", Since: time.Now(), Done: 25_000_000, Total: 100_000_000}}
	d.put("web.yaml", fmt.Sprintf(podOfImage, "web", "big:1"))
	d.start()
	d.shows("big:1: 25.0 MB of 100.0 MB (25%), since ", "why", "web")
	d.shows("Pulling:           big:1: 25.0 MB of 100.0 MB (25%), since ", "describe", "pod", "web")
}

func TestPullCommandTellsHowItGoes(t *testing.T) {
	d := newDaemon(t)
	good := make(chan error)
	d.imgs.coming = map[string]chan error{"good:1": good}
	d.start()
	d.eventually("images can be seen", func() error {
		if r := d.cmd("images"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	done := make(chan result, 1)
	go func() { done <- d.cmd("pull", "good:1", "bad:1") }()
	good <- nil
	r := <-done
	if r.code != exitError || !strings.Contains(r.stdout, "good:1: pulling\n") || !strings.Contains(r.stdout, "good:1: pulled sha256:good:1 in ") ||
		r.stderr != "monopod: bad:1: ErrImagePull: pull image \"bad:1\": no such image\n" {
		t.Errorf("%+v", r)
	}
	go func() { done <- d.cmd("pull", "good:1", "-o", "json") }()
	good <- nil
	r = <-done
	if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); r.code != 0 || lines[0] != `{"image":"good:1","state":"Pulling"}` || !strings.Contains(lines[len(lines)-1], `"state":"Pulled"`) {
		t.Errorf("%+v", r)
	}
	if r := d.cmd("pull"); r.code != exitUsage {
		t.Errorf("without an image: %+v", r)
	}
	// Who goes away leaves no pull behind.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- d.cmdContext(ctx, "pull", "good:1") }()
	cancel()
	<-done
}

func TestPullLinesAreFewAndBarsChangeInPlace(t *testing.T) {
	var out, errs strings.Builder
	p := &program{stdout: &out, stderr: &errs}
	lines := &pullLines{program: p, said: map[string]time.Time{}}
	now := time.Now()
	e := node.PullEvent{Image: "a", State: node.PullPulling}
	for i := range 60 {
		lines.show(e, now.Add(time.Duration(i)*pullTick))
		e.Done, e.Total = int64(i)*1000, 60_000
	}
	lines.show(node.PullEvent{Image: "a", State: node.PullPulled, Digest: "sha256:1", Total: 60_000, Seconds: 15}, now)
	if want := "a: pulling\na: 19.0 kB of 60.0 kB (31%)\na: 39.0 kB of 60.0 kB (65%)\na: pulled sha256:1 60.0 kB in 15s\n"; out.String() != want {
		t.Errorf("lines:\n%s", out.String())
	}
}

// screen is a terminal that knows what bars write.
type screen struct {
	t             *testing.T
	width, height int
	// lines are those that have ever been there; only the last height of them can be written to.
	lines []string
	row   int
}

func (s *screen) Write(b []byte) (int, error) {
	text := string(b)
	for text != "" {
		var up int
		switch {
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines = append(s.lines[:s.row:s.row], "")
			text = text[len("\x1b[J"):]
			continue
		case strings.HasPrefix(text, "\x1b["):
			if _, err := fmt.Sscanf(text, "\x1b[%dA", &up); err != nil {
				s.t.Fatalf("%q is not known", text)
			}
			_, text, _ = strings.Cut(text, "A")
			s.row = max(s.row-up, len(s.lines)-s.height, 0)
			continue
		}
		c := text[0]
		text = text[1:]
		if c == '\r' {
			continue // it is always at the beginning of a line then
		}
		if c == '\n' || len(s.lines[s.row]) == s.width {
			s.row++
			if s.row == len(s.lines) {
				s.lines = append(s.lines, "")
			}
		}
		if c != '\n' {
			s.lines[s.row] += string(c)
		}
	}
	return len(b), nil
}

func TestBarsFitIntoTheTerminal(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	const long = "registry.example.com:5000/a/team/with/a/name/application:v1.2.3"
	for _, size := range [][2]int{{120, 24}, {80, 24}, {60, 5}, {20, 3}, {200, 1}} {
		s := &screen{t: t, width: size[0], height: size[1], lines: []string{""}}
		b := &pullBars{program: &program{stdout: s}, size: func() (int, int) { return s.width, s.height }}
		images := []string{"a", long, "b", "c", "d"}
		for done := range int64(11) {
			for _, name := range images {
				b.show(node.PullEvent{Image: name, State: node.PullPulling, Done: done * 1e6, Total: 1e7})
			}
		}
		shown := min(len(images), s.height-1)
		if n := len(s.lines) - 1; n != shown {
			t.Fatalf("%v: %d lines, want %d:\n%s", size, n, shown, strings.Join(s.lines, "\n"))
		}
		if line := s.lines[min(1, shown)]; shown > 1 && s.width >= 60 && (!strings.HasPrefix(line, "[==========") || !strings.HasSuffix(line, "application:v1.2.3 10.0 MB of 10.0 MB (100%)")) {
			t.Errorf("%v: %q", size, line)
		}
		b.show(node.PullEvent{Image: long, State: node.PullPulled, Digest: digest, Total: 1e7, Seconds: 1})
		b.show(node.PullEvent{Image: "a", State: node.PullFailed, Reason: "ErrImagePull", Error: "no"})
		for _, name := range []string{"b", "c", "d"} {
			b.show(node.PullEvent{Image: name, State: node.PullPulled, Digest: "sha256:1", Seconds: 1})
		}
		want := "done   " + long + " " + digest + " 10.0 MB in 1sfailed a ErrImagePull: nodone   b sha256:1 in 1sdone   c sha256:1 in 1sdone   d sha256:1 in 1s"
		if got := strings.Join(s.lines, ""); got != want {
			t.Errorf("%v: it ends with\n%s", size, strings.Join(s.lines, "\n"))
		}
	}
}
