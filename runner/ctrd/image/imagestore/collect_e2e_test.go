//go:build e2e

package imagestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/internal/model"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
)

// shaky is a registry in front of another one, which cuts off what it sends and can be down.
type shaky struct {
	addr string

	mu sync.Mutex
	// cut is after how many bytes of a blob it goes down; 0: never. slow holds back what is behind these bytes instead.
	cut  int64
	slow chan struct{}
	// deaf ignores range requests.
	down, deaf bool
	// sent are the bytes of blobs that it sent, ranges the offsets it was asked for.
	sent   int64
	ranges []int64
}

func newShaky(t *testing.T, upstream string) *shaky {
	t.Helper()
	s := &shaky{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down, cut, slow, deaf := s.down, s.cut, s.slow, s.deaf
		if at, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
			at, _, _ = strings.Cut(at, "-")
			if n, err := strconv.ParseInt(at, 10, 64); err == nil {
				s.ranges = append(s.ranges, n)
			}
		}
		s.mu.Unlock()
		switch {
		case down:
			panic(http.ErrAbortHandler)
		case !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet || deaf:
			proxy.ServeHTTP(w, r) // which does not know ranges without an end
			return
		}
		resp, err := http.Get("http://" + upstream + r.URL.Path)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		blob, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(&shakyWriter{ResponseWriter: w, of: s, cut: cut, slow: slow}, r, "", time.Time{}, bytes.NewReader(blob))
	}))
	t.Cleanup(srv.Close)
	s.addr = strings.TrimPrefix(srv.URL, "http://")
	return s
}

func (s *shaky) set(edit func(*shaky)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

type shakyWriter struct {
	http.ResponseWriter
	of   *shaky
	cut  int64
	slow chan struct{}
	n    int64
}

func (w *shakyWriter) Write(b []byte) (int, error) {
	all := b
	if rest := w.cut - w.n; w.cut > 0 && int64(len(b)) > rest {
		b = b[:rest]
	}
	n, err := w.ResponseWriter.Write(b)
	w.n += int64(n)
	w.of.set(func(s *shaky) { s.sent += int64(n) })
	if err != nil || w.cut == 0 || w.n < w.cut {
		return n, err
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	if w.slow == nil {
		w.of.set(func(s *shaky) { s.down = true })
		panic(http.ErrAbortHandler)
	}
	<-w.slow
	w.cut = 0
	more, err := w.ResponseWriter.Write(all[n:])
	return n + more, err
}

// noise are bytes that cannot be compressed.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

const bigLayer = 4 << 20

func pushBig(t *testing.T, ref string, seed uint64) {
	t.Helper()
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: "big", Content: noise(seed, bigLayer), Mode: 0o644}}, nil))
}

// ingest is the number of bytes of blobs that are not complete.
func ingest(t *testing.T, c *client.Client) int64 {
	t.Helper()
	all, err := c.ContentStore().ListStatuses(ns(t))
	check(t, err)
	n := int64(0)
	for _, s := range all {
		n += s.Offset
	}
	return n
}

// TestAPullThatWasCutOffGoesOnWhereItWas cuts the connection in the middle of a layer, has containerd collect its garbage
// and tries again with another Store, as after a restart.
func TestAPullThatWasCutOffGoesOnWhereItWas(t *testing.T) {
	c := containerd(t)
	upstream := testimages.Registry(t)
	pushBig(t, upstream+"/big:1", 1)
	reg := newShaky(t, upstream)
	const first = 3 << 20
	reg.set(func(s *shaky) { s.cut = first })
	ref := reg.addr + "/big:1"
	_, err := store(t, c, nil).Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	if reason(err) != runner.ReasonErrImagePull {
		t.Fatalf("the registry went away: %v", err)
	}
	l, err := c.LeasesService().Create(ns(t), leases.WithRandomID())
	check(t, err)
	check(t, c.LeasesService().Delete(ns(t), l, leases.SynchronousDelete))
	kept := ingest(t, c)
	if kept < first/3 {
		t.Fatalf("%d bytes of it are kept", kept)
	}
	reg.set(func(s *shaky) { s.cut, s.down, s.sent, s.ranges = 0, false, 0, nil })
	img, err := store(t, c, nil).Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	reg.set(func(s *shaky) {
		if !slices.Contains(s.ranges, kept) || s.sent > bigLayer-kept+100_000 {
			t.Errorf("asked for the bytes from %v on, got %d; %d were there", s.ranges, s.sent, kept)
		}
	})
	if _, err := c.SnapshotService(embed.Overlayfs).Stat(ns(t), img.ChainID); err != nil {
		t.Error(err)
	}
	left, err := c.LeasesService().List(ns(t))
	check(t, err)
	if len(left) != 0 {
		t.Errorf("leases are left: %v", left)
	}
}

