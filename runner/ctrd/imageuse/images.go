// Package imageuse owns which images the pods of this instance use: it pulls those, records when they were used last, and lists
// and collects the others. It must not pull or store images itself, which package image does.
package imageuse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/reserve"
	"monopod/runner/spec"
)

// Images lists and manages the images that pods of this instance use.
type Images struct {
	Store  *imagestore.Store
	Client *client.Client
	Index  *record.Index
	// Owner is the root directory of this instance, for which images are pinned.
	Owner string
	// Shared is set if other clients use this containerd.
	Shared bool
	// Dir is a directory on the file system of the images.
	Dir           string
	Reserve       *reserve.Reserve
	WithNamespace func(context.Context) context.Context
	News          *News
	Log           *slog.Logger
}

// EnsureImageOf pulls the image if necessary. A digest that is present is not requested again, so that a rollback needs no
// registry.
func (i *Images) EnsureImageOf(ctx context.Context, pod *manifests.Pod, key, ref string, policy corev1.PullPolicy) (*image.Image, error) {
	digest := pod.Images[key]
	if digest == "" {
		img, err := i.Store.Ensure(ctx, ref, policy)
		return img, withheldLogin(pod, err)
	}
	if policy == corev1.PullAlways {
		policy = corev1.PullIfNotPresent
	}
	img, err := i.Store.EnsureDigest(ctx, i.Owner, ref, digest, policy)
	return img, withheldLogin(pod, err)
}

// withheldLogin adds to a registry's refusal that an imagePullSecret of the pod is in a source that it must not see.
func withheldLogin(pod *manifests.Pod, err error) error {
	switch cause.Of(err).Kind {
	case cause.ImageUnauthorized, cause.ImageForbidden, cause.ImageNotFound:
	default:
		return err
	}
	for _, ref := range pod.Object.Spec.ImagePullSecrets {
		hidden := sharing.Refused(pod.Refs, manifests.ObjectID{Kind: cause.Secret, Namespace: pod.Object.Namespace, Name: ref.Name})
		if hidden != nil {
			return cause.Wrap(fmt.Errorf("%w; %w", err, hidden), cause.Of(hidden))
		}
	}
	return err
}

// MountedImages returns the digests of the images among the volumes of a container.
func MountedImages(volumes map[string]spec.Volume) map[string]string {
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

// SyncPins pins the images with these digests for this instance, whatever their tags refer to later, and no others. It returns the
// digests whose content is missing.
func (i *Images) SyncPins(ctx context.Context, digests []string) (gone []string, err error) {
	return i.Store.SyncPins(i.WithNamespace(ctx), i.Owner, digests)
}

// settleImages is how long changes of image use are collected before they are recorded.
const settleImages = time.Second

// FollowImages records which images are in use whenever that changes, until ctx ends.
func (i *Images) FollowImages(ctx context.Context) {
	var noted map[string]bool
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
		case <-i.Index.Changed:
			if !pause.For(ctx, settleImages) {
				return
			}
		}
		used, err := i.UsedImages(ctx)
		if err == nil && noted != nil && maps.Equal(used, noted) {
			continue
		}
		if err == nil {
			err = i.Store.Inventory.RecordUse(ctx, used)
		}
		if err != nil {
			i.Log.Debug("record when images were last used", "err", err)
			retry.Reset(time.Minute)
			continue
		}
		noted = used
		i.News.Tell()
	}
}

// News reports changes of the images to the image collector.
type News struct {
	// changed holds a token after images were added, or fewer are in use.
	changed chan struct{}
	// want is the size of an image for which the disk was too full.
	want atomic.Int64
}

// NewNews returns empty News.
func NewNews() *News { return &News{changed: make(chan struct{}, 1)} }

// Tell reports that images were added, or that others are in use.
func (n *News) Tell() {
	select {
	case n.changed <- struct{}{}:
	default: // a token is pending
	}
}

// Wants reports that the disk was too full for an image of so many bytes.
func (n *News) Wants(bytes int64) {
	n.want.Store(bytes)
	n.Tell()
}

// UsedImages returns the digests of the images with containers, even if these have ended. In a shared containerd it includes the
// containers of other instances.
func (i *Images) UsedImages(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	note := func(image string, volumes map[string]string) {
		used[image] = true
		for _, dig := range volumes {
			used[dig] = true
		}
	}
	for _, c := range i.Index.All() {
		note(c.Meta.Image, c.Meta.VolumeImages)
	}
	if i.Shared {
		all, err := i.Client.ContainerService().List(i.WithNamespace(ctx))
		if err != nil {
			return nil, fmt.Errorf("list containers: %w", err)
		}
		for _, c := range all {
			note(c.Labels[record.LabelImage], record.VolumeImages(c.Labels))
		}
	}
	delete(used, "")
	return used, nil
}

// Use is an image and the pods that have a container with it, as "namespace/name", in order.
type Use struct {
	image.Info
	Pods []string
}

// List returns all images, by name.
func (i *Images) List(ctx context.Context) ([]Use, error) {
	all, err := i.Store.Inventory.List(i.WithNamespace(ctx))
	if err != nil {
		return nil, err
	}
	pods := map[string]map[string]bool{}
	for _, c := range i.Index.All() {
		for _, dig := range append(slices.Collect(maps.Values(c.Meta.VolumeImages)), c.Meta.Image) {
			if pods[dig] == nil {
				pods[dig] = map[string]bool{}
			}
			pods[dig][c.Meta.Key.String()] = true
		}
	}
	uses := make([]Use, 0, len(all))
	for n := range all {
		u := Use{Info: all[n], Pods: slices.Sorted(maps.Keys(pods[all[n].Digest]))}
		u.UsedNow = len(u.Pods) > 0
		uses = append(uses, u)
	}
	return uses, nil
}

