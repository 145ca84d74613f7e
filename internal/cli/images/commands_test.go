package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/model"
	"monopod/internal/program"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
)

func TestImagesCommand(t *testing.T) {
	d := newDaemon(t)
	d.Images.All = []ctrd.ImageUse{
		{Info: image.Info{
			Digest: "sha256:0123456789abcdef", Names: []string{"docker.io/library/a:1", "docker.io/library/a:2"}, Size: 12_345_678, Own: 345_678,
			FirstSeen: time.Now().Add(-time.Hour), UsedNow: true, Archives: []string{"/images/a.tar"},
		}, Pods: []string{"default/web", "default/other"}},
		{Info: image.Info{Digest: "sha256:feed", Size: 999, Own: 999, FirstSeen: time.Now().Add(-time.Hour), LastUsed: time.Now().Add(-26 * time.Hour)}},
		{Info: image.Info{Digest: "sha256:nginx:1", Names: []string{"docker.io/library/nginx:1"}, Size: 1000, Own: 1000, FirstSeen: time.Now()}},
	}
	d.Images.Running = []model.Pull{{Image: "example.com/big:1", Since: time.Now(), Done: 25_000_000, Total: 100_000_000}}
	d.Put("web.yaml", fmt.Sprintf(daemontest.PodOfImage, "web", "nginx:1"))
	d.Start()
	want := `IMAGE  DIGEST  SIZE  LAST USED  STAYS FOR
docker.io/library/a:1,docker.io/library/a:2  sha256:0123456789ab  12.3 MB (345.7 kB own)  now  in use by default/web, in use by default/other, 1 more
<none>  sha256:feed  999 B  26h ago  -
docker.io/library/nginx:1  sha256:nginx:1  1.0 kB  never  manifest of pod default/web

PULLING  PROGRESS  SINCE
example.com/big:1  25.0 MB of 100.0 MB (25%)  0s
`
	// The pod is read before the pool knows it; until it does, nothing is decided.
	d.Eventually("all is known", func() error {
		if r := d.Cmd("images"); clitest.Narrow(r.Stdout) != want {
			return fmt.Errorf("%+v\nwant\n%s", r, want)
		}
		return nil
	})
	if r := d.Cmd("images", "-o", "wide"); !strings.Contains(r.Stdout, "sha256:0123456789abcdef") || !strings.Contains(r.Stdout, "preload /images/a.tar") {
		t.Errorf("wide:\n%s", r.Stdout)
	}
	if r := d.Cmd("images", "-o", "name"); r.Stdout != "docker.io/library/a:1\nsha256:feed\ndocker.io/library/nginx:1\n" {
		t.Errorf("names: %q", r.Stdout)
	}
	r := d.Cmd("images", "-o", "json")
	for _, part := range []string{`"usedPercent": 50`, `"highPercent": 85`, `"kind": "Preload"`, `"by": "pod default/web"`, `"done": 25000000`} {
		if !strings.Contains(r.Stdout, part) {
			t.Errorf("json lacks %s:\n%s", part, r.Stdout)
		}
	}
	if r := d.Cmd("images", "-o", "tables"); r.Code != program.ExitUsage {
		t.Errorf("unknown format: %+v", r)
	}
}

func TestImagesAreRemovedUnlessPodsHaveContainersWithThem(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Images.All = []ctrd.ImageUse{
		{Info: image.Info{Digest: "sha256:app:1", Names: []string{"app:1"}, UsedNow: true}, Pods: []string{"default/web"}},
		{Info: image.Info{Digest: "sha256:feed"}},
		{Info: image.Info{Digest: "sha256:nginx:1", Names: []string{"nginx:1"}}},
	}
	d.Start()
	d.Eventually("images can be seen", func() error {
		if r := d.Cmd("images"); r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	r := d.Cmd("images", "rm", "nginx:1", "app:1", "sha256:feed", "sha256:none")
	if r.Code != program.ExitError || r.Stdout != "nginx:1: removed sha256:nginx:1\nsha256:feed: removed sha256:feed\n" ||
		!strings.Contains(r.Stderr, "monopod: app:1: containers of pods use it") || !strings.Contains(r.Stderr, "monopod: sha256:none: no such image on this machine") {
		t.Errorf("%+v", r)
	}
	if left := d.Images.Digests(); len(left) != 1 || left[0] != "sha256:app:1" {
		t.Errorf("left: %v", left)
	}
	if r := d.Cmd("images", "rm", "--force", "app:1"); r.Code != program.ExitOK || len(d.Images.Digests()) > 0 {
		t.Errorf("%+v, left %v", r, d.Images.Digests())
	}
	if r := d.Cmd("images", "rm"); r.Code != program.ExitUsage {
		t.Errorf("no image named: %+v", r)
	}
}

func TestPullCommandTellsHowItGoes(t *testing.T) {
	d := newDaemon(t)
	good := make(chan error)
	d.Images.Coming = map[string]chan error{"good:1": good}
	d.Start()
	d.Eventually("images can be seen", func() error {
		if r := d.Cmd("images"); r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	done := make(chan clitest.Result, 1)
	go func() { done <- d.Cmd("pull", "good:1", "bad:1") }()
	good <- nil
	r := <-done
	if r.Code != program.ExitError || !strings.Contains(r.Stdout, "good:1: pulling\n") || !strings.Contains(r.Stdout, "good:1: pulled sha256:good:1 in ") ||
		r.Stderr != "monopod: bad:1: ErrImagePull: pull image \"bad:1\": no such image\n" {
		t.Errorf("%+v", r)
	}
	go func() { done <- d.Cmd("pull", "good:1", "-o", "json") }()
	good <- nil
	r = <-done
	if lines := strings.Split(strings.TrimSpace(r.Stdout), "\n"); r.Code != 0 || lines[0] != `{"image":"good:1","state":"Pulling"}` || !strings.Contains(lines[len(lines)-1], `"state":"Pulled"`) {
		t.Errorf("%+v", r)
	}
	if r := d.Cmd("pull"); r.Code != program.ExitUsage {
		t.Errorf("without an image: %+v", r)
	}
	// Who goes away leaves no pull behind.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- d.CmdContext(ctx, "pull", "good:1") }()
	cancel()
	<-done
}