// TestWhatCameOfAPullIsNotKeptWhenItIsSpoiled, nor for longer than a day, nor when the disk is full.
func TestWhatCameOfAPullIsNotKeptWhenItIsSpoiled(t *testing.T) {
	c := containerd(t)
	upstream := testimages.Registry(t)
	pushBig(t, upstream+"/big:1", 2)
	reg := newShaky(t, upstream)
	ref := reg.addr + "/big:1"
	s := store(t, c, nil)
	cutOff := func() {
		t.Helper()
		reg.set(func(s *shaky) { s.cut, s.down = 3<<20, false })
		if _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); err == nil {
			t.Fatal("it was not cut off")
		}
		if ingest(t, c) == 0 {
			t.Fatal("nothing is kept")
		}
		reg.set(func(s *shaky) { s.cut, s.down = 0, false })
	}
	cutOff()
	statuses, err := c.ContentStore().ListStatuses(ns(t))
	check(t, err)
	w, err := c.ContentStore().Writer(ns(t), content.WithRef(statuses[0].Ref))
	check(t, err)
	_, err = w.Write([]byte("what a power cut may leave"))
	check(t, err)
	check(t, w.Close())
	if _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); err == nil {
		t.Error("something else was taken for the layer")
	}
	if n := ingest(t, c); n != 0 {
		t.Errorf("%d bytes of what is spoiled are kept", n)
	}
	cutOff()
	reg.set(func(s *shaky) { s.deaf = true })
	if _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); err == nil {
		t.Error("the registry took a range that it does not understand")
	}
	if n := ingest(t, c); n != 0 {
		t.Errorf("%d bytes are kept that cannot be gone on from", n)
	}
	reg.set(func(s *shaky) { s.deaf = false })
	cutOff()
	check(t, s.Puller.DropPartial(t.Context()))
	if n := ingest(t, c); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
	if _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); err != nil {
		t.Error(err)
	}
}

func TestPullsTellHowFarTheyAre(t *testing.T) {
	c := containerd(t)
	upstream := testimages.Registry(t)
	pushBig(t, upstream+"/big:1", 3)
	reg := newShaky(t, upstream)
	ref, slow := reg.addr+"/big:1", make(chan struct{})
	reg.set(func(s *shaky) { s.cut, s.slow = 3<<20, slow })
	s := store(t, c, nil)
	done := make(chan error, 1)
	go func() { _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); done <- err }()
	var pulls []model.Pull
	deadline := time.Now().Add(testbed.Patience())
	for time.Now().Before(deadline) {
		var err error
		pulls, err = s.Puller.List(t.Context(), "")
		check(t, err)
		if len(pulls) == 1 && pulls[0].Done > 1<<20 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if len(pulls) != 1 || pulls[0].Image != ref || pulls[0].Total < bigLayer || pulls[0].Done < 1<<20 || pulls[0].Done > 3<<20+100_000 {
		t.Errorf("%+v", pulls)
	}
	if other, err := s.Puller.List(t.Context(), "busybox"); err != nil || len(other) != 0 {
		t.Errorf("of another image: %v, %v", other, err)
	}
	close(slow)
	check(t, <-done)
	if pulls, err := s.Puller.List(t.Context(), ref); err != nil || len(pulls) != 0 {
		t.Errorf("afterwards: %v, %v", pulls, err)
	}
}

// keeper collects images on a simulated disk with a usage in percent.
type keeper struct {
	*Store
	c          *client.Client
	percent    int64
	refs, digs []string
	used       map[string]bool
	blind      error
	unknown    error
}

func (k *keeper) collect(t *testing.T, policy gc.Policy, bytes int64) image.Collected {
	t.Helper()
	out, err := k.try(t, policy, bytes)
	check(t, err)
	return out
}

func (k *keeper) try(t *testing.T, policy gc.Policy, bytes int64) (image.Collected, error) {
	t.Helper()
	began := ingestAndContent(t, k.c)
	return k.Inventory.Collect(t.Context(), image.Collection{
		Policy: policy, Bytes: bytes, Needs: func() ([]string, []string, error) { return k.refs, k.digs, k.unknown },
		Used: func() (map[string]bool, error) { return k.used, k.blind },
		// Of 1000 MB, and what goes is free then.
		Disk: func() (gc.Disk, error) {
			return gc.Disk{Capacity: 1_000_000_000, Available: (100-k.percent)*10_000_000 + began - ingestAndContent(t, k.c)}, nil
		},
	})
}

