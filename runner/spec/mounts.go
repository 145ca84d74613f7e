package spec

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
)

// Files that every container gets unless it mounts something there itself.
const (
	hostsFile    = "/etc/hosts"
	hostnameFile = "/etc/hostname"
	resolvFile   = "/etc/resolv.conf"
	shmDir       = "/dev/shm"
)

// buildMounts returns all mounts in the order in which they are made: the system's, then binds, those with fewer
// path elements first so that none hides another. No destination occurs twice.
func buildMounts(in Input, c *corev1.Container, sec security) ([]specs.Mount, error) {
	binds, err := volumeMounts(in, c)
	if err != nil {
		return nil, err
	}
	readOnlyRoot := readWrite
	if sec.readOnlyRoot {
		readOnlyRoot = readOnly
	}
	shm := in.Sandbox.ShmPath
	if in.Pod.Spec.HostIPC {
		shm = shmDir
	}
	termination := ""
	if c.TerminationMessagePath != "" {
		termination = path.Join("/", c.TerminationMessagePath)
	}
	// What the pod mounts itself wins over what is added for it.
	added := []bind{
		{hostsFile, in.Sandbox.HostsPath, readWrite}, // writable even below a read-only root, as kubelet's
		{termination, in.Sandbox.TerminationLogPath, readWrite},
	}
	for _, p := range slices.Sorted(maps.Keys(in.ImageVolumes)) {
		added = append(added, bind{path.Join("/", p), in.ImageVolumes[p], readWrite})
	}
	added = append(added,
		bind{hostnameFile, in.Sandbox.HostnamePath, readOnlyRoot},
		bind{resolvFile, in.Sandbox.ResolvConfPath, readOnlyRoot},
		bind{shmDir, shm, readWrite},
	)
	for _, b := range added {
		if b.destination != "" && b.source != "" && !mountedAt(binds, b.destination) {
			binds = append(binds, b)
		}
	}
	slices.SortStableFunc(binds, func(a, b bind) int { return cmp.Compare(depth(a.destination), depth(b.destination)) })

	mounts := systemMounts(in.Host, sec, binds)
	for _, b := range binds {
		mounts = append(mounts, specs.Mount{
			Destination: b.destination, Type: "bind", Source: b.source,
			Options: []string{"rbind", "rprivate", string(b.access)},
		})
	}
	return mounts, nil
}

// access says whether a mount may be written to.
type access string

const (
	readWrite access = "rw"
	readOnly  access = "ro"
)

// bind is a bind mount.
type bind struct {
	destination, source string
	access              access
}

// mountedAt says whether one of the binds is at this destination.
func mountedAt(binds []bind, destination string) bool {
	return slices.ContainsFunc(binds, func(b bind) bool { return b.destination == destination })
}

// depth is the number of elements of a clean absolute path. The root counts as one, as in the CRI plugin.
func depth(p string) int { return strings.Count(p, "/") }

// volumeMounts returns the binds that the manifest asks for.
func volumeMounts(in Input, c *corev1.Container) ([]bind, error) {
	binds := make([]bind, 0, len(c.VolumeMounts)+8)
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		v, ok := in.Volumes[m.Name]
		if !ok || v.HostPath == "" {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		if field := unsupportedMount(m); field != "" {
			return nil, fmt.Errorf("volumeMount %q of container %q: %s is not supported by this release", m.Name, c.Name, field)
		}
		b := bind{path.Join("/", m.MountPath), v.HostPath, readWrite}
		if m.ReadOnly || v.ReadOnly {
			b.access = readOnly
		}
		if mountedAt(binds, b.destination) {
			// Kubelet would hide the earlier one below the later.
			return nil, fmt.Errorf("container %q mounts two volumes at %s", c.Name, b.destination)
		}
		binds = append(binds, b)
	}
	return binds, nil
}

// unsupportedMount names the first field of a mount that a later release will enforce.
func unsupportedMount(m *corev1.VolumeMount) string {
	switch {
	case m.SubPath != "":
		return "subPath"
	case m.SubPathExpr != "":
		return "subPathExpr"
	case m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone:
		return "mountPropagation"
	case m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled:
		return "recursiveReadOnly"
	}
	return ""
}

// systemMounts returns the mounts of a container without any volumes, minus those that a bind replaces. A bind at
// /dev replaces everything below it too.
func systemMounts(h Host, sec security, binds []bind) []specs.Mount {
	sys := string(readOnly)
	if sec.privileged {
		sys = string(readWrite)
	}
	cgroup := []string{"nosuid", "noexec", "nodev", "relatime", sys}
	if !ownCgroupNamespace(h, sec) {
		cgroup = append(cgroup, h.CgroupMountOptions...)
	}
	all := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"},
		},
		{Destination: shmDir, Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", sys}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: cgroup},
	}
	ownDev := mountedAt(binds, "/dev")
	return slices.DeleteFunc(all, func(m specs.Mount) bool {
		return mountedAt(binds, m.Destination) || (ownDev && strings.HasPrefix(m.Destination, "/dev/"))
	})
}

// ImageVolumePaths returns the paths of the image's VOLUMEs for which this container needs a directory of its
// own, filled with what the image has there: all but those where the pod mounts something.
func ImageVolumePaths(in Input) ([]string, error) {
	c, err := findContainer(in.Pod, in.Container)
	if err != nil {
		return nil, err
	}
	var paths []string
	for p := range in.Image.Volumes {
		p = path.Join("/", p)
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Join("/", m.MountPath) == p }) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}
