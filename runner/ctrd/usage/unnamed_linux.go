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

// unnamed is what files without a name take that containers have open: in emptyDirs on disk by volume, and else by container.
// Those in volumes that outlive the pod are not the pod's.
type unnamed struct{ emptyDirs, containers map[string]runner.Size }

// unnamedFiles looks at all processes of a pod. A container that removes a file while it writes to it hides it from everything
// else that measures.
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

// mountAt returns the volume mount of a container that a path lies on; nil: its root file system.
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
