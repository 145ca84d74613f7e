//go:build e2e

package local_test

import (
	"context"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
	"monopod/runner"
)

// TestNothingIsFoundPresentWhileItIsRemoved: who finds an image can rely on it once its need is known.
func TestNothingIsFoundPresentWhileItIsRemoved(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, nil))
	img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
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
	imagetest.Check(t, <-removed)
	if err := <-found; imagetest.Reason(err) != runner.ReasonErrImageNeverPull {
		t.Errorf("then: %v", err)
	}
	if _, err := c.ContentStore().Info(imagetest.NS(t), digest.Digest(img.Target)); err == nil {
		t.Error("its manifest is still here")
	}
}
