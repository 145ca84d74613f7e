package container

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/quantity"
	"monopod/manifests"
	"monopod/manifests/validate/check"
)

// resourcesChecker checks requests, limits and claims of resources.
type resourcesChecker struct{ *check.Checker }

// Resources returns the checks of resources, which report to c.
func Resources(c *check.Checker) resourcesChecker { return resourcesChecker{c} }

// Resources checks limits, requests and claims; checkName knows which resources there are at this place.
func (c resourcesChecker) Resources(path *field.Path, r *corev1.ResourceRequirements, checkName func(*check.Checker, *field.Path, corev1.ResourceName)) {
	huge, other := false, false
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.values)) {
			at := path.Child(list.name).Key(string(name))
			checkName(c.Checker, at, name)
			c.quantity(at, name, list.values[name])
			huge = huge || manifests.IsHugePage(name)
			other = other || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		}
	}
	c.requests(path, r)
	if huge && !other {
		c.Forbidden(path, "HugePages require cpu or memory")
	}
	c.claims(path.Child("claims"), r.Claims)
}

// requests checks each request against its limit.
func (c resourcesChecker) requests(path *field.Path, r *corev1.ResourceRequirements) {
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		overcommit := isNative(name) && !manifests.IsHugePage(name)
		switch {
		case !limited && !overcommit:
			c.Required(path.Child("limits"), "Limit must be set for non overcommitable resources")
		case !limited:
		case request.Cmp(limit) != 0 && !overcommit:
			c.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case request.Cmp(limit) > 0:
			c.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
	}
}

func (c resourcesChecker) quantity(path *field.Path, name corev1.ResourceName, q resource.Quantity) {
	if q.Sign() < 0 {
		c.Invalid(path, q.String(), "must be greater than or equal to 0")
	}
	if isCounted(name) && q.MilliValue()%1000 != 0 {
		c.Add(field.Invalid(path, q, "must be an integer"))
	}
	if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok && !isMultiple(q, size) {
		c.Invalid(path, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
	}
}

func isMultiple(q resource.Quantity, pageSize string) bool {
	size, err := quantity.Parse(pageSize)
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// isNative reports whether a resource belongs to Kubernetes itself.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended reports whether a resource is a valid extended resource.
func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// isCounted reports whether a resource has no fractions.
func isCounted(name corev1.ResourceName) bool {
	return isExtended(name) || slices.Contains(objectCounts(), name)
}

// objectCounts are the resources that count objects, in quotas.
func objectCounts() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
}

// isStandard reports whether Kubernetes knows a resource without a domain in its name, anywhere.
func isStandard(name corev1.ResourceName) bool {
	others := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage,
		corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceLimitsEphemeralStorage,
	}
	return manifests.IsHugePage(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) ||
		slices.Contains(others, name) || slices.Contains(objectCounts(), name)
}

// resourceName checks a name by the rules that hold everywhere, and reports whether it is valid.
func resourceName(c *check.Checker, path *field.Path, name corev1.ResourceName) bool {
	before := len(c.Errs)
	for _, msg := range validation.IsQualifiedName(string(name)) {
		c.Add(field.Invalid(path, name, msg))
	}
	if len(c.Errs) == before && !strings.Contains(string(name), "/") && !isStandard(name) {
		c.Add(field.Invalid(path, name, "must be a standard resource type or fully qualified"))
	}
	return len(c.Errs) == before
}

