// Package defaults fills in what the API server of Kubernetes fills in, for Pods and for the objects that pods use.
//
// Applying it twice changes nothing. It must not refuse anything: manifests/validate does that.
package defaults

import (
	"reflect"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
)

// Pod fills in what Kubernetes' API fills in for a Pod, and the namespace. Doing it twice changes
// nothing. Unlike a kubelet it adds neither a uid nor the node name to the name.
func Pod(pod *corev1.Pod) {
	spec := &pod.Spec
	orDefault(&pod.Namespace, corev1.NamespaceDefault)
	defaultPodSpec(spec)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
		requestLimits(&spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
		requestLimits(&spec.Containers[i].Resources)
	}
	defaultPodResources(spec)
	for i := range spec.EphemeralContainers {
		defaultContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	if spec.HostNetwork {
		defaultHostPorts(spec.InitContainers)
		defaultHostPorts(spec.Containers)
	}
}

// Template sets the defaults that the Kubernetes API sets in pod templates. Unlike in a Pod, limits do not become requests, and
// enableServiceLinks is left unset.
func Template(spec *corev1.PodSpec) {
	given := spec.DeepCopy()
	pod := &corev1.Pod{Spec: *spec}
	Pod(pod)
	*spec = pod.Spec
	for i := range spec.InitContainers {
		spec.InitContainers[i].Resources = given.InitContainers[i].Resources
	}
	for i := range spec.Containers {
		spec.Containers[i].Resources = given.Containers[i].Resources
	}
	spec.Resources, spec.EnableServiceLinks = given.Resources, given.EnableServiceLinks
}

// AppArmor turns the annotations that predate the AppArmor fields into those fields, as the API server does when a pod is created. The pod
// is valid, so annotations and fields agree.
func AppArmor(pod *corev1.Pod) {
	for key, value := range pod.Annotations {
		name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		profile := appArmorField(value)
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if profile != nil && list[i].Name == name {
					setAppArmor(&list[i], profile, pod.Spec.SecurityContext.AppArmorProfile)
				}
			}
		}
	}
}

// setAppArmor sets the profile of a container that has none, unless the pod's is the same.
func setAppArmor(c *corev1.Container, profile, ofPod *corev1.AppArmorProfile) {
	if reflect.DeepEqual(profile, ofPod) {
		return
	}
	orPointer(&c.SecurityContext, corev1.SecurityContext{})
	orPointer(&c.SecurityContext.AppArmorProfile, *profile)
}

// appArmorField is the field for an annotation, nil when it names no profile.
func appArmorField(annotation string) *corev1.AppArmorProfile {
	switch annotation {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	local, ok := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !ok || local == "" {
		return nil
	}
	return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
}

// orDefault sets a field that has its zero value.
func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// orPointer sets an optional field that is absent.
func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	orDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	orPointer(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	if *spec.TerminationGracePeriodSeconds < 0 {
		*spec.TerminationGracePeriodSeconds = 1
	}
	orDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	orDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	orPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	roundToMilli(spec.Overhead)
	if spec.Resources != nil {
		roundToMilli(spec.Resources.Limits)
		roundToMilli(spec.Resources.Requests)
	}
}

func defaultContainer(c *corev1.Container) {
	orDefault(&c.ImagePullPolicy, defaultPullPolicy(c.Image))
	orDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				orPointer(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundToMilli(c.Resources.Limits)
	roundToMilli(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// defaultPullPolicy is Always for the tag latest, also when it is only implied.
func defaultPullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == "latest" || reference.IsNameOnly(named) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		orDefault(&ref.APIVersion, "v1")
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	orDefault(&p.TimeoutSeconds, 1)
	orDefault(&p.PeriodSeconds, 10)
	orDefault(&p.SuccessThreshold, 1)
	orDefault(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		orPointer(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		orDefault(&get.Path, "/")
		orDefault(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// requestLimits makes a limit without a request a request too.
func requestLimits(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, has := r.Requests[name]; !has {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// defaultPodResources completes the resources of the pod as a whole, where it has any: huge pages are limited to what
// the containers have, requests are those of the containers together, else the pod's limits.
func defaultPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil {
		return
	}
	for name, limit := range manifests.PodLimits(spec) {
		if _, has := r.Limits[name]; !has && manifests.IsHugePage(name) {
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[name] = limit
		}
	}
	requests := corev1.ResourceList{}
	for name, q := range manifests.AggregateRequests(spec) {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			requests[name] = q
		}
	}
	for name, limit := range r.Limits {
		if _, has := requests[name]; ofPods(name) && !has {
			requests[name] = limit.DeepCopy()
		}
	}
	for name, q := range requests {
		if _, has := r.Requests[name]; !has {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q
		}
	}
}

// PodLimits completes the limits of a defaulted pod as a whole, where it has any resources, as the API server does when a pod is created or
// resized: what each container has a limit of is limited to what they have together, or to the pod's request if that is more. It must not
// be done to a manifest that may be that of a running pod, since it can change the class of the pod.
func PodLimits(spec *corev1.PodSpec) {
	if spec.Resources == nil {
		return
	}
	together := manifests.AggregateLimits(spec)
	for name, request := range spec.Resources.Requests {
		if _, has := spec.Resources.Limits[name]; has || !ofPods(name) || !eachLimits(spec, name) {
			continue
		}
		limit := together[name]
		if request.Cmp(limit) > 0 {
			limit = request
		}
		if spec.Resources.Limits == nil {
			spec.Resources.Limits = corev1.ResourceList{}
		}
		spec.Resources.Limits[name] = limit.DeepCopy()
	}
}

func eachLimits(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for c := range manifests.AllContainers(spec) {
		if _, has := c.Resources.Limits[name]; !has {
			return false
		}
	}
	return true
}

// ofPods reports whether a resource can be that of a pod as a whole.
func ofPods(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || manifests.IsHugePage(name)
}

// roundToMilli rounds quantities up to the precision the API keeps.
func roundToMilli(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// defaultHostPorts opens every port on the host, which is where a host-network pod listens anyway.
func defaultHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			orDefault(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

func defaultVolume(v *corev1.Volume) {
	if reflect.ValueOf(v.VolumeSource).IsZero() {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		orPointer(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		orPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		orPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		orPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.Image != nil:
		orDefault(&v.Image.PullPolicy, defaultPullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		defaultClaim(&v.Ephemeral.VolumeClaimTemplate.Spec)
	case v.ISCSI != nil:
		orDefault(&v.ISCSI.ISCSIInterface, "default")
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	orPointer(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			defaultDownwardItems(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			orPointer(&t.ExpirationSeconds, int64(3600))
		}
	}
}
