// Package build turns a pod and an image config into the OCI runtime spec of one container.
//
// It owns the rules between a manifest and runc: what kubelet 1.37 and containerd's CRI plugin together request.
// It is pure, and equal inputs give equal specs. It must not know containerd: its callers prepare what spec.Input
// points to, and add the seccomp profile (SeccompFor), the AppArmor profile and the SELinux labels.
package build

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// ociVersion is the oldest version that has all we use; crun 1.8.1 refuses specs of later ones.
const ociVersion = "1.0.2"

// rootfs is the root file system's directory, relative to the bundle.
const rootfs = "rootfs"

// Spec returns the OCI spec of one container. An error means that the container cannot be configured as written
// (the waiting reason is CreateContainerConfigError); trying again with the same input is of no use.
func Spec(in spec.Input) (*specs.Spec, error) {
	c, err := spec.FindContainer(in.Pod, in.Container)
	if err != nil {
		return nil, err
	}
	sec := effectiveSecurity(in.Pod, c)
	if err := checkInput(in, c); err != nil {
		return nil, err
	}
	process, err := buildProcess(in, c, sec)
	if err != nil {
		return nil, err
	}
	mounts, err := buildMounts(in, c, sec)
	if err != nil {
		return nil, err
	}
	return &specs.Spec{
		Version:     ociVersion,
		Root:        &specs.Root{Path: rootfs, Readonly: sec.readOnlyRoot},
		Process:     process,
		Mounts:      mounts,
		Linux:       buildLinux(in, c, sec),
		Annotations: maps.Clone(in.Host.Annotations),
	}, nil
}

// Check reports whether Spec would work for this container once its sandbox and volumes exist. What is missing in
// Sandbox and Volumes is made up; the rest of Input must be as for Spec.
func Check(in spec.Input) error {
	s := &in.Sandbox
	for _, p := range []*string{&s.NetNS, &s.IPCNS, &s.UTSNS, &s.PIDNS} {
		if *p == "" {
			*p = "/later"
		}
	}
	if users := in.Pod.Spec.HostUsers; users != nil && !*users && s.UserNS == "" {
		s.UserNS, s.FirstID = "/later", manifests.UserIDs
	}
	if len(s.IPs) == 0 {
		s.IPs = []string{"192.0.2.1"}
	}
	volumes := map[string]spec.Volume{}
	for i := range in.Pod.Spec.Volumes {
		volumes[in.Pod.Spec.Volumes[i].Name] = spec.Volume{HostPath: "/later"}
	}
	if c, err := spec.FindContainer(in.Pod, in.Container); err == nil {
		for _, d := range c.VolumeDevices {
			volumes[d.Name] = spec.Volume{Device: &spec.Device{Path: "/later", Type: "b"}}
		}
	}
	in.Volumes, in.Preview = volumes, true
	if in.ID == "" {
		in.ID = "later"
	}
	if in.Pod.UID == "" {
		pod := *in.Pod
		pod.UID = "later"
		in.Pod = &pod
	}
	paths, err := SubPaths(in)
	if err != nil {
		return err
	}
	in.SubPaths = map[int]string{}
	for i := range paths {
		in.SubPaths[i] = "/later"
	}
	_, err = Spec(in)
	return err
}

// checkInput refuses inputs that would give a spec weaker than what the manifest says.
func checkInput(in spec.Input, c *corev1.Container) error {
	spec := &in.Pod.Spec
	switch {
	case in.ID == "" || in.Pod.UID == "":
		return errors.New("the id of the container or of its pod is missing")
	case !spec.HostNetwork && (in.Sandbox.NetNS == "" || in.Sandbox.UTSNS == ""):
		return errors.New("the pod's network namespace does not exist")
	case spec.HostUsers != nil && !*spec.HostUsers && (in.Sandbox.UserNS == "" || in.Sandbox.FirstID == 0):
		return errors.New("the pod's user namespace does not exist")
	case ptr.Deref(spec.ShareProcessNamespace, false) && in.Sandbox.PIDNS == "":
		return errors.New("the pod's process namespace does not exist")
	case !spec.HostIPC && in.Sandbox.IPCNS == "":
		return errors.New("the pod's ipc namespace does not exist")
	case len(in.Host.Capabilities) == 0:
		return errors.New("the capabilities of this machine are not known")
	case in.Host.MemoryBytes <= 0:
		return errors.New("the memory of this machine is not known")
	}
	if err := limits.CheckHugepages(in.Host, in.Pod, c); err != nil {
		return err
	}
	return checkDevices(in, c)
}

