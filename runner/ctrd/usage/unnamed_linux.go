package usage

import (
	"context"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/openfiles"
	"monopod/runner/ctrd/record"
)

// unnamed is the size of open files without a name: in emptyDirs on disk by volume, else by container. Volumes that outlive the
// pod do not count.
type unnamed struct{ emptyDirs, containers map[string]runner.Size }

// unnamedFiles inspects all processes of a pod. A file that a container removes while it writes to it is invisible to all other
// measurements.
func (r *Meter) unnamedFiles(ctx context.Context, rec *record.Sandbox) (unnamed, error) {
	found := unnamed{emptyDirs: map[string]runner.Size{}, containers: map[string]runner.Size{}}
	counted := map[openfiles.ID]bool{}
	for _, c := range r.Index.OfSandbox(rec.ID) {
		if c.Meta.Exit != nil || c.Meta.StartedAt.IsZero() {
			continue
		}
		for _, pid := range r.PodCgroups.Cgroups.Pids(r.PodCgroups.CgroupOf(c)) {
			err := openfiles.Unnamed(ctx, pid, func(f openfiles.File) {
				if !counted[f.ID] {
					counted[f.ID] = true
					found.add(&rec.Pod.Object.Spec, c.Meta.Name, f)
				}
			})
			if err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

func (u *unnamed) add(spec *corev1.PodSpec, container string, f openfiles.File) {
	to, name := u.containers, container
	if m := mountAt(manifests.FindContainer(spec, container), f.Path); m != nil {
		if !isEmptyDirOnDisk(spec, m.Name) {
			return
		}
		to, name = u.emptyDirs, m.Name
	}
	was := to[name]
	to[name] = runner.Size{Bytes: was.Bytes + f.Bytes, Inodes: was.Inodes + 1}
}

// mountAt returns the volume mount of a container that contains a path; nil: its root file system.
func mountAt(c *corev1.Container, at string) (found *corev1.VolumeMount) {
	if c == nil {
		return nil
	}
	longest := -1
	for i := range c.VolumeMounts {
		dir := path.Join("/", c.VolumeMounts[i].MountPath)
		within := at == dir || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/")
		if within && len(dir) > longest {
			longest, found = len(dir), &c.VolumeMounts[i]
		}
	}
	return found
}

func isEmptyDirOnDisk(spec *corev1.PodSpec, volume string) bool {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == volume {
			return v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault
		}
	}
	return false
}
