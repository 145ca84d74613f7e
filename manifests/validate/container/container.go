// Package container validates the containers of a pod: their fields, probes, hooks, resources and security contexts.
//
// It must not default or refuse anything that is valid.
package container

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/schema"
	"monopod/manifests/validate/check"
	"monopod/manifests/validate/storage"
)

// containersChecker checks containers of all kinds.
type containersChecker struct{ *check.Checker }

// Containers returns the checks of containers, which report to c.
func Containers(c *check.Checker) containersChecker { return containersChecker{c} }

// Containers checks the regular containers.
func (c containersChecker) Containers(path *field.Path) {
	containers := c.Pod.Spec.Containers
	if len(containers) == 0 {
		c.Required(path, "")
		return
	}
	names := map[string]bool{}
	for i := range containers {
		container, at := &containers[i], path.Index(i)
		c.container(at, container)
		if names[container.Name] {
			c.Add(field.Duplicate(at.Child("name"), container.Name))
		}
		names[container.Name] = true
		handlersOf(c.Checker).lifecycle(at.Child("lifecycle"), container.Lifecycle)
		handlersOf(c.Checker).probes(at, container)
		handlersOf(c.Checker).containerRestartPolicy(at, container)
	}
	c.hostPortConflicts(path, containers)
}

// InitContainers checks the init containers, among them sidecars.
func (c containersChecker) InitContainers(path *field.Path) {
	names := map[string]bool{}
	for i := range c.Pod.Spec.Containers {
		names[c.Pod.Spec.Containers[i].Name] = true
	}
	for i := range c.Pod.Spec.InitContainers {
		container, at := &c.Pod.Spec.InitContainers[i], path.Index(i)
		c.container(at, container)
		handlersOf(c.Checker).containerRestartPolicy(at, container)
		if names[container.Name] {
			c.Add(field.Duplicate(at.Child("name"), container.Name))
		} else if container.Name != "" {
			names[container.Name] = true
		}
		c.hostPortConflicts(path, []corev1.Container{*container})
		if manifests.IsSidecar(container) {
			handlersOf(c.Checker).lifecycle(at.Child("lifecycle"), container.Lifecycle)
			handlersOf(c.Checker).probes(at, container)
		} else {
			c.plainInitContainer(at, container)
		}
	}
}

// plainInitContainer checks an init container that is no sidecar.
func (c containersChecker) plainInitContainer(path *field.Path, container *corev1.Container) {
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
			c.Forbidden(path.Child(f.name), "may not be set for init containers without restartPolicy=Always")
		}
	}
	for i, p := range container.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			c.Invalid(path.Child("resizePolicy").Index(i).Child("restartPolicy"), p.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers")
		}
	}
}

// EphemeralContainers checks ephemeral containers. Manifests cannot set them; the errors complete the report.
func (c containersChecker) EphemeralContainers(path *field.Path) {
	names, others := map[string]bool{}, map[string]bool{}
	for _, list := range [][]corev1.Container{c.Pod.Spec.Containers, c.Pod.Spec.InitContainers} {
		for i := range list {
			names[list[i].Name], others[list[i].Name] = true, true
		}
	}
	for i := range c.Pod.Spec.EphemeralContainers {
		container, at := (*corev1.Container)(&c.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon), path.Index(i)
		if target := c.Pod.Spec.EphemeralContainers[i].TargetContainerName; target != "" && !others[target] {
			c.Add(field.NotFound(at.Child("targetContainerName"), target))
		}
		for j, mount := range container.VolumeMounts {
			for name, value := range map[string]string{"subPath": mount.SubPath, "subPathExpr": mount.SubPathExpr} {
				if value != "" {
					c.Forbidden(at.Child("volumeMounts").Index(j).Child(name), "cannot be set for an Ephemeral Container")
				}
			}
		}
		c.container(at, container)
		if names[container.Name] {
			c.Add(field.Duplicate(at.Child("name"), container.Name))
		}
		names[container.Name] = true
		v := reflect.ValueOf(*container)
		for _, f := range schema.Fields(v.Type()) {
			closed := []string{"ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy", "restartPolicy", "restartPolicyRules"}
			if slices.Contains(closed, f.Name) && !v.FieldByIndex(f.Index).IsZero() {
				c.Forbidden(at.Child(f.Name), "cannot be set for an Ephemeral Container")
			}
		}
	}
}

// container checks what all kinds of containers have in common.
func (c containersChecker) container(path *field.Path, container *corev1.Container) {
	if container.Name == "" {
		c.Required(path.Child("name"), "")
	} else {
		c.Label(path.Child("name"), container.Name)
	}
	if container.Image == "" {
		c.Required(path.Child("image"), "")
	}
	if strings.TrimSpace(container.Image) != container.Image {
		c.Invalid(path.Child("image"), container.Image, "must not have leading or trailing whitespace")
	}
	check.OneOf(c.Checker, path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	check.OneOf(c.Checker, path.Child("imagePullPolicy"), container.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	c.ports(path.Child("ports"), container.Ports)
	storage.Variables(c.Checker).Env(path.Child("env"), container.Env)
	c.words(check.PodContainer{Container: container, Path: path})
	storage.Variables(c.Checker).EnvFrom(path.Child("envFrom"), container.EnvFrom)
	c.mounts(path.Child("volumeMounts"), container)
	c.devices(path.Child("volumeDevices"), container)
	Resources(c.Checker).Resources(path.Child("resources"), &container.Resources, OfContainer)
	handlersOf(c.Checker).resizePolicy(path.Child("resizePolicy"), container.ResizePolicy)
	Security(c.Checker).security(path.Child("securityContext"), container.SecurityContext)
}

func (c containersChecker) ports(path *field.Path, ports []corev1.ContainerPort) {
	names := map[string]bool{}
	for i, port := range ports {
		at := path.Index(i)
		c.portName(at.Child("name"), port.Name, names)
		if port.ContainerPort == 0 {
			c.Required(at.Child("containerPort"), "")
		} else {
			c.Invalid(at.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort))...)
		}
		if port.HostPort != 0 {
			c.Invalid(at.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort))...)
		}
		check.OneOf(c.Checker, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	}
}

