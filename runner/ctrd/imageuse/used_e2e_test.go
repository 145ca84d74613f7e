//go:build e2e

package imageuse_test

import (
	"testing"

	"github.com/containerd/containerd/v2/core/containers"

	"monopod/e2e/ctrdtest"
	"monopod/runner/ctrd/record"
)

// TestImagesOfAnotherInstancesContainersAreInUse has two instances that share a containerd, and then an instance that cannot see
// the other.
func TestImagesOfAnotherInstancesContainersAreInUse(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	ctrdtest.StartContainerd(t, w)
	a := w.Open(t)
	t.Cleanup(func() { a.End(t) })
	const image, mounted = "sha256:aaaa", "sha256:bbbb"
	ctx := a.NS(t.Context())
	_, err := a.Client.ContainerService().Create(ctx, containers.Container{
		ID: "of-another", Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"},
		Labels: map[string]string{record.LabelOwner: "/elsewhere", record.LabelImage: image, record.LabelVolumeImage + "data": mounted},
	})
	ctrdtest.Check(t, err)
	used, err := a.ImageUse.UsedImages(ctx)
	ctrdtest.Check(t, err)
	if !used[image] || !used[mounted] || len(used) != 2 {
		t.Errorf("in use: %v", used)
	}
	ctrdtest.Check(t, a.Client.ContainerService().Delete(ctx, "of-another"))
	if used, err := a.ImageUse.UsedImages(ctx); err != nil || len(used) != 0 {
		t.Errorf("in use when it is gone: %v, %v", used, err)
	}
	ctrdtest.StopContainerd(t, w)
	if used, err := a.ImageUse.UsedImages(ctx); err == nil {
		t.Errorf("without containerd: %v", used)
	}
	ctrdtest.StartContainerd(t, w)
}
