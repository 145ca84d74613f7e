// Package validate checks defaulted objects as the API server of Kubernetes does: the same fields, by the same rules, in the same words.
//
// It must not refuse what is valid but not supported here: manifests/fates and manifests/policy do that.
package validate

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/validate/check"
	"monopod/manifests/validate/container"
	"monopod/manifests/validate/storage"
)

// Pod checks a defaulted pod as the API server of Kubernetes 1.37 does when one is created: the same fields, by the same rules, in the same
// words, all problems at once. It covers every field that is enforced or harmless, and the refused ones that a later release may enforce.
// It does not cover fields of Windows, volume types that need a cluster, and resource claims: those are refused with any value.
func Pod(pod *corev1.Pod) field.ErrorList {
	c := podsChecker{&check.Checker{Pod: pod}}
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	if c.bounds(spec); len(c.Errs) > 0 {
		return c.Errs
	}
	c.Add(apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadata)...)
	c.annotations(metadata.Child("annotations"))
	storage.Volumes(c.Checker).Volumes(spec.Child("volumes"))
	container.Containers(c.Checker).Containers(spec.Child("containers"))
	container.Containers(c.Checker).InitContainers(spec.Child("initContainers"))
	container.Containers(c.Checker).EphemeralContainers(spec.Child("ephemeralContainers"))
	container.Resources(c.Checker).PodResources(spec.Child("resources"))
	c.podSpec(spec)
	c.network(spec)
	container.Security(c.Checker).PodSecurity(spec.Child("securityContext"))
	schedulingOf(c.Checker).scheduling(spec)
	return c.Errs
}

// Ephemeral checks the ephemeral containers of a defaulted pod, and nothing else of it.
func Ephemeral(pod *corev1.Pod) field.ErrorList {
	c := podsChecker{&check.Checker{Pod: pod}}
	spec := field.NewPath("spec")
	if c.bounds(spec); len(c.Errs) > 0 {
		return c.Errs
	}
	storage.Volumes(c.Checker).Volumes(spec.Child("volumes")) // mounts refer to them
	c.Errs = nil
	container.Containers(c.Checker).EphemeralContainers(spec.Child("ephemeralContainers"))
	return c.Errs
}

// annotations checks those that mean something to Kubernetes.
func (c podsChecker) annotations(path *field.Path) {
	annotations := c.Pod.Annotations
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && c.Pod.Spec.NodeName == "" {
		c.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if value, ok := annotations[corev1.PodDeletionCost]; ok && !isDeletionCost(value) {
		c.Invalid(path.Key(corev1.PodDeletionCost), value, "must be a 32bit integer")
	}
	if profile, ok := annotations[corev1.SeccompPodAnnotationKey]; ok {
		c.seccompAnnotation(path.Child(corev1.SeccompPodAnnotationKey), profile)
	}
	for _, name := range []string{manifests.IngressBandwidth, manifests.EgressBandwidth} {
		if value, ok := annotations[name]; ok {
			if _, err := manifests.ParseBandwidth(value); err != nil {
				c.Invalid(path.Key(name), value, err.Error()) // an API server leaves it to the kubelet
			}
		}
	}
	for _, name := range manifests.RolloutAnnotations() {
		if value, ok := annotations[name]; ok {
			if err := new(manifests.Rollout).Set(name, value); err != nil {
				c.Invalid(path.Key(name), value, err.Error())
			}
		}
	}
	for key, value := range annotations {
		if strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) {
			c.seccompAnnotation(path.Child(key), value)
		}
		if name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix); ok {
			c.appArmorAnnotation(path.Key(key), name, value)
		}
	}
	container.Security(c.Checker).ProfilesMatchAnnotations(field.NewPath("spec"))
}

// isDeletionCost accepts 32-bit integers without plus sign and leading zeros.
func isDeletionCost(value string) bool {
	_, err := strconv.ParseInt(value, 10, 32)
	return err == nil && value[0] != '+' && (value[0] != '0' || value == "0")
}

func (c podsChecker) seccompAnnotation(path *field.Path, profile string) {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return
	}
	if local, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); ok {
		c.DescendingPath(path, local)
		return
	}
	c.Invalid(path, profile, "must be a valid seccomp profile")
}

func (c podsChecker) appArmorAnnotation(path *field.Path, container, profile string) {
	all := c.AllContainers(field.NewPath("spec"))
	if !slices.ContainsFunc(all, func(p check.PodContainer) bool { return p.Name == container }) {
		c.Invalid(path, container, "container not found")
	}
	switch profile {
	case "", corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return
	}
	if !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
		c.Invalid(path, profile, "invalid AppArmor profile name: "+strconv.Quote(profile))
	}
}