// ingestAndContent is how many bytes of content there are.
func ingestAndContent(t *testing.T, c *client.Client) int64 {
	t.Helper()
	n := int64(0)
	check(t, c.ContentStore().Walk(ns(t), func(i content.Info) error { n += i.Size; return nil }))
	return n
}

func (k *keeper) names(t *testing.T) []string {
	t.Helper()
	all, err := k.Inventory.List(t.Context())
	check(t, err)
	var names []string
	for i := range all {
		names = append(names, all[i].Names...)
	}
	return names
}

func TestCollectedImagesAreGoneFromTheDiskAndNeededOnesStay(t *testing.T) {
	c := containerd(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "preloaded.tar")
	testimages.ArchiveOf(t, archive, testimages.FromFiles(t, []testimages.File{{Path: "x", Content: noise(9, 1<<20), Mode: 0o644}}, nil), "preloaded:1")
	k := &keeper{Store: store(t, c, func(c *Config) { c.PreloadDirs = []string{dir} }), c: c, percent: 99}
	stop, err := runPreload(t, k.Store)
	check(t, err)
	stop()
	reg := testimages.Registry(t)
	digests := map[string]string{}
	for i, name := range []string{"needed", "by-digest", "pinned", "used", "twice", "spare"} {
		ref := reg + "/" + name + ":1"
		testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: name, Content: noise(uint64(10+i), 1<<20), Mode: 0o644}}, nil))
		img, err := k.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
		check(t, err)
		digests[name] = img.Target
		if name == "twice" {
			testimages.Push(t, reg+"/other:1", testimages.FromFiles(t, []testimages.File{{Path: name, Content: noise(uint64(10+i), 1<<20), Mode: 0o644}}, nil))
			_, err = k.Ensure(t.Context(), reg+"/other:1", corev1.PullIfNotPresent)
			check(t, err)
		}
	}
	if _, err := k.SyncPins(t.Context(), "/root", []string{digests["pinned"]}); err != nil {
		t.Fatal(err)
	}
	k.refs, k.digs, k.used = []string{reg + "/needed:1", "never/heard:of"}, []string{digests["by-digest"]}, map[string]bool{digests["used"]: true}
	check(t, k.Inventory.RecordUse(t.Context(), k.used))

	policy := gc.Policy{High: 85, Low: 80, MinAge: time.Hour}
	all := k.names(t)
	if out := k.collect(t, policy, 0); len(out.Removed) != 0 || out.Short == 0 {
		t.Errorf("all are too young: %+v", out)
	}
	policy.MinAge = 0
	k.percent = 84
	if out := k.collect(t, policy, 0); len(out.Removed) != 0 || !slices.Equal(all, k.names(t)) {
		t.Errorf("the disk is not full: %+v", out)
	}
	k.percent, k.blind = 99, errors.New("containerd is away")
	if out, err := k.try(t, policy, 0); !errors.Is(err, k.blind) || len(out.Removed) != 0 || !slices.Equal(all, k.names(t)) {
		t.Errorf("containers cannot be seen: %+v, %v", out, err)
	}
	k.blind, k.unknown = nil, errors.New("not all sources have been read")
	if out, err := k.try(t, policy, 0); !errors.Is(err, k.unknown) || len(out.Removed) != 0 || !slices.Equal(all, k.names(t)) {
		t.Errorf("nobody can tell what is needed: %+v, %v", out, err)
	}
	k.unknown = nil
	before := ingestAndContent(t, c)
	out := k.collect(t, policy, 0)
	want := []string{"docker.io/library/preloaded:1", reg + "/by-digest:1", reg + "/needed:1", reg + "/pinned:1", reg + "/used:1"}
	slices.Sort(want)
	if got := k.names(t); !slices.Equal(got, want) || len(out.Removed) != 2 || out.Short == 0 {
		t.Errorf("left: %v\nwant: %v\n%+v", got, want, out)
	}
	if freed := before - ingestAndContent(t, c); freed < 2<<20 {
		t.Errorf("%d bytes of content went", freed)
	}
	snaps, err := snapshots(t, c)
	check(t, err)
	if len(snaps) != len(want) {
		t.Errorf("snapshots: %v", snaps)
	}
	// Remaining images can be used, removed ones are pulled again.
	k.present(t, want...)
	if _, err := k.Ensure(t.Context(), reg+"/spare:1", corev1.PullNever); reason(err) != runner.ReasonErrImageNeverPull {
		t.Errorf("what went: %v", err)
	}
	if _, err := k.Ensure(t.Context(), reg+"/spare:1", corev1.PullIfNotPresent); err != nil {
		t.Error(err)
	}

	// An archive that is removed does not keep its image, nor does a manifest that is gone.
	check(t, os.Remove(archive))
	k.refs = nil
	out = k.collect(t, gc.Policy{High: 100}, 1)
	if len(out.Removed) != 1 || out.Freed == 0 {
		t.Errorf("one byte is asked for: %+v", out)
	}
	out = k.collect(t, gc.Policy{High: 100}, gc.All)
	if got := k.names(t); !slices.Equal(got, []string{reg + "/by-digest:1", reg + "/pinned:1", reg + "/used:1"}) {
		t.Errorf("left: %v, %+v", got, out)
	}
}