// OfContainer checks the name of a resource of a container.
func OfContainer(c *check.Checker, path *field.Path, name corev1.ResourceName) {
	resourceName(c, path, name)
	known := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	switch {
	case !strings.Contains(string(name), "/"):
		if !manifests.IsHugePage(name) && !slices.Contains(known, name) {
			c.Add(field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !isNative(name) && !isExtended(name):
		c.Add(field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
}

// podResource checks the name of a resource of a pod.
func podResource(c *check.Checker, path *field.Path, name corev1.ResourceName) {
	if !resourceName(c, path, name) {
		return
	}
	if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !manifests.IsHugePage(name) {
		c.Add(field.NotSupported(path, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceHugePagesPrefix, corev1.ResourceMemory}))
	}
}

// PodResources checks the resources of the pod itself, also against those of its containers.
func (c resourcesChecker) PodResources(path *field.Path) {
	spec := &c.Pod.Spec
	switch {
	case spec.Resources == nil:
	case spec.OS != nil && spec.OS.Name == corev1.Windows:
		c.Forbidden(path, "may not be set for a windows pod")
	default:
		if spec.Resources.Claims != nil {
			c.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level")
		}
		c.Resources(path, spec.Resources, podResource)
		c.podHoldsContainers(path)
	}
}

// podHoldsContainers checks that the containers together do not request more than the pod, and that none of them may
// use more.
func (c resourcesChecker) podHoldsContainers(path *field.Path) {
	spec := &c.Pod.Spec
	sum := manifests.AggregateRequests(spec)
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		total, pod := sum[name], spec.Resources.Requests[name]
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !manifests.IsHugePage(name) {
			continue
		}
		if total.Cmp(pod) > 0 {
			c.Invalid(path.Child("requests").Key(string(name)), pod.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", total.String()))
		}
	}
	for i := range spec.Containers {
		limits := spec.Containers[i].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			limit := limits[name]
			if pod, limited := spec.Resources.Limits[name]; limited && limit.Cmp(pod) > 0 {
				c.Invalid(field.NewPath("spec", "containers").Index(i).Child("resources", "limits").Key(string(name)), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", pod.String()))
			}
		}
	}
}

// claims checks that the devices a container claims are claimed by the pod, each once.
func (c resourcesChecker) claims(path *field.Path, claims []corev1.ResourceClaim) {
	if len(claims) == 0 {
		return
	}
	var known []string
	for _, p := range c.Pod.Spec.ResourceClaims {
		if p.Name != "" && !slices.Contains(known, p.Name) {
			known = append(known, p.Name)
		}
	}
	slices.Sort(known)
	seen := map[string]bool{}
	for i, claim := range claims {
		at := path.Index(i)
		if claim.Name == "" {
			c.Required(at, "")
			continue
		}
		c.claim(at, claim, seen)
		if slices.Contains(known, claim.Name) {
			continue
		}
		missing := field.NotFound(at, claim.Name)
		missing.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
		if len(known) > 0 {
			missing.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(known, ", ")
		}
		c.Add(missing)
	}
}

func (c resourcesChecker) claim(path *field.Path, claim corev1.ResourceClaim, seen map[string]bool) {
	key := claim.Name
	if seen[key] {
		c.Add(field.Duplicate(path, claim.Name))
		return
	}
	if claim.Request != "" {
		c.Label(path.Child("request"), claim.Request)
		key += "/" + claim.Request
	}
	overlaps := seen[key]
	for other := range seen {
		overlaps = overlaps || claim.Request == "" && strings.HasPrefix(other, claim.Name+"/")
	}
	if overlaps {
		c.Add(field.Duplicate(path, key))
	}
	seen[key] = true
}

// ResourceClaims checks the resource claims of the pod.
func (c resourcesChecker) ResourceClaims(path *field.Path) {
	seen := map[string]bool{}
	for i, claim := range c.Pod.Spec.ResourceClaims {
		at := path.Index(i)
		switch {
		case claim.Name == "":
			c.Required(at.Child("name"), "")
		case seen[claim.Name]:
			c.Add(field.Duplicate(at.Child("name"), claim.Name))
		default:
			c.Label(at.Child("name"), claim.Name)
		}
		seen[claim.Name] = true
		byName, byTemplate := claim.ResourceClaimName, claim.ResourceClaimTemplateName
		switch {
		case byName != nil && byTemplate != nil:
			c.Invalid(at, claim.Name, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case byName == nil && byTemplate == nil:
			c.Invalid(at, claim.Name, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if byName != nil {
			c.Subdomain(at.Child("resourceClaimName"), *byName)
		}
		if byTemplate != nil {
			c.Subdomain(at.Child("resourceClaimTemplateName"), *byTemplate)
		}
	}
}
