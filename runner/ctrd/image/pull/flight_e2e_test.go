//go:build e2e

package pull_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
)

func TestConcurrentCallsShareOnePull(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	upstream := testimages.Registry(t)
	testimages.Push(t, upstream+"/a:1", testimages.Busybox(t, nil))
	var manifests atomic.Int32
	release := make(chan struct{})
	proxy := newProxy(t, upstream, func(path string) {
		if strings.Contains(path, "/manifests/1") {
			manifests.Add(1)
			<-release
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i == 0 {
				// The one that may have started it goes away.
				cancel()
				_, _ = s.Ensure(ctx, proxy+"/a:1", corev1.PullIfNotPresent)
				return
			}
			if _, err := s.Ensure(ctx, proxy+"/a:1", corev1.PullIfNotPresent); err != nil {
				t.Error(err)
			}
		})
	}
	deadline := time.Now().Add(testbed.Patience())
	for time.Now().Before(deadline) {
		if _, calls := s.Puller.Shared(); calls >= 7 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if n := manifests.Load(); n > 2 { // one resolve; two when the cancelled call began alone
		t.Errorf("the manifest was asked for %d times", n)
	}
	if runs, _ := s.Puller.Shared(); runs != 0 {
		t.Errorf("%d runs are left", runs)
	}
}

func newProxy(t *testing.T, upstream string, before func(path string)) string {
	t.Helper()
	rp := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r.URL.Path)
		rp.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}
