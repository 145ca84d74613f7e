//go:build e2e

package ctrd

import (
	"testing"

	"github.com/containerd/containerd/v2/core/containers"

	"monopod/runner/ctrd/record"
)

// TestImagesOfAnotherInstancesContainersAreInUse has two instances that share a containerd, and then an instance that cannot see
// the other.
func TestImagesOfAnotherInstancesContainersAreInUse(t *testing.T) {
	w := newWorld(t)
	w.startContainerd(t)
	a := w.open(t)
	t.Cleanup(func() { a.end(t) })
	const image, mounted = "sha256:aaaa", "sha256:bbbb"
	ctx := a.ns(t.Context())
	_, err := a.client.ContainerService().Create(ctx, containers.Container{
		ID: "of-another", Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"},
		Labels: map[string]string{record.LabelOwner: "/elsewhere", record.LabelImage: image, record.LabelVolumeImage + "data": mounted},
	})
	check(t, err)
	used, err := a.imageUse.UsedImages(ctx)
	check(t, err)
	if !used[image] || !used[mounted] || len(used) != 2 {
		t.Errorf("in use: %v", used)
	}
	check(t, a.client.ContainerService().Delete(ctx, "of-another"))
	if used, err := a.imageUse.UsedImages(ctx); err != nil || len(used) != 0 {
		t.Errorf("in use when it is gone: %v, %v", used, err)
	}
	w.stopContainerd(t)
	if used, err := a.imageUse.UsedImages(ctx); err == nil {
		t.Errorf("without containerd: %v", used)
	}
	w.startContainerd(t)
}
