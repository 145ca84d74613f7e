package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/idrange"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/locks"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
)

// LabelImageVolume marks the snapshots of images that are mounted as volumes.
const LabelImageVolume = "monopod.dev/image-volume"

// imageVolumeOptions are the mount options of an image volume.
func imageVolumeOptions() []string { return []string{"nodev", "noexec", "nosuid"} }

// Images mounts images as volumes.
type Images struct {
	Dirs        layout.Dirs
	Client      *client.Client
	Images      *imagestore.Store
	Snapshotter string

	locks locks.ByKey
}

// prepareImageVolume mounts the content of an image, once for all containers of a sandbox, and sets the path, the image, and
// whether its files have the ids of the pod. With a user namespace only an overlay has them, because its layers can be id-mapped;
// a bind mount of a single layer does not.
func (r *Images) prepareImageVolume(ctx context.Context, sb *record.Sandbox, ref string, v *spec.Volume) error {
	sandbox, users := sb.ID, sb.Meta.FirstID > 0
	img, err := r.Images.Get(ctx, ref)
	if err != nil {
		return fault.Step(runner.ReasonImageInspectError, err)
	}
	defer r.locks.Lock("image volumes " + sandbox)()
	name := digest.FromString(img.ChainID).Encoded()
	v.HostPath, v.Image = r.Dirs.Path("image-volumes", sandbox, name), img.Target
	if !trees.IsMountPoint(v.HostPath) {
		if err := r.mountImageVolume(ctx, sb, img, v.HostPath); err != nil {
			return err
		}
	}
	v.Mapped = users && isOverlay(v.HostPath)
	return nil
}

// imageError names the volume and its image in an error of the image.
func imageError(volume, ref string, err error) error {
	if se, ok := errors.AsType[*runner.StepError](err); !ok || se.Reason != runner.ReasonImageInspectError {
		return err
	}
	why := cause.Cause{Kind: cause.ImageBroken, Image: ref, Volume: volume}
	if errors.Is(err, image.ErrArtifact) {
		why.Kind = cause.ImageArtifact
	}
	return cause.Wrap(fmt.Errorf("volume %q: %w", volume, err), why)
}

func (r *Images) mountImageVolume(ctx context.Context, sb *record.Sandbox, img *image.Image, path string) error {
	name := filepath.Base(path)
	if err := os.MkdirAll(path, 0o700); err != nil { // before the snapshot, because dropImageVolumes finds it by its directory
		return err
	}
	key := sb.ID + "-" + name
	sn := r.Client.SnapshotService(r.Snapshotter)
	from, err := sn.View(ctx, key, img.ChainID, snapshots.WithLabels(map[string]string{
		record.LabelGCRoot:  time.Now().UTC().Format(time.RFC3339),
		record.LabelOwner:   r.Dirs.Root,
		record.LabelSandbox: sb.ID,
		LabelImageVolume:    name,
	}), snapshots.WithLabels(idrange.SnapshotLabels(sb.Meta.FirstID)))
	if errdefs.IsAlreadyExists(err) { // an earlier attempt was interrupted
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

// isOverlay reports whether a path is on an overlay.
func isOverlay(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.OVERLAYFS_SUPER_MAGIC
}

// DropImageVolumes unmounts the image volumes of a sandbox. The directories, which name the snapshots, are removed last, so that
// a failure can be retried.
func (r *Images) DropImageVolumes(ctx context.Context, sandbox string) error {
	dir := r.Dirs.Path("image-volumes", sandbox)
	mounted := trees.Names(dir)
	if len(mounted) > 0 {
		if err := trees.Unmount(dir); err != nil {
			return err
		}
	}
	sn := r.Client.SnapshotService(r.Snapshotter)
	for _, name := range mounted {
		if err := fault.IgnoreNotFound(sn.Remove(ctx, sandbox+"-"+filepath.Base(name))); err != nil {
			return fmt.Errorf("remove snapshot of an image volume: %w", err)
		}
	}
	return trees.Remove(dir)
}