// Pulls returns the pulls in progress, of one image or, with an empty reference, all.
func (i *Images) Pulls(ctx context.Context, ref string) ([]model.Pull, error) {
	return i.Store.Puller.List(i.WithNamespace(ctx), ref)
}

// Pull pulls an image as the pull policy requires.
func (i *Images) Pull(ctx context.Context, ref string, policy corev1.PullPolicy) (*image.Image, error) {
	return i.Store.Ensure(i.WithNamespace(ctx), ref, policy)
}

// Targets returns the digests that references resolve to now, with those references.
func (i *Images) Targets(ctx context.Context, refs []string) (map[string][]string, error) {
	return i.Store.Inventory.Targets(i.WithNamespace(ctx), refs)
}

// Collect removes unused images; it fills in the used images and the disk.
func (i *Images) Collect(ctx context.Context, c image.Collection) (image.Collected, error) {
	c.Used, c.Disk = func() (map[string]bool, error) { return i.UsedImages(ctx) }, i.Disk
	out, err := i.Store.Inventory.Collect(i.WithNamespace(ctx), c)
	if !i.Reserve.Spend(err) {
		return out, err
	}
	// What an earlier attempt has removed may still be on disk.
	err = i.FreeLayers(i.WithNamespace(ctx))
	more, again := i.Store.Inventory.Collect(i.WithNamespace(ctx), c)
	more.Removed, more.Freed = append(out.Removed, more.Removed...), more.Disk.Available-(out.Disk.Available-out.Freed)
	return more, errors.Join(err, again)
}

// Remove removes an image by its digest. Unless forced it returns image.ErrNeeded if a container has the image; with forced, such
// a container keeps running.
func (i *Images) Remove(ctx context.Context, digest string, forced bool) error {
	var unknown error
	needed := func() bool {
		used, err := i.UsedImages(ctx)
		unknown = err
		return !forced && (err != nil || used[digest])
	}
	if err := i.Store.Local.Remove(i.WithNamespace(ctx), digest, needed); err != nil {
		return errors.Join(unknown, err)
	}
	i.News.Tell()
	return nil
}

// Changed returns a channel that holds a token after images were added or fewer are in use.
func (i *Images) Changed() <-chan struct{} { return i.News.changed }

// Wanted returns the size of an image for which the disk was too full since the last call; 0: none.
func (i *Images) Wanted() int64 { return i.News.want.Swap(0) }

// Disk returns the state of the file system that holds the images.
func (i *Images) Disk() (gc.Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(i.Dir, &st); err != nil {
		return gc.Disk{}, fmt.Errorf("%s: %w", i.Dir, err)
	}
	return gc.Disk{Capacity: int64(st.Blocks * uint64(st.Bsize)), Available: int64(st.Bavail * uint64(st.Bsize))}, nil
}

// EnsureImage pulls the image of a container, and those that it mounts, if necessary.
func (i *Images) EnsureImage(ctx context.Context, pod *manifests.Pod, a runner.Action) error {
	c := manifests.FindContainer(&pod.Object.Spec, a.Container)
	if c == nil {
		return fmt.Errorf("pod %s has no container %s", pod.Key(), a.Container)
	}
	ctx, err := WithLogins(ctx, pod)
	if err != nil {
		return fault.Step(runner.ReasonErrImagePull, err)
	}
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.Timeout)
		defer cancel()
	}
	if _, err := i.EnsureImageOf(ctx, pod, c.Name, c.Image, c.ImagePullPolicy); err != nil {
		return fault.Step(runner.ReasonErrImagePull, err)
	}
	return i.EnsureImageVolumes(ctx, pod, c)
}

// WithLogins adds the logins of imagePullSecrets. Missing Secrets are ignored, as by a kubelet: the image may be present, or need
// no login.
func WithLogins(ctx context.Context, pod *manifests.Pod) (context.Context, error) {
	var logins []registry.Login
	for _, ref := range pod.Object.Spec.ImagePullSecrets {
		s := pod.Refs.Secret(ref.Name)
		if s == nil {
			continue
		}
		more, err := registry.ParseSecret(s)
		if err != nil {
			return nil, err
		}
		logins = append(logins, more...)
	}
	return registry.WithLogins(ctx, logins), nil
}

// FreeLayers makes containerd free the space of all deleted content now: deleting a lease can be synchronous.
func (i *Images) FreeLayers(ctx context.Context) error {
	l, err := i.Client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Minute))
	if err == nil {
		err = i.Client.LeasesService().Delete(ctx, l, leases.SynchronousDelete)
	}
	return fault.Wrap("collect garbage", err)
}

// EnsureImageVolumes pulls the images that a container mounts as volumes, as their pull policies require.
func (i *Images) EnsureImageVolumes(ctx context.Context, pod *manifests.Pod, c *corev1.Container) error {
	for n := range pod.Object.Spec.Volumes {
		v := &pod.Object.Spec.Volumes[n]
		if v.Image == nil || !manifests.UsesVolume(c, v.Name) {
			continue
		}
		if _, err := i.EnsureImageOf(ctx, pod, manifests.ImageVolume(v.Name), v.Image.Reference, v.Image.PullPolicy); err != nil {
			why := cause.Of(err)
			why.Volume = v.Name
			return fault.Step(runner.ReasonErrImagePull, cause.Wrap(fmt.Errorf("volume %q: %w", v.Name, err), why))
		}
	}
	return nil
}