// checkDevices sees to it that volumes are used as what they are, in kubelet's words.
func checkDevices(in spec.Input, c *corev1.Container) error {
	for _, d := range c.VolumeDevices {
		if in.Volumes[d.Name].Device == nil {
			return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", d.Name)
		}
	}
	for _, m := range c.VolumeMounts {
		if in.Volumes[m.Name].Device != nil {
			return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", m.Name)
		}
	}
	return nil
}

// buildLinux returns everything that is particular to Linux.
func buildLinux(in spec.Input, c *corev1.Container, sec security) *specs.Linux {
	l := &specs.Linux{
		Namespaces:  namespaces(in, sec),
		CgroupsPath: cgroupsPath(in),
		Resources:   limits.ForContainer(in, c),

		RootfsPropagation: rootPropagation(c),
	}
	l.UIDMappings, l.GIDMappings = idMappings(in.Sandbox), idMappings(in.Sandbox)
	if sec.privileged {
		l.Devices = hostDevices(in.Host.Devices)
		l.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		addVolumeDevices(l, in, c)
		return l
	}
	// The usual devices (null, zero, full, random, urandom, tty, ptmx, pts) need no rule here: runc and crun
	// make them and append their rules to ours.
	l.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	addVolumeDevices(l, in, c)
	if !sec.procUnmasked {
		l.MaskedPaths = maskedPaths(in.Host)
		l.ReadonlyPaths = readonlyPaths()
	}
	return l
}

// addVolumeDevices adds the volumes that the container has as devices, in place of what is at their paths on the machine.
func addVolumeDevices(l *specs.Linux, in spec.Input, c *corev1.Container) {
	for _, d := range c.VolumeDevices {
		v := in.Volumes[d.Name]
		device := *v.Device
		device.Path = path.Clean(d.DevicePath)
		l.Devices = slices.DeleteFunc(l.Devices, func(o specs.LinuxDevice) bool { return o.Path == device.Path })
		l.Devices = append(l.Devices, hostDevices([]spec.Device{device})...)
		access := "rwm"
		if v.ReadOnly {
			access = "r"
		}
		l.Resources.Devices = append(l.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: device.Type, Major: &device.Major, Minor: &device.Minor, Access: access,
		})
	}
}

// cgroupsPath names the container's cgroup, in that of its pod.
func cgroupsPath(in spec.Input) string { return in.Host.Cgroups.OCIPath(podCgroup(in), in.ID) }

// podCgroup is the cgroup of the pod.
func podCgroup(in spec.Input) string {
	if in.Sandbox.Cgroup != "" {
		return in.Sandbox.Cgroup
	}
	return in.Host.Cgroups.Pod(manifests.QOSClass(in.Pod), string(in.Pod.UID))
}

// namespaces returns the new and joined namespaces. A namespace that is not listed is the host's.
func namespaces(in spec.Input, sec security) []specs.LinuxNamespace {
	pod := &in.Pod.Spec
	var all []specs.LinuxNamespace
	if in.Sandbox.UserNS != "" {
		all = append(all, specs.LinuxNamespace{Type: specs.UserNamespace, Path: in.Sandbox.UserNS})
	}
	if !pod.HostPID {
		all = append(all, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: in.Sandbox.PIDNS})
	}
	if !pod.HostIPC {
		all = append(all, specs.LinuxNamespace{Type: specs.IPCNamespace, Path: in.Sandbox.IPCNS})
	}
	if !pod.HostNetwork {
		// The uts namespace goes with the network, as in kubelet. Its hostname was set when it was made,
		// so the spec has none.
		all = append(all, specs.LinuxNamespace{Type: specs.UTSNamespace, Path: in.Sandbox.UTSNS})
	}
	all = append(all, specs.LinuxNamespace{Type: specs.MountNamespace})
	if !pod.HostNetwork {
		all = append(all, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: in.Sandbox.NetNS})
	}
	if ownCgroupNamespace(in.Host, sec) {
		all = append(all, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return all
}

// ownCgroupNamespace: containers see only their own cgroup on v2; on v1 the runtime bind-mounts just theirs.
func ownCgroupNamespace(h spec.Host, sec security) bool { return h.CgroupV2 && !sec.privileged }
