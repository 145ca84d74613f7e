package ctrd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/plugins"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/spec"
)

// imageOf returns the reference to run for a key of manifests.Pod.Images.
func imageOf(pod *manifests.Pod, key, ref string) string {
	if digest := pod.Images[key]; digest != "" {
		return image.AtDigest(ref, digest)
	}
	return ref
}

// ensureImageOf makes that image present. A digest that is here need not be asked for again, so that a revision can be gone
// back to without a registry.
func (r *Runtime) ensureImageOf(ctx context.Context, pod *manifests.Pod, key, ref string, policy corev1.PullPolicy) (*image.Image, error) {
	digest := pod.Images[key]
	if digest == "" {
		return r.images.Ensure(ctx, ref, policy)
	}
	if policy == corev1.PullAlways {
		policy = corev1.PullIfNotPresent
	}
	return r.images.EnsureDigest(ctx, r.cfg.RootDirectory, ref, digest, policy)
}

// mountedImages are the digests of the images among the volumes of a container.
func mountedImages(volumes map[string]spec.Volume) map[string]string {
	var images map[string]string
	for name, v := range volumes {
		if v.Image == "" {
			continue
		}
		if images == nil {
			images = map[string]string{}
		}
		images[name] = v.Image
	}
	return images
}

// SyncPins makes containerd keep the images with these digests, whatever their tags come to stand for, and no others on
// behalf of this instance. Of those that are gone there is nothing to keep, now or later.
func (r *Runtime) SyncPins(ctx context.Context, digests []string) (gone []string, err error) {
	return r.images.SyncPins(r.ns(ctx), r.cfg.RootDirectory, digests)
}

// settleImages is how long changes of what is in use are waited for to be noted together.
const settleImages = time.Second

// followImages notes which images are in use whenever that changes, until ctx ends.
func (r *Runtime) followImages(ctx context.Context) {
	var noted map[string]bool
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
		case <-r.index.changed:
			if !sleep(ctx, settleImages) {
				return
			}
		}
		used, err := r.usedImages(ctx)
		if err == nil && noted != nil && maps.Equal(used, noted) {
			continue
		}
		if err == nil {
			err = r.images.NoteUse(ctx, used)
		}
		if err != nil {
			r.log.Debug("when images were last used is not noted", "err", err)
			retry.Reset(time.Minute)
			continue
		}
		noted = used
		r.tellImages()
	}
}

// tellImages says that images came, or that others are in use.
func (r *Runtime) tellImages() {
	select {
	case r.imagesChanged <- struct{}{}:
	default: // nobody has looked since
	}
}

// wantImages notes that the disk was too full for an image that may take so many bytes.
func (r *Runtime) wantImages(bytes int64) {
	r.imagesWant.Store(bytes)
	r.tellImages()
}

// usedImages are the digests of the images that there are containers with, if only dead ones. In a containerd of others these
// are also the containers of other instances, which share the images.
func (r *Runtime) usedImages(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	note := func(image string, volumes map[string]string) {
		used[image] = true
		for _, dig := range volumes {
			used[dig] = true
		}
	}
	for _, c := range r.index.all() {
		note(c.Labels.Image, c.Labels.VolumeImages)
	}
	if r.cfg.Endpoint != "" {
		all, err := r.client.ContainerService().List(r.ns(ctx))
		if err != nil {
			return nil, fmt.Errorf("list containers: %w", err)
		}
		for _, c := range all {
			note(c.Labels[labelImage], volumeImages(c.Labels))
		}
	}
	delete(used, "")
	return used, nil
}

// Images is what can be known of, and done with, the images of a Runtime.
type Images struct{ r *Runtime }

// Images returns them.
func (r *Runtime) Images() *Images { return &Images{r} }

// ImageUse is an image and the pods that have a container with it, as "namespace/name", in order.
type ImageUse struct {
	image.Info
	Pods []string
}

