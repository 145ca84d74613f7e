package validate

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
	"monopod/manifests/validate/container"
)

// podSpec checks the fields of the spec that belong to none of the larger topics.
func (c podsChecker) podSpec(path *field.Path) {
	spec := &c.Pod.Spec
	check.OneOf(c.Checker, path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	if spec.ServiceAccountName != "" {
		c.Invalid(path.Child("serviceAccountName"), spec.ServiceAccountName, apivalidation.ValidateServiceAccountName(spec.ServiceAccountName, false)...)
	}
	if spec.ActiveDeadlineSeconds != nil && (*spec.ActiveDeadlineSeconds < 1 || *spec.ActiveDeadlineSeconds > math.MaxInt32) {
		c.Invalid(path.Child("activeDeadlineSeconds"), *spec.ActiveDeadlineSeconds, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	for i, gate := range spec.ReadinessGates {
		c.QualifiedName(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))
	}
	if spec.RuntimeClassName != nil {
		c.Subdomain(path.Child("runtimeClassName"), *spec.RuntimeClassName)
	}
	if spec.Overhead != nil {
		container.Resources(c.Checker).Resources(path.Child("overhead"), &corev1.ResourceRequirements{Limits: spec.Overhead}, container.OfContainer)
	}
	if spec.OS != nil {
		c.podOS(path)
	}
	if len(spec.EphemeralContainers) > 0 {
		c.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create")
	}
	container.Resources(c.Checker).ResourceClaims(path.Child("resourceClaims"))
	c.hostUsers(path)
	c.fileKeyVolumes(path)
}

func (c podsChecker) podOS(path *field.Path) {
	spec := &c.Pod.Spec
	if spec.OS.Name == "" {
		c.Required(path.Child("os", "name"), "")
		return
	}
	check.OneOf(c.Checker, path.Child("os"), spec.OS.Name, corev1.Linux, corev1.Windows)
	if spec.OS.Name != corev1.Linux {
		return
	}
	const linux = "windows options cannot be set for a linux pod"
	if spec.SecurityContext.WindowsOptions != nil {
		c.Forbidden(path.Child("securityContext", "windowsOptions"), linux)
	}
	for _, container := range c.AllContainers(path) {
		if container.SecurityContext != nil && container.SecurityContext.WindowsOptions != nil {
			c.Forbidden(container.Path.Child("securityContext", "windowsOptions"), linux)
		}
	}
}

// hostUsers checks what a user namespace cannot be combined with.
func (c podsChecker) hostUsers(path *field.Path) {
	spec := &c.Pod.Spec
	if spec.HostUsers == nil || *spec.HostUsers {
		return
	}
	const why = "when `hostUsers` is false"
	if spec.HostNetwork {
		c.Forbidden(path.Child("hostNetwork"), why)
	}
	if spec.HostPID {
		c.Forbidden(path.Child("HostPID"), why)
	}
	if spec.HostIPC {
		c.Forbidden(path.Child("HostIPC"), why)
	}
	for _, container := range c.AllContainers(path) {
		if len(container.VolumeDevices) > 0 {
			c.Forbidden(container.Path.Child("volumeDevices"), why)
		}
	}
}

// fileKeyVolumes checks that variables are read from files of emptyDir volumes only.
func (c podsChecker) fileKeyVolumes(path *field.Path) {
	volumes := map[string]*corev1.Volume{}
	for i := range c.Pod.Spec.Volumes {
		volumes[c.Pod.Spec.Volumes[i].Name] = &c.Pod.Spec.Volumes[i]
	}
	for _, container := range c.AllContainers(path) {
		for i, env := range container.Env {
			if env.ValueFrom == nil || env.ValueFrom.FileKeyRef == nil {
				continue
			}
			at := container.Path.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			name := env.ValueFrom.FileKeyRef.VolumeName
			if v := volumes[name]; v == nil {
				c.Add(field.NotFound(at, name))
			} else if v.EmptyDir == nil {
				c.Invalid(at, name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

// network checks names, DNS and host ports.
func (c podsChecker) network(path *field.Path) {
	spec := &c.Pod.Spec
	c.hostNetworkPorts(path.Child("containers"))
	check.OneOf(c.Checker, path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	c.dnsConfig(path.Child("dnsConfig"))
	c.hostnameOverride(path.Child("hostnameOverride"))
	if spec.Hostname != "" {
		c.Label(path.Child("hostname"), spec.Hostname)
	}
	if spec.Subdomain != "" {
		c.Label(path.Child("subdomain"), spec.Subdomain)
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		c.ip(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			c.Subdomain(at.Child("hostnames").Index(j), name)
		}
	}
}

// ip checks an address by the strict rules: no leading zeros, no IPv4 in IPv6.
func (c podsChecker) ip(path *field.Path, value string) {
	c.Add(validation.IsValidIPForLegacyField(path, value, true, nil)...)
}

func (c podsChecker) hostNetworkPorts(path *field.Path) {
	if !c.Pod.Spec.HostNetwork {
		return
	}
	for i := range c.Pod.Spec.Containers {
		for j, port := range c.Pod.Spec.Containers[i].Ports {
			if port.HostPort != port.ContainerPort {
				c.Invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
					"must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

// Limits of the resolver in the C library.
const (
	maxNameservers      = 3
	maxSearchDomains    = 32
	maxSearchCharacters = 2048
)

func (c podsChecker) dnsConfig(path *field.Path) {
	dns := c.Pod.Spec.DNSConfig
	if c.Pod.Spec.DNSPolicy == corev1.DNSNone {
		if dns == nil {
			c.Required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if len(dns.Nameservers) == 0 {
			c.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	if dns == nil {
		return
	}
	if len(dns.Nameservers) > maxNameservers {
		c.Invalid(path.Child("nameservers"), dns.Nameservers, "must not have more than 3 nameservers")
	}
	for i, server := range dns.Nameservers {
		c.ip(path.Child("nameservers").Index(i), server)
	}
	if len(dns.Searches) > maxSearchDomains {
		c.Invalid(path.Child("searches"), dns.Searches, "must not have more than 32 search paths")
	}
	if len(strings.Join(dns.Searches, " ")) > maxSearchCharacters {
		c.Invalid(path.Child("searches"), dns.Searches, "must not have more than 2048 characters (including spaces) in the search list")
	}
	for i, search := range dns.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.Invalid(path.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search)...)
		}
	}
	for i, option := range dns.Options {
		if option.Name == "" {
			c.Required(path.Child("options").Index(i), "must not be empty")
		}
	}
}

func (c podsChecker) hostnameOverride(path *field.Path) {
	spec := &c.Pod.Spec
	if spec.HostnameOverride == nil {
		return
	}
	const longest = 64
	if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
		c.Forbidden(path, "may not be specified when setHostnameAsFQDN is true")
	}
	if spec.HostNetwork {
		c.Forbidden(path, "may not be specified when hostNetwork is true")
	}
	if len(*spec.HostnameOverride) > longest {
		c.Add(field.TooLong(path, "", longest))
	}
	c.Subdomain(path, *spec.HostnameOverride)
}
