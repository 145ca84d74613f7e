package usage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/fault"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/volume"
	"monopod/runner/ctrd/volumes"
)

// Places returns the cgroups in which the kernel accounts the usage of each pod. It reads only memory: containers that have just
// ended may be included, whose cgroup is gone.
func (r *Meter) Places(context.Context) ([]model.Place, error) {
	var all []model.Place
	for _, rec := range r.Index.List() {
		if rec.Meta.State != record.Active || rec.Meta.BootID != r.BootID {
			continue
		}
		p := model.Place{
			Key: rec.Meta.Key, UID: rec.Meta.UID, Created: rec.CreatedAt, Cgroup: rec.Meta.Cgroup, HostNetwork: rec.Pod.Object.Spec.HostNetwork,
		}
		for _, c := range r.Index.OfSandbox(rec.ID) {
			if l := &c.Meta; l.Exit == nil && !l.StartedAt.IsZero() {
				p.Containers = append(p.Containers, model.ContainerPlace{
					Name: l.Name, ID: c.ID, Image: c.Image, Restarts: l.RestartCount, Started: l.StartedAt, Cgroup: r.PodCgroups.CgroupOf(c),
				})
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// MeasureDisk measures the disk usage of a pod.
func (r *Meter) MeasureDisk(ctx context.Context, key manifests.Key) (runner.DiskSizes, error) {
	ctx = r.WithNamespace(ctx)
	d := runner.DiskSizes{Volumes: map[string]runner.Size{}, InMemory: map[string]bool{}, Layers: map[string]runner.Size{}}
	rec := r.Index.Sandbox(key)
	if rec == nil {
		return d, fmt.Errorf("pod %s is gone", key)
	}
	var errs []error
	spec := &rec.Pod.Object.Spec
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.EmptyDir != nil:
			size, inMemory, err := r.emptyDirSize(ctx, r.Dirs.EmptyDir(rec.Meta.UID, v.Name))
			errs = append(errs, err)
			d.Volumes[v.Name], d.InMemory[v.Name] = size, inMemory
		case v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Projected != nil:
			size, err := volumes.SizeOf(ctx, filepath.Join(r.Dirs.FilesDir(rec.Meta.UID), v.Name))
			errs = append(errs, err)
			d.Volumes[v.Name], d.InMemory[v.Name] = runner.Size(size), true
		}
	}
	for _, c := range r.Index.OfUID(rec.Meta.UID) {
		layer, err := r.layerSize(ctx, c)
		errs = append(errs, err)
		was := d.Layers[c.Meta.Name]
		d.Layers[c.Meta.Name] = runner.Size{Bytes: was.Bytes + layer.Bytes, Inodes: was.Inodes + layer.Inodes}
	}
	hidden, err := r.unnamedFiles(ctx, rec)
	errs = append(errs, err)
	addSizes(d.Volumes, hidden.emptyDirs)
	addSizes(d.Layers, hidden.containers)
	logs, err := r.logSizes(ctx, rec)
	d.Logs = logs
	errs = append(errs, err)
	d.Others, err = r.otherSizes(ctx, rec)
	errs = append(errs, err)
	// Generic ephemeral volumes do not count for limits, but their space is freed with the pod.
	ephemeral, err := volumes.SizeWithout(ctx, r.Dirs.EphemeralDir(rec.Meta.UID))
	d.Others.Bytes, d.Others.Inodes = d.Others.Bytes+ephemeral.Bytes, d.Others.Inodes+ephemeral.Inodes
	return d, errors.Join(append(errs, err)...)
}

func addSizes(to, more map[string]runner.Size) {
	for name, size := range more {
		was := to[name]
		to[name] = runner.Size{Bytes: was.Bytes + size.Bytes, Inodes: was.Inodes + size.Inodes}
	}
}

// emptyDirSize asks a file system of its own for its usage, and otherwise walks the directory.
func (r *Meter) emptyDirSize(ctx context.Context, path string) (size runner.Size, inMemory bool, err error) {
	switch there, err := volume.EmptyDirAt(path); {
	case err != nil || there == volume.Nothing:
		return size, false, err
	case there != volume.Disk:
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return size, true, err
		}
		return runner.Size{Bytes: int64((st.Blocks - st.Bfree) * uint64(st.Bsize)), Inodes: int64(st.Files - st.Ffree)}, true, nil
	}
	walked, err := volumes.SizeOf(ctx, path)
	return runner.Size(walked), false, err
}

// layerSize returns the size of the writable layer of a container, and of the volumes of its image.
func (r *Meter) layerSize(ctx context.Context, c *record.Container) (runner.Size, error) {
	snapshots := r.Client.SnapshotService(r.Snapshotter)
	layer, err := snapshots.Usage(ctx, c.ID)
	if err != nil {
		return runner.Size{}, fault.IgnoreNotFound(err)
	}
	if r.Snapshotter == embed.Native { // its layers contain copies of all layers below
		info, err := snapshots.Stat(ctx, c.ID)
		if err == nil && info.Parent != "" {
			below, belowErr := snapshots.Usage(ctx, info.Parent)
			layer.Size, layer.Inodes, err = layer.Size-below.Size, layer.Inodes-below.Inodes, belowErr
		}
		if err != nil {
			return runner.Size{}, fault.IgnoreNotFound(err)
		}
	}
	anonymous, err := volumes.SizeOf(ctx, r.Dirs.ImageVolumeDir(c.Meta.UID, c.ID))
	return runner.Size{Bytes: max(0, layer.Size) + anonymous.Bytes, Inodes: max(0, layer.Inodes) + anonymous.Inodes}, err
}