// List returns all images, by name.
func (i *Images) List(ctx context.Context) ([]ImageUse, error) {
	all, err := i.r.images.List(i.r.ns(ctx))
	if err != nil {
		return nil, err
	}
	pods := map[string]map[string]bool{}
	for _, c := range i.r.index.all() {
		for _, dig := range append(slices.Collect(maps.Values(c.Labels.VolumeImages)), c.Labels.Image) {
			if pods[dig] == nil {
				pods[dig] = map[string]bool{}
			}
			pods[dig][c.Labels.Key.String()] = true
		}
	}
	uses := make([]ImageUse, 0, len(all))
	for n := range all {
		u := ImageUse{Info: all[n], Pods: slices.Sorted(maps.Keys(pods[all[n].Digest]))}
		u.UsedNow = len(u.Pods) > 0
		uses = append(uses, u)
	}
	return uses, nil
}

// Pulls returns the pulls that are under way, of one image or with an empty reference all.
func (i *Images) Pulls(ctx context.Context, ref string) ([]image.Pull, error) {
	return i.r.images.Pulls(i.r.ns(ctx), ref)
}

// Pull makes an image present, by pull policy.
func (i *Images) Pull(ctx context.Context, ref string, policy corev1.PullPolicy) (*image.Image, error) {
	return i.r.images.Ensure(i.r.ns(ctx), ref, policy)
}

// Targets returns the digests that references stand for now, with those.
func (i *Images) Targets(ctx context.Context, refs []string) (map[string][]string, error) {
	return i.r.images.Targets(i.r.ns(ctx), refs)
}

// Collect removes images that nobody needs; what there are containers with, and the disk, is filled in.
func (i *Images) Collect(ctx context.Context, c image.Collection) (image.Collected, error) {
	c.Used, c.Disk = func() (map[string]bool, error) { return i.r.usedImages(ctx) }, i.Disk
	out, err := i.r.images.Collect(i.r.ns(ctx), c)
	if !i.r.reserve.spend(err) {
		return out, err
	}
	// What was not noted at the first time is still on the disk, with or without a name.
	err = i.r.freeLayers(i.r.ns(ctx))
	more, again := i.r.images.Collect(i.r.ns(ctx), c)
	more.Removed, more.Freed = append(out.Removed, more.Removed...), more.Disk.Available-(out.Disk.Available-out.Freed)
	return more, errors.Join(err, again)
}

// Remove removes an image by its digest, unless there is a container with it and it is not forced: such a container continues to run. The error is
// image.ErrNeeded then.
func (i *Images) Remove(ctx context.Context, digest string, forced bool) error {
	var unknown error
	needed := func() bool {
		used, err := i.r.usedImages(ctx)
		unknown = err
		return !forced && (err != nil || used[digest])
	}
	if err := i.r.images.Remove(i.r.ns(ctx), digest, needed); err != nil {
		return errors.Join(unknown, err)
	}
	i.r.tellImages()
	return nil
}

// Changed holds a token when images came or fewer are in use than before.
func (i *Images) Changed() <-chan struct{} { return i.r.imagesChanged }

// Wanted returns how many bytes an image may take that the disk was too full for since the last call; 0: none.
func (i *Images) Wanted() int64 { return i.r.imagesWant.Swap(0) }

// Disk looks at the file system that holds the images.
func (i *Images) Disk() (gc.Disk, error) {
	var st unix.Statfs_t
	dir := i.r.imageRoot()
	if err := unix.Statfs(dir, &st); err != nil {
		return gc.Disk{}, fmt.Errorf("%s: %w", dir, err)
	}
	return gc.Disk{Capacity: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize}, nil
}

// imageRoot is a directory on the file system of the images.
func (r *Runtime) imageRoot() string {
	if r.cfg.Endpoint == "" {
		return filepath.Join(r.cfg.RootDirectory, "containerd")
	}
	return cmp.Or(r.snapshots, r.cfg.RootDirectory)
}

// findSnapshots asks another containerd where its snapshotter keeps its files; empty: it does not say.
func (r *Runtime) findSnapshots(ctx context.Context) string {
	answer, err := r.client.IntrospectionService().Plugins(ctx, "type=="+string(plugins.SnapshotPlugin)+",id=="+r.cfg.Snapshotter)
	if err != nil || len(answer.Plugins) == 0 {
		return ""
	}
	root := answer.Plugins[0].Exports["root"]
	if _, err := os.Stat(root); err != nil {
		return ""
	}
	return root
}
