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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
)

// Pod checks a defaulted pod as the API server of Kubernetes 1.36 does when one is created: the same
// fields, by the same rules, in the same words, all problems at once. It covers every field that is enforced or
// harmless, and of the refused ones those that a coming release may enforce. Not covered are fields of Windows,
// of volume types that need a cluster, and of claims: those are refused whatever they say.
func Pod(pod *corev1.Pod) field.ErrorList {
	c := &checker{pod: pod}
	metadata, spec := field.NewPath("metadata"), field.NewPath("spec")
	if c.bounds(spec); len(c.errs) > 0 {
		return c.errs
	}
	c.add(apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadata)...)
	c.annotations(metadata.Child("annotations"))
	c.volumes(spec.Child("volumes"))
	c.containers(spec.Child("containers"))
	c.initContainers(spec.Child("initContainers"))
	c.ephemeralContainers(spec.Child("ephemeralContainers"))
	c.podResources(spec.Child("resources"))
	c.podSpec(spec)
	c.network(spec)
	c.podSecurity(spec.Child("securityContext"))
	c.scheduling(spec)
	return c.errs
}

// checker collects what is wrong with one pod.
type checker struct {
	// validVolumes are the volumes without a problem, by name.
	validVolumes map[string]*corev1.Volume
	pod          *corev1.Pod
	errs         field.ErrorList
}

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// invalid reports one error for each message, none for none.
func (c *checker) invalid(path *field.Path, value any, msgs ...string) {
	for _, msg := range msgs {
		c.add(field.Invalid(path, value, msg))
	}
}

// required reports a value that is missing.
func (c *checker) required(path *field.Path, detail string) { c.add(field.Required(path, detail)) }

func (c *checker) forbidden(path *field.Path, detail string) { c.add(field.Forbidden(path, detail)) }

// oneOf reports a value that is none of those there are, and names them in the order given.
func oneOf[T ~string](c *checker, path *field.Path, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		c.add(field.NotSupported(path, value, supported))
	}
}

// label reports a value that is no DNS label.
func (c *checker) label(path *field.Path, value string) {
	c.invalid(path, value, validation.IsDNS1123Label(value)...)
}

func (c *checker) subdomain(path *field.Path, value string) {
	c.invalid(path, value, validation.IsDNS1123Subdomain(value)...)
}

func (c *checker) qualifiedName(path *field.Path, value string) {
	c.invalid(path, value, validation.IsQualifiedName(value)...)
}

// podContainer is a container of any kind, where it stands.
type podContainer struct {
	*corev1.Container
	path *field.Path
}

// allContainers returns the containers of all kinds, in the order in which the API server visits them.
func (c *checker) allContainers(spec *field.Path) []podContainer {
	var all []podContainer
	for i := range c.pod.Spec.InitContainers {
		all = append(all, podContainer{&c.pod.Spec.InitContainers[i], spec.Child("initContainers").Index(i)})
	}
	for i := range c.pod.Spec.Containers {
		all = append(all, podContainer{&c.pod.Spec.Containers[i], spec.Child("containers").Index(i)})
	}
	for i := range c.pod.Spec.EphemeralContainers {
		ephemeral := (*corev1.Container)(&c.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		all = append(all, podContainer{ephemeral, spec.Child("ephemeralContainers").Index(i)})
	}
	return all
}

// annotations checks those that mean something to Kubernetes.
func (c *checker) annotations(path *field.Path) {
	annotations := c.pod.Annotations
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && c.pod.Spec.NodeName == "" {
		c.invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if value, ok := annotations[corev1.PodDeletionCost]; ok && !isDeletionCost(value) {
		c.invalid(path.Key(corev1.PodDeletionCost), value, "must be a 32bit integer")
	}
	if profile, ok := annotations[corev1.SeccompPodAnnotationKey]; ok {
		c.seccompAnnotation(path.Child(corev1.SeccompPodAnnotationKey), profile)
	}
	for _, name := range []string{manifests.IngressBandwidth, manifests.EgressBandwidth} {
		if value, ok := annotations[name]; ok {
			if _, err := manifests.ParseBandwidth(value); err != nil {
				c.invalid(path.Key(name), value, err.Error()) // an API server leaves it to the kubelet
			}
		}
	}
	for _, name := range manifests.RolloutAnnotations() {
		if value, ok := annotations[name]; ok {
			if err := new(manifests.Rollout).Set(name, value); err != nil {
				c.invalid(path.Key(name), value, err.Error())
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
	c.profilesMatchAnnotations(field.NewPath("spec"))
}

// isDeletionCost accepts 32-bit integers without plus sign and leading zeros.
func isDeletionCost(value string) bool {
	_, err := strconv.ParseInt(value, 10, 32)
	return err == nil && value[0] != '+' && (value[0] != '0' || value == "0")
}

func (c *checker) seccompAnnotation(path *field.Path, profile string) {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return
	}
	if local, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); ok {
		c.descendingPath(path, local)
		return
	}
	c.invalid(path, profile, "must be a valid seccomp profile")
}

func (c *checker) appArmorAnnotation(path *field.Path, container, profile string) {
	all := c.allContainers(field.NewPath("spec"))
	if !slices.ContainsFunc(all, func(p podContainer) bool { return p.Name == container }) {
		c.invalid(path, container, "container not found")
	}
	switch profile {
	case "", corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return
	}
	if !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
		c.invalid(path, profile, "invalid AppArmor profile name: "+strconv.Quote(profile))
	}
}
