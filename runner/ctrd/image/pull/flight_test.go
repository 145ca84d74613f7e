package pull

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"monopod/runner/ctrd/image"
)

func TestFlightOutlivesTheCallThatStartedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newFlights()
		release := make(chan struct{})
		runs := 0
		run := func(ctx context.Context) (*image.Image, error) {
			runs++
			select {
			case <-release:
				return &image.Image{Name: "x"}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() { _, err := fs.do(first, "k", run); errs <- err }()
		synctest.Wait()
		imgs := make(chan *image.Image, 1)
		go func() { img, _ := fs.do(t.Context(), "k", run); imgs <- img }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled call: %v", err)
		}
		close(release)
		if img := <-imgs; img == nil || img.Name != "x" {
			t.Errorf("the other call: %v", img)
		}
		if runs != 1 || len(fs.m) != 0 {
			t.Errorf("%d runs, %d left", runs, len(fs.m))
		}
	})
}

func TestFlightEndsWithItsLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newFlights()
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			_, _ = fs.do(ctx, "k", func(ctx context.Context) (*image.Image, error) {
				<-ctx.Done()
				ended = true
				return nil, ctx.Err()
			})
			if !ended {
				t.Error("the call returned before the run had ended")
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !ended || len(fs.m) != 0 {
			t.Errorf("ended %v, %d left", ended, len(fs.m))
		}
	})
}
