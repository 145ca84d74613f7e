package ctrd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
)

// labelImageVolume marks the snapshots of images that are mounted as volumes.
const labelImageVolume = "monopod.dev/image-volume"

// ensureImageVolumes makes the images present that a container mounts as volumes, by their pull policies.
func (r *Runtime) ensureImageVolumes(ctx context.Context, pod *manifests.Pod, c *corev1.Container) error {
	for i := range pod.Object.Spec.Volumes {
		v := &pod.Object.Spec.Volumes[i]
		if v.Image == nil || !manifests.UsesVolume(c, v.Name) {
			continue
		}
		if _, err := r.ensureImageOf(ctx, pod, manifests.ImageVolume(v.Name), v.Image.Reference, v.Image.PullPolicy); err != nil {
			return stepError(runner.ReasonErrImagePull, fmt.Errorf("volume %q: %w", v.Name, err))
		}
	}
	return nil
}

// imageVolumeOptions say what an image that is a volume may not do.
func imageVolumeOptions() []string { return []string{"nodev", "noexec", "nosuid"} }

// prepareImageVolume mounts the content of an image, once for all containers of a sandbox, and fills in where, of which
// image, and whether its files have the ids of the pod. An overlay has them for a pod with a user namespace, as its ids can
// be mapped in its layers only; a bind mount of a single layer has not.
func (r *Runtime) prepareImageVolume(ctx context.Context, sb *sandboxRecord, ref string, v *spec.Volume) error {
	sandbox, users := sb.ID, sb.Labels.FirstID > 0
	img, err := r.images.Get(ctx, ref)
	if err != nil {
		return stepError(runner.ReasonImageInspectError, err)
	}
	defer r.locks.lock("image volumes " + sandbox)()
	name := digest.FromString(img.ChainID).Encoded()
	v.HostPath, v.Image = r.path("image-volumes", sandbox, name), img.Target
	if !isMountPoint(v.HostPath) {
		if err := r.mountImageVolume(ctx, sb, img, v.HostPath); err != nil {
			return err
		}
	}
	v.Mapped = users && isOverlay(v.HostPath)
	return nil
}

func (r *Runtime) mountImageVolume(ctx context.Context, sb *sandboxRecord, img *image.Image, path string) error {
	name := filepath.Base(path)
	if err := os.MkdirAll(path, 0o755); err != nil { // before the snapshot, which dropImageVolumes finds by it
		return err
	}
	key := sb.ID + "-" + name
	sn := r.client.SnapshotService(r.cfg.Snapshotter)
	from, err := sn.View(ctx, key, img.ChainID, snapshots.WithLabels(map[string]string{
		labelGCRoot:      time.Now().UTC().Format(time.RFC3339),
		labelOwner:       r.cfg.RootDirectory,
		labelSandbox:     sb.ID,
		labelImageVolume: name,
	}), snapshots.WithLabels(mapLabels(sb.Labels.FirstID)))
	if errdefs.IsAlreadyExists(err) { // an earlier try was cut off
		from, err = sn.Mounts(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("prepare image %s: %w", img.Name, err)
	}
	for i := range from {
		from[i].Options = append(append(from[i].Options, "ro"), imageVolumeOptions()...)
		if from[i].Type != "overlay" {
			from[i].Options = slices.DeleteFunc(from[i].Options, func(o string) bool { return strings.HasPrefix(o, "uidmap=") || strings.HasPrefix(o, "gidmap=") })
		}
	}
	if err := mount.All(from, path); err != nil {
		return fmt.Errorf("mount image %s: %w", img.Name, err)
	}
	return nil
}

// isOverlay says that a path lies on an overlay.
func isOverlay(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// dropImageVolumes undoes prepareImageVolume for a sandbox. The directories, which tell the snapshots, go last: what fails
// is done again.
func (r *Runtime) dropImageVolumes(ctx context.Context, sandbox string) error {
	dir := r.path("image-volumes", sandbox)
	mounted := names(dir)
	if len(mounted) > 0 {
		if err := trees.Unmount(dir); err != nil {
			return err
		}
	}
	sn := r.client.SnapshotService(r.cfg.Snapshotter)
	for _, name := range mounted {
		if err := ignoreNotFound(sn.Remove(ctx, sandbox+"-"+filepath.Base(name))); err != nil {
			return fmt.Errorf("remove snapshot of an image volume: %w", err)
		}
	}
	return removeTree(dir)
}
