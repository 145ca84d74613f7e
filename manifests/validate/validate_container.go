package validate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/schema"
)

// containers checks the regular containers.
func (c *checker) containers(path *field.Path) {
	containers := c.pod.Spec.Containers
	if len(containers) == 0 {
		c.required(path, "")
		return
	}
	names := map[string]bool{}
	for i := range containers {
		container, at := &containers[i], path.Index(i)
		c.container(at, container)
		if names[container.Name] {
			c.add(field.Duplicate(at.Child("name"), container.Name))
		}
		names[container.Name] = true
		c.lifecycle(at.Child("lifecycle"), container.Lifecycle)
		c.probes(at, container)
		c.containerRestartPolicy(at, container)
	}
	c.hostPortConflicts(path, containers)
}

// initContainers checks the init containers, among them sidecars.
func (c *checker) initContainers(path *field.Path) {
	names := map[string]bool{}
	for i := range c.pod.Spec.Containers {
		names[c.pod.Spec.Containers[i].Name] = true
	}
	for i := range c.pod.Spec.InitContainers {
		container, at := &c.pod.Spec.InitContainers[i], path.Index(i)
		c.container(at, container)
		c.containerRestartPolicy(at, container)
		if names[container.Name] {
			c.add(field.Duplicate(at.Child("name"), container.Name))
		} else if container.Name != "" {
			names[container.Name] = true
		}
		c.hostPortConflicts(path, []corev1.Container{*container})
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			c.lifecycle(at.Child("lifecycle"), container.Lifecycle)
			c.probes(at, container)
		} else {
			c.plainInitContainer(at, container)
		}
	}
}

// plainInitContainer checks an init container that is no sidecar.
func (c *checker) plainInitContainer(path *field.Path, container *corev1.Container) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", container.Lifecycle != nil},
		{"livenessProbe", container.LivenessProbe != nil},
		{"readinessProbe", container.ReadinessProbe != nil},
		{"startupProbe", container.StartupProbe != nil},
	} {
		if f.set {
			c.forbidden(path.Child(f.name), "may not be set for init containers without restartPolicy=Always")
		}
	}
	for i, p := range container.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			c.invalid(path.Child("resizePolicy").Index(i).Child("restartPolicy"), p.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers")
		}
	}
}

// ephemeralContainers checks what nobody can set in a manifest anyway, so that the reader sees all of it.
func (c *checker) ephemeralContainers(path *field.Path) {
	names := map[string]bool{}
	for _, list := range [][]corev1.Container{c.pod.Spec.Containers, c.pod.Spec.InitContainers} {
		for i := range list {
			names[list[i].Name] = true
		}
	}
	for i := range c.pod.Spec.EphemeralContainers {
		container, at := (*corev1.Container)(&c.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon), path.Index(i)
		c.container(at, container)
		if names[container.Name] {
			c.add(field.Duplicate(at.Child("name"), container.Name))
		}
		names[container.Name] = true
		v := reflect.ValueOf(*container)
		for _, f := range schema.Fields(v.Type()) {
			closed := []string{"ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy", "restartPolicy", "restartPolicyRules"}
			if slices.Contains(closed, f.Name) && !v.FieldByIndex(f.Index).IsZero() {
				c.forbidden(at.Child(f.Name), "cannot be set for an Ephemeral Container")
			}
		}
	}
}

// container checks what all kinds of containers have in common.
func (c *checker) container(path *field.Path, container *corev1.Container) {
	if container.Name == "" {
		c.required(path.Child("name"), "")
	} else {
		c.label(path.Child("name"), container.Name)
	}
	if container.Image == "" {
		c.required(path.Child("image"), "")
	}
	if strings.TrimSpace(container.Image) != container.Image {
		c.invalid(path.Child("image"), container.Image, "must not have leading or trailing whitespace")
	}
	oneOf(c, path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	oneOf(c, path.Child("imagePullPolicy"), container.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	c.ports(path.Child("ports"), container.Ports)
	c.env(path.Child("env"), container.Env)
	c.words(podContainer{container, path})
	c.envFrom(path.Child("envFrom"), container.EnvFrom)
	c.mounts(path.Child("volumeMounts"), container)
	c.devices(path.Child("volumeDevices"), container)
	c.resources(path.Child("resources"), &container.Resources, containerResource)
	c.resizePolicy(path.Child("resizePolicy"), container.ResizePolicy)
	c.security(path.Child("securityContext"), container.SecurityContext)
}

func (c *checker) ports(path *field.Path, ports []corev1.ContainerPort) {
	names := map[string]bool{}
	for i, port := range ports {
		at := path.Index(i)
		c.portName(at.Child("name"), port.Name, names)
		if port.ContainerPort == 0 {
			c.required(at.Child("containerPort"), "")
		} else {
			c.invalid(at.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort))...)
		}
		if port.HostPort != 0 {
			c.invalid(at.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort))...)
		}
		oneOf(c, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	}
}

func (c *checker) portName(path *field.Path, name string, names map[string]bool) {
	if name == "" {
		return
	}
	if msgs := validation.IsValidPortName(name); len(msgs) > 0 {
		c.invalid(path, name, msgs...)
		return
	}
	if names[name] {
		c.add(field.Duplicate(path, name))
	}
	names[name] = true
}

