package environ

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/runner/spec"
	"monopod/runner/spec/limits"
)

// NeedsIPs reports whether Spec reads Sandbox.IPs for this container, so that its spec can only be built when the
// pod's network is up. Host-network pods never wait: their addresses are the node's.
func NeedsIPs(pod *corev1.Pod, container string) bool {
	c, err := spec.FindContainer(pod, container)
	if err != nil || pod.Spec.HostNetwork {
		return false
	}
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Value == "" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil &&
			(e.ValueFrom.FieldRef.FieldPath == "status.podIP" || e.ValueFrom.FieldRef.FieldPath == "status.podIPs")
	})
}

// Field resolves a fieldRef. Other than kubelet without an API server, it knows the node's addresses and
// those of host-network pods.
func Field(in spec.Input, field string) (string, error) {
	if name, key, ok := subscript(field); ok {
		switch name {
		case "metadata.labels":
			return in.Pod.Labels[key], nil
		case "metadata.annotations":
			return in.Pod.Annotations[key], nil
		}
	}
	switch field {
	case "metadata.name":
		return in.Pod.Name, nil
	case "metadata.namespace":
		return in.Pod.Namespace, nil
	case "metadata.uid":
		return string(in.Pod.UID), nil
	case "spec.nodeName", "spec.host":
		return in.Host.NodeName, nil
	case "spec.serviceAccountName":
		return in.Pod.Spec.ServiceAccountName, nil
	}
	return addressValue(in, field)
}

// addressValue resolves the fields that are addresses.
func addressValue(in spec.Input, field string) (string, error) {
	podIPs := in.Sandbox.IPs
	if in.Pod.Spec.HostNetwork && len(podIPs) == 0 {
		podIPs = in.Host.NodeIPs
	}
	switch field {
	case "status.hostIP":
		return firstOf(in.Host.NodeIPs, "the node has no address yet")
	case "status.podIP":
		return firstOf(podIPs, "the pod has no address yet")
	case "status.hostIPs":
		_, err := firstOf(in.Host.NodeIPs, "the node has no address yet")
		return strings.Join(in.Host.NodeIPs, ","), err
	case "status.podIPs":
		_, err := firstOf(podIPs, "the pod has no address yet")
		return strings.Join(podIPs, ","), err
	default:
		return "", fmt.Errorf("field %s is not available to environment variables", field)
	}
}

// firstOf returns the first of a list, or an error with this text.
func firstOf(list []string, none string) (string, error) {
	if len(list) == 0 {
		return "", errors.New(none)
	}
	return list[0], nil
}

// subscript splits metadata.labels['key'].
func subscript(field string) (name, key string, ok bool) {
	s, ok := strings.CutSuffix(field, "']")
	if !ok {
		return "", "", false
	}
	return strings.Cut(s, "['")
}

// Resource resolves a resourceFieldRef: the amount in units of the divisor, rounded up. A limit that is not
// set is what the machine has, a request that is not set is zero.
func Resource(in spec.Input, c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		var err error
		if c, err = spec.FindContainer(in.Pod, ref.ContainerName); err != nil {
			return "", err
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := c.Resources.Requests
	switch {
	case kind != "limits" && kind != "requests" || !downwardResource(name):
		return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
	case kind == "limits":
		list = c.Resources.Limits
	}
	unit := (*resource.Quantity).Value
	if name == string(corev1.ResourceCPU) {
		unit = (*resource.Quantity).MilliValue
	}
	amount := list[corev1.ResourceName(name)]
	if kind == "limits" {
		amount = *limits.ContainerLimit(in.Pod, c, corev1.ResourceName(name))
	}
	value := unit(&amount)
	if value == 0 && kind == "limits" {
		var err error
		if value, err = machineAmount(in.Host, name); err != nil {
			return "", err
		}
	}
	divisor := int64(1)
	switch {
	case !ref.Divisor.IsZero():
		divisor = unit(&ref.Divisor)
	case name == string(corev1.ResourceCPU):
		divisor = 1000
	}
	return divideUp(value, divisor), nil
}

// downwardResource reports whether resourceFieldRef may name a resource.
func downwardResource(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// machineAmount is the machine's amount of a resource: cpu in thousandths, all else in its base unit.
func machineAmount(h spec.Host, name string) (int64, error) {
	switch name {
	case string(corev1.ResourceCPU):
		return h.MilliCPU, nil
	case string(corev1.ResourceMemory):
		return h.MemoryBytes, nil
	case string(corev1.ResourceEphemeralStorage):
		if h.EphemeralStorageBytes <= 0 {
			return 0, errors.New("the ephemeral storage of this machine is not known")
		}
		return h.EphemeralStorageBytes, nil
	default:
		return 0, nil
	}
}

// divideUp divides, rounding up; big numbers because amount+divisor may not fit.
func divideUp(amount, divisor int64) string {
	q, m := new(big.Int).DivMod(big.NewInt(amount), big.NewInt(divisor), new(big.Int))
	if m.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.String()
}
