package build

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/expand"
	"monopod/runner/spec"
	"monopod/runner/spec/environ"
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
func buildMounts(in spec.Input, c *corev1.Container, sec security) ([]specs.Mount, error) {
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
		{destination: hostsFile, source: in.Sandbox.HostsPath, access: readWrite, mapped: true}, // writable even below a read-only root, as kubelet's
		{destination: termination, source: in.Sandbox.TerminationLogPath, access: readWrite, mapped: true},
	}
	for _, p := range slices.Sorted(maps.Keys(in.ImageVolumes)) {
		added = append(added, bind{destination: path.Join("/", p), source: in.ImageVolumes[p], access: readWrite})
	}
	added = append(added,
		bind{destination: hostnameFile, source: in.Sandbox.HostnamePath, access: readOnlyRoot, mapped: true},
		bind{destination: resolvFile, source: in.Sandbox.ResolvConfPath, access: readOnlyRoot, mapped: true},
		bind{destination: shmDir, source: shm, access: readWrite, mapped: shm == in.Sandbox.ShmPath},
	)
	for _, b := range added {
		if b.destination != "" && b.source != "" && !mountedAt(binds, b.destination) {
			binds = append(binds, b)
		}
	}
	sort.SliceStable(binds, func(i, j int) bool { return depth(binds[i].destination) < depth(binds[j].destination) })

	mounts := systemMounts(in.Host, sec, binds)
	for _, b := range binds {
		m := specs.Mount{
			Destination: b.destination, Type: "bind", Source: b.source,
			Options: append([]string{"rbind", cmp.Or(b.propagation, propagationPrivate), string(b.access)}, b.options...),
		}
		if !b.mapped {
			m.UIDMappings, m.GIDMappings = idMappings(in.Sandbox), idMappings(in.Sandbox)
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// access is the write access to a mount.
type access string

const (
	readWrite access = "rw"
	readOnly  access = "ro"
	// readOnlyBelow makes what is mounted below the mount read-only as well.
	readOnlyBelow access = "rro"
)

// Propagation of mounts between container and host, in mount(8)'s words.
const (
	propagationPrivate = "rprivate"
	propagationSlave   = "rslave"
	propagationShared  = "rshared"
)

// bind is a bind mount.
type bind struct {
	destination, source string
	access              access
	// propagation is private when it is not set.
	propagation string
	options     []string
	// mapped: its files have the ids of the pod already.
	mapped bool
}

// mountedAt reports whether one of the binds has this destination.
func mountedAt(binds []bind, destination string) bool {
	return slices.ContainsFunc(binds, func(b bind) bool { return b.destination == destination })
}

// depth is the number of elements of a clean absolute path. The root counts as one, as in the CRI plugin.
func depth(p string) int { return strings.Count(p, "/") }

// volumeMounts returns the binds that the manifest asks for.
func volumeMounts(in spec.Input, c *corev1.Container) ([]bind, error) {
	binds := make([]bind, 0, len(c.VolumeMounts)+8)
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		source := in.Volumes[m.Name].HostPath
		if HasSubPath(m) {
			source = in.SubPaths[i]
		}
		if source == "" {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		b := bind{
			destination: path.Join("/", m.MountPath), source: source,
			mapped: in.Volumes[m.Name].Mapped, propagation: propagation(m), options: sorted(slices.Concat(m.BindMountOptions, in.Volumes[m.Name].Options)),
		}
		var err error
		if b.access, err = accessOf(in, m); err != nil {
			return nil, fmt.Errorf("volumeMount %q of container %q: %w", m.Name, c.Name, err)
		}
		if mountedAt(binds, b.destination) {
			// Kubelet would hide the earlier one below the later.
			return nil, fmt.Errorf("container %q mounts two volumes at %s", c.Name, b.destination)
		}
		binds = append(binds, b)
	}
	return binds, nil
}

// accessOf returns what a mount allows. Read-only volumes stay read-only in every mount.
func accessOf(in spec.Input, m *corev1.VolumeMount) (access, error) {
	if in.Volumes[m.Name].ReadOnly {
		return readOnly, nil
	}
	if !m.ReadOnly {
		return readWrite, nil
	}
	mode := corev1.RecursiveReadOnlyDisabled
	if m.RecursiveReadOnly != nil {
		mode = *m.RecursiveReadOnly
	}
	switch {
	case mode == corev1.RecursiveReadOnlyDisabled:
		return readOnly, nil
	case in.Host.RecursiveReadOnly:
		return readOnlyBelow, nil
	case mode == corev1.RecursiveReadOnlyIfPossible:
		return readOnly, nil
	}
	return "", errors.New("recursiveReadOnly: Enabled needs Linux 5.12 and an OCI runtime with the mount option rro")
}

// propagation returns how mounts below a volume mount are passed on.
func propagation(m *corev1.VolumeMount) string {
	if m.MountPropagation == nil {
		return propagationPrivate
	}
	switch *m.MountPropagation {
	case corev1.MountPropagationHostToContainer:
		return propagationSlave
	case corev1.MountPropagationBidirectional:
		return propagationShared
	}
	return propagationPrivate
}

// rootPropagation is what the runtime must make of all mounts it starts from, so that those of the volumes can be
// passed on. Empty: its default.
func rootPropagation(c *corev1.Container) string {
	all := ""
	for i := range c.VolumeMounts {
		switch propagation(&c.VolumeMounts[i]) {
		case propagationShared:
			return propagationShared
		case propagationSlave:
			all = propagationSlave
		}
	}
	return all
}

// HasSubPath reports whether a mount is of a path inside the volume.
func HasSubPath(m *corev1.VolumeMount) bool { return m.SubPath != "" || m.SubPathExpr != "" }

// SubPaths returns the path inside the volume for each volumeMount with a subPath or subPathExpr, by its index in the container. It reads
// the inputs of the environment, but neither Volumes nor SubPaths.
func SubPaths(in spec.Input) (map[int]string, error) {
	c, err := spec.FindContainer(in.Pod, in.Container)
	if err != nil || !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return HasSubPath(&m) }) {
		return nil, err
	}
	_, vars, err := environ.Resolve(in, c)
	if err != nil {
		return nil, err
	}
	paths := map[int]string{}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if !HasSubPath(m) {
			continue
		}
		if paths[i], err = subPath(m, vars); err != nil {
			return nil, fmt.Errorf("volumeMount %q of container %q: %w", m.Name, c.Name, err)
		}
	}
	return paths, nil
}