// hostPortConflicts finds host ports that are taken twice.
func (c *checker) hostPortConflicts(path *field.Path, containers []corev1.Container) {
	taken := map[string]bool{}
	for i := range containers {
		for j, port := range containers[i].Ports {
			if port.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken[key] {
				c.add(field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken[key] = true
		}
	}
}

func (c *checker) mounts(path *field.Path, container *corev1.Container) {
	paths := map[string]bool{}
	for i, mount := range container.VolumeMounts {
		at := path.Index(i)
		if mount.Name == "" {
			c.required(at.Child("name"), "")
		}
		if c.validVolume(mount.Name) == nil {
			c.add(field.NotFound(at.Child("name"), mount.Name))
		}
		if mount.MountPath == "" {
			c.required(at.Child("mountPath"), "")
		}
		if paths[mount.MountPath] {
			c.invalid(at.Child("mountPath"), mount.MountPath, "must be unique")
		}
		paths[mount.MountPath] = true
		for _, device := range container.VolumeDevices {
			if device.Name == mount.Name {
				c.invalid(at.Child("name"), mount.Name, "must not already exist in volumeDevices")
			}
			if device.DevicePath == mount.MountPath {
				c.invalid(at.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices")
			}
		}
		// The API server leaves the index out of the paths of these.
		c.subPaths(path, at, mount)
		c.propagation(path.Child("mountPropagation"), mount.MountPropagation, container)
		c.recursiveReadOnly(path.Child("recursiveReadOnly"), mount)
		c.bindOptions(at.Child("bindMountOptions"), mount)
	}
}

// bindOptions lets only options through that make a mount able to do less.
func (c *checker) bindOptions(path *field.Path, mount corev1.VolumeMount) {
	seen := map[string]bool{}
	for i, o := range mount.BindMountOptions {
		oneOf(c, path.Index(i), corev1.BindMountOption(o), corev1.BindMountOptionNoDev, corev1.BindMountOptionNoExec, corev1.BindMountOptionNoSUID)
		if seen[o] {
			c.add(field.Duplicate(path.Index(i), o))
		}
		seen[o] = true
	}
	if v := c.validVolume(mount.Name); v != nil && v.Image != nil && len(mount.BindMountOptions) > 0 {
		c.forbidden(path, "may not be specified for image volumes")
	}
}

func (c *checker) subPaths(path, at *field.Path, mount corev1.VolumeMount) {
	if mount.SubPath != "" {
		c.descendingPath(path.Child("subPath"), mount.SubPath)
	}
	if mount.SubPathExpr == "" {
		return
	}
	if mount.SubPath != "" {
		c.invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
	}
	c.descendingPath(path.Child("subPathExpr"), mount.SubPathExpr)
}

func (c *checker) propagation(path *field.Path, mode *corev1.MountPropagationMode, container *corev1.Container) {
	if mode == nil {
		return
	}
	oneOf(c, path, *mode, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	sc := container.SecurityContext
	privileged := sc != nil && sc.Privileged != nil && *sc.Privileged
	if *mode == corev1.MountPropagationBidirectional && !privileged {
		c.forbidden(path, "Bidirectional mount propagation is available only to privileged containers")
	}
}

func (c *checker) recursiveReadOnly(path *field.Path, mount corev1.VolumeMount) {
	if mount.RecursiveReadOnly == nil {
		return
	}
	mode := *mount.RecursiveReadOnly
	oneOf(c, path, mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
	if mode != corev1.RecursiveReadOnlyEnabled && mode != corev1.RecursiveReadOnlyIfPossible {
		return
	}
	if !mount.ReadOnly {
		c.forbidden(path, "may only be specified when readOnly is true")
	}
	if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
		c.forbidden(path, "may only be specified when mountPropagation is None or not specified")
	}
}

func (c *checker) devices(path *field.Path, container *corev1.Container) {
	names, paths := map[string]bool{}, map[string]bool{}
	for i, device := range container.VolumeDevices {
		at := path.Index(i)
		if device.Name == "" {
			c.required(at.Child("name"), "")
		}
		if names[device.Name] {
			c.invalid(at.Child("name"), device.Name, "must be unique")
		}
		names[device.Name] = device.Name != ""
		switch v := c.validVolume(device.Name); {
		case v == nil:
			c.add(field.NotFound(at.Child("name"), device.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			c.invalid(at.Child("name"), device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		c.devicePath(at.Child("devicePath"), device.DevicePath, paths)
		for _, mount := range container.VolumeMounts {
			if mount.Name == device.Name {
				c.invalid(at.Child("name"), device.Name, "must not already exist in volumeMounts")
			}
			if mount.MountPath == device.DevicePath {
				c.invalid(at.Child("devicePath"), device.DevicePath, "must not already exist as a path in volumeMounts")
			}
		}
	}
}

func (c *checker) devicePath(path *field.Path, value string, paths map[string]bool) {
	if value == "" {
		c.required(path, "")
	}
	if paths[value] {
		c.invalid(path, value, "must be unique")
	}
	if hasBacksteps(value) {
		c.invalid(path, value, "can not contain backsteps ('..')")
		return
	}
	paths[value] = true
}
