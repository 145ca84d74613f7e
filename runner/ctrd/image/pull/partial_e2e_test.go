//go:build e2e

package pull_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/internal/model"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
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

const bigLayer = 4 << 20

func pushBig(t *testing.T, ref string, seed uint64) {
	t.Helper()
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: "big", Content: imagetest.Noise(seed, bigLayer), Mode: 0o644}}, nil))
}

// ingest is the number of bytes of blobs that are not complete.
func ingest(t *testing.T, c *client.Client) int64 {
	t.Helper()
	all, err := c.ContentStore().ListStatuses(imagetest.NS(t))
	imagetest.Check(t, err)
	n := int64(0)
	for _, s := range all {
		n += s.Offset
	}
	return n
}

// TestAPullThatWasCutOffGoesOnWhereItWas cuts the connection in the middle of a layer, has containerd collect its garbage
// and tries again with another Store, as after a restart.
func TestAPullThatWasCutOffGoesOnWhereItWas(t *testing.T) {
	c := imagetest.Containerd(t)
	upstream := testimages.Registry(t)
	pushBig(t, upstream+"/big:1", 1)
	reg := newShaky(t, upstream)
	const first = 3 << 20
	reg.set(func(s *shaky) { s.cut = first })
	ref := reg.addr + "/big:1"
	_, err := imagetest.Store(t, c, nil).Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	if imagetest.Reason(err) != runner.ReasonErrImagePull {
		t.Fatalf("the registry went away: %v", err)
	}
	l, err := c.LeasesService().Create(imagetest.NS(t), leases.WithRandomID())
	imagetest.Check(t, err)
	imagetest.Check(t, c.LeasesService().Delete(imagetest.NS(t), l, leases.SynchronousDelete))
	kept := ingest(t, c)
	if kept < first/3 {
		t.Fatalf("%d bytes of it are kept", kept)
	}
	reg.set(func(s *shaky) { s.cut, s.down, s.sent, s.ranges = 0, false, 0, nil })
	img, err := imagetest.Store(t, c, nil).Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	reg.set(func(s *shaky) {
		if !slices.Contains(s.ranges, kept) || s.sent > bigLayer-kept+100_000 {
			t.Errorf("asked for the bytes from %v on, got %d; %d were there", s.ranges, s.sent, kept)
		}
	})
	if _, err := c.SnapshotService(embed.Overlayfs).Stat(imagetest.NS(t), img.ChainID); err != nil {
		t.Error(err)
	}
	left, err := c.LeasesService().List(imagetest.NS(t))
	imagetest.Check(t, err)
	if len(left) != 0 {
		t.Errorf("leases are left: %v", left)
	}
}

// TestWhatCameOfAPullIsNotKeptWhenItIsSpoiled, nor for longer than a day, nor when the disk is full.
func TestWhatCameOfAPullIsNotKeptWhenItIsSpoiled(t *testing.T) {
	c := imagetest.Containerd(t)
	upstream := testimages.Registry(t)
	pushBig(t, upstream+"/big:1", 2)
	reg := newShaky(t, upstream)
	ref := reg.addr + "/big:1"
	s := imagetest.Store(t, c, nil)
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
	statuses, err := c.ContentStore().ListStatuses(imagetest.NS(t))
	imagetest.Check(t, err)
	w, err := c.ContentStore().Writer(imagetest.NS(t), content.WithRef(statuses[0].Ref))
	imagetest.Check(t, err)
	_, err = w.Write([]byte("what a power cut may leave"))
	imagetest.Check(t, err)
	imagetest.Check(t, w.Close())
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
	imagetest.Check(t, s.Puller.DropPartial(t.Context()))
	if n := ingest(t, c); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
	if _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); err != nil {
		t.Error(err)
	}
}

func TestPullsTellHowFarTheyAre(t *testing.T) {
	c := imagetest.Containerd(t)
	upstream := testimages.Registry(t)
	pushBig(t, upstream+"/big:1", 3)
	reg := newShaky(t, upstream)
	ref, slow := reg.addr+"/big:1", make(chan struct{})
	reg.set(func(s *shaky) { s.cut, s.slow = 3<<20, slow })
	s := imagetest.Store(t, c, nil)
	done := make(chan error, 1)
	go func() { _, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent); done <- err }()
	var pulls []model.Pull
	deadline := time.Now().Add(testbed.Patience())
	for time.Now().Before(deadline) {
		var err error
		pulls, err = s.Puller.List(t.Context(), "")
		imagetest.Check(t, err)
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
	imagetest.Check(t, <-done)
	if pulls, err := s.Puller.List(t.Context(), ref); err != nil || len(pulls) != 0 {
		t.Errorf("afterwards: %v, %v", pulls, err)
	}
}