func (c containersChecker) portName(path *field.Path, name string, names map[string]bool) {
	if name == "" {
		return
	}
	if msgs := validation.IsValidPortName(name); len(msgs) > 0 {
		c.Invalid(path, name, msgs...)
		return
	}
	if names[name] {
		c.Add(field.Duplicate(path, name))
	}
	names[name] = true
}

// hostPortConflicts finds host ports that are taken twice.
func (c containersChecker) hostPortConflicts(path *field.Path, containers []corev1.Container) {
	taken := map[string]bool{}
	for i := range containers {
		for j, port := range containers[i].Ports {
			if port.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken[key] {
				c.Add(field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken[key] = true
		}
	}
}

func (c containersChecker) mounts(path *field.Path, container *corev1.Container) {
	paths := map[string]bool{}
	for i, mount := range container.VolumeMounts {
		at := path.Index(i)
		if mount.Name == "" {
			c.Required(at.Child("name"), "")
		}
		if storage.Volumes(c.Checker).ValidVolume(mount.Name) == nil {
			c.Add(field.NotFound(at.Child("name"), mount.Name))
		}
		if mount.MountPath == "" {
			c.Required(at.Child("mountPath"), "")
		}
		if paths[mount.MountPath] {
			c.Invalid(at.Child("mountPath"), mount.MountPath, "must be unique")
		}
		paths[mount.MountPath] = true
		for _, device := range container.VolumeDevices {
			if device.Name == mount.Name {
				c.Invalid(at.Child("name"), mount.Name, "must not already exist in volumeDevices")
			}
			if device.DevicePath == mount.MountPath {
				c.Invalid(at.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices")
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
func (c containersChecker) bindOptions(path *field.Path, mount corev1.VolumeMount) {
	seen := map[string]bool{}
	for i, o := range mount.BindMountOptions {
		check.OneOf(c.Checker, path.Index(i), corev1.BindMountOption(o), corev1.BindMountOptionNoDev, corev1.BindMountOptionNoExec, corev1.BindMountOptionNoSUID)
		if seen[o] {
			c.Add(field.Duplicate(path.Index(i), o))
		}
		seen[o] = true
	}
	if v := storage.Volumes(c.Checker).ValidVolume(mount.Name); v != nil && v.Image != nil && len(mount.BindMountOptions) > 0 {
		c.Forbidden(path, "may not be specified for image volumes")
	}
}

func (c containersChecker) subPaths(path, at *field.Path, mount corev1.VolumeMount) {
	if mount.SubPath != "" {
		c.DescendingPath(path.Child("subPath"), mount.SubPath)
	}
	if mount.SubPathExpr == "" {
		return
	}
	if mount.SubPath != "" {
		c.Invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
	}
	c.DescendingPath(path.Child("subPathExpr"), mount.SubPathExpr)
}

func (c containersChecker) propagation(path *field.Path, mode *corev1.MountPropagationMode, container *corev1.Container) {
	if mode == nil {
		return
	}
	check.OneOf(c.Checker, path, *mode, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	sc := container.SecurityContext
	privileged := sc != nil && sc.Privileged != nil && *sc.Privileged
	if *mode == corev1.MountPropagationBidirectional && !privileged {
		c.Forbidden(path, "Bidirectional mount propagation is available only to privileged containers")
	}
}

func (c containersChecker) recursiveReadOnly(path *field.Path, mount corev1.VolumeMount) {
	if mount.RecursiveReadOnly == nil {
		return
	}
	mode := *mount.RecursiveReadOnly
	check.OneOf(c.Checker, path, mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
	if mode != corev1.RecursiveReadOnlyEnabled && mode != corev1.RecursiveReadOnlyIfPossible {
		return
	}
	if !mount.ReadOnly {
		c.Forbidden(path, "may only be specified when readOnly is true")
	}
	if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
		c.Forbidden(path, "may only be specified when mountPropagation is None or not specified")
	}
}

func (c containersChecker) devices(path *field.Path, container *corev1.Container) {
	names, paths := map[string]bool{}, map[string]bool{}
	for i, device := range container.VolumeDevices {
		at := path.Index(i)
		if device.Name == "" {
			c.Required(at.Child("name"), "")
		}
		if names[device.Name] {
			c.Invalid(at.Child("name"), device.Name, "must be unique")
		}
		names[device.Name] = device.Name != ""
		switch v := storage.Volumes(c.Checker).ValidVolume(device.Name); {
		case v == nil:
			c.Add(field.NotFound(at.Child("name"), device.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			c.Invalid(at.Child("name"), device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		c.devicePath(at.Child("devicePath"), device.DevicePath, paths)
		for _, mount := range container.VolumeMounts {
			if mount.Name == device.Name {
				c.Invalid(at.Child("name"), device.Name, "must not already exist in volumeMounts")
			}
			if mount.MountPath == device.DevicePath {
				c.Invalid(at.Child("devicePath"), device.DevicePath, "must not already exist as a path in volumeMounts")
			}
		}
	}
}

func (c containersChecker) devicePath(path *field.Path, value string, paths map[string]bool) {
	if value == "" {
		c.Required(path, "")
	}
	if paths[value] {
		c.Invalid(path, value, "must be unique")
	}
	if check.HasBacksteps(value) {
		c.Invalid(path, value, "can not contain backsteps ('..')")
		return
	}
	paths[value] = true
}