func (k *keeper) present(t *testing.T, names ...string) {
	t.Helper()
	present(t, k.Store, names...)
}

func TestWhenAnImageWasLastUsedIsKnownAfterARestart(t *testing.T) {
	c := containerd(t)
	s := store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil))
	img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	info := func() image.Info {
		t.Helper()
		all, err := store(t, c, nil).Inventory.List(t.Context()) // of a new run
		check(t, err)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	if i := info(); !i.LastUsed.IsZero() || i.UsedNow || i.Size < 1<<20 || i.Own != i.Size || i.FirstSeen.IsZero() ||
		!slices.Equal(i.Names, []string{ref}) || !slices.Equal(i.RepoDigests, []string{img.Digest}) {
		t.Errorf("never used: %+v", i)
	}
	used := map[string]bool{img.Target: true}
	check(t, s.Inventory.RecordUse(t.Context(), used))
	if i := info(); !i.UsedNow || !i.LastUsed.IsZero() {
		t.Errorf("in use: %+v", i)
	}
	rec, err := c.ImageService().Get(ns(t), ref)
	check(t, err)
	check(t, s.Inventory.RecordUse(t.Context(), used))
	again, err := c.ImageService().Get(ns(t), ref)
	check(t, err)
	if !again.UpdatedAt.Equal(rec.UpdatedAt) || !maps.Equal(again.Labels, rec.Labels) || rec.Labels[image.LabelPulled] != img.Digest {
		t.Errorf("it is written again: %+v, %+v", rec, again)
	}
	// It was killed meanwhile: that it was used until now is known all the same.
	check(t, store(t, c, nil).Inventory.RecordUse(t.Context(), map[string]bool{}))
	i := info()
	if i.UsedNow || time.Since(i.LastUsed) > time.Minute {
		t.Errorf("used until now: %+v", i)
	}
	check(t, s.Inventory.RecordUse(t.Context(), map[string]bool{}))
	if last := info(); !last.LastUsed.Equal(i.LastUsed) {
		t.Errorf("%s, then %s", i.LastUsed, last.LastUsed)
	}
}

// TestNothingIsFoundPresentWhileItIsRemoved: who finds an image can rely on it once its need is known.
func TestNothingIsFoundPresentWhileItIsRemoved(t *testing.T) {
	c := containerd(t)
	s := store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil))
	img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	check(t, err)
	if err := s.Local.Remove(t.Context(), img.Target, func() bool { return true }); err == nil {
		t.Error("it was removed although it is needed")
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	removed, found := make(chan error, 1), make(chan error, 1)
	go func() {
		removed <- s.Local.Remove(t.Context(), img.Target, func() bool { close(asked); <-answer; return false })
	}()
	<-asked
	go func() { _, err := s.Ensure(context.WithoutCancel(t.Context()), ref, corev1.PullNever); found <- err }()
	select {
	case err := <-found:
		t.Errorf("it is found to be present, or not, while it is being removed: %v", err)
		found <- err
	case <-time.After(20 * time.Millisecond): // long enough to notice; nothing is waited for
	}
	close(answer)
	check(t, <-removed)
	if err := <-found; reason(err) != runner.ReasonErrImageNeverPull {
		t.Errorf("then: %v", err)
	}
	if _, err := c.ContentStore().Info(ns(t), digest.Digest(img.Target)); err == nil {
		t.Error("its manifest is still here")
	}
}