// subPath returns the path of one mount. A variable that is empty would silently mount something else.
func subPath(m *corev1.VolumeMount, vars map[string]string) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		if expand.Length(m.SubPathExpr, expand.MaxPath, expand.Lengths(vars)) > expand.MaxPath {
			return "", fmt.Errorf("subPathExpr: %w", &expand.TooLongError{Most: expand.MaxPath})
		}
		var missing []string
		sub = expand.With(m.SubPathExpr, func(name string) (string, bool) {
			value := vars[name]
			if value == "" {
				missing = append(missing, strconv.Quote(name))
			}
			return value, true
		})
		if len(missing) > 0 {
			slices.Sort(missing)
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Compact(missing), ", "))
		}
	}
	switch {
	case path.IsAbs(sub):
		return "", fmt.Errorf("subPath %q must not be an absolute path", sub)
	case slices.Contains(strings.Split(sub, "/"), ".."):
		return "", fmt.Errorf("subPath %q must not contain '..'", sub)
	}
	return sub, nil
}

// systemMounts returns the mounts of a container without any volumes, minus those that a bind replaces. A bind at
// /dev replaces everything below it too.
func systemMounts(h spec.Host, sec security, binds []bind) []specs.Mount {
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
func ImageVolumePaths(in spec.Input) ([]string, error) {
	c, err := spec.FindContainer(in.Pod, in.Container)
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
